"""The Spark session: the cluster's own where there is one, a local one with Delta otherwise."""

from __future__ import annotations

import importlib.resources
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import stamina

from lakelabel.errors import RunFailed, SettingsError
from lakelabel.failures import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Set on any session, a cluster's own included: the job is meant to have its session to itself.
_RUNTIME = {
    # Times are stored and ids are cast in one zone, wherever the driver stands.
    "spark.sql.session.timeZone": "UTC",
    # What a worker left in writing before it died becomes part of the exception: a crash's stack, the watchdog's word.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # The default of 50 makes a small MERGE take tens of seconds.
    "spark.databricks.delta.snapshotPartitions": "2",
    # Beyond this many rows ORDER BY … LIMIT sorts on the executors instead of keeping the rows on the driver.
    "spark.sql.execution.topKSortFallbackThreshold": "10000",
    # A label job of several shards is a union, whose parts stay tasks of their own.
    "spark.sql.unionOutputPartitioning": "false",
}

_FAIR = "FAIR"
"""A beat, and the short jobs of a commit, never queue behind a long one; on a cluster as well."""

_LOCAL = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.worker.reuse": "true",
    # Tasks would rotate through every idle worker of an earlier stage, and each would load an engine.
    "spark.python.factory.idleWorkerMaxPoolSize": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.speculation": "false",
    "spark.ui.showConsoleProgress": "false",
}


def on_a_cluster() -> bool:
    """Whether this process was started by spark-submit or stands on a Databricks driver, which have settings of their own."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "DATABRICKS_RUNTIME_VERSION" in os.environ


def _not_py4j(record: logging.LogRecord) -> bool:
    return "while sending command" not in str(record.msg)


def slots(spark: SparkSession) -> int:
    """Engines that work at once: one on a local Spark, one an executor on a cluster, and always one task less than there
    is room for, so that beats and commits get through. Raises SettingsError where there is room for one task alone."""
    context = spark.sparkContext
    if re.match(r"local(\[|$)", context.master or "local"):
        executors = 1
    else:
        # The driver's own block manager is among them.
        executors = int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1
    return engines(executors, _room(spark))


def engines(executors: int, room: int) -> int:
    """See ``slots``; ``room``: tasks that run at once, 0 while no executor has come yet."""
    if room == 1:
        raise SettingsError(
            "spark.executor.cores", 1, "give executors a core more: an engine would hold the only one there is"
        )
    return max(1, min(executors, room - 1))


def _room(spark: SparkSession) -> int:
    context = spark.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def open_session() -> SparkSession:
    """The session for a job: on a cluster the one that is there, else ``local[cores]`` with Delta and Java found."""
    from pyspark.sql import SparkSession

    # Every caught AnalysisException would be printed as a line of JSON beside our own message.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    # The same goes for the traces that py4j logs, at the root, for a call that was interrupted or whose JVM died, and
    # for stamina's line about every retry.
    logging.getLogger().addFilter(_not_py4j)
    stamina.instrumentation.set_on_retry_hooks([])
    builder = SparkSession.builder.appName("lakelabel").config("spark.scheduler.mode", _FAIR)
    if not on_a_cluster():
        from lakelabel.jars import delta_jar_conf
        from lakelabel.java import ensure_java

        ensure_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        cores = len(os.sched_getaffinity(0))
        builder = builder.master(f"local[{max(2, cores)}]").config("spark.sql.shuffle.partitions", str(max(2, cores)))
        # Spark would give each Python worker one thread, and an engine on two cores is then 1.7 times slower.
        threads = {"spark.executorEnv.OMP_NUM_THREADS": str(cores)}
        # Spark warns of a host name that leads to loopback, and of much else before the session is there to be told.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        logging_conf = importlib.resources.files("lakelabel") / "log4j2.properties"
        quiet = {"spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={logging_conf}"'}
        for key, value in {**_LOCAL, **threads, **quiet, **delta_jar_conf()}.items():
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    mode = spark.sparkContext.getConf().get("spark.scheduler.mode", "FIFO")
    if mode != _FAIR:
        # The context was there already, and what schedules its jobs cannot be changed any more.
        raise SettingsError(
            "spark.scheduler.mode", mode, f"set {_FAIR} for the cluster: else the lease is lost behind a long stage"
        )
    for key, value in _RUNTIME.items():
        spark.conf.set(key, value)
    if not on_a_cluster():
        # Failed tasks print whole Java stack traces, whose values can be a document's.
        spark.sparkContext.setLogLevel("OFF")
    return spark


@contextmanager
def reading() -> Iterator[SparkSession]:
    """The session for a command that writes nothing. Raises RunFailed where Spark fails within the block."""
    try:
        with spark_errors("reading the tables", "see whether they are all there"):
            yield open_session()
    except KeyboardInterrupt:
        raise RunFailed("interrupted; nothing was changed") from None
