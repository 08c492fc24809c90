"""A cluster on one machine: executors are processes of their own, and are lost as such."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable

from lakelabel.jars import delta_jar_conf
from lakelabel.java import ensure_java
from lakelabel.session import _LOCAL
from tests.faults.checks import holds
from tests.faults.documents import corpus
from tests.faults.harness import QUICK_TO_START, Site, Start, until

Make = Callable[..., Site]

pytestmark = pytest.mark.slow

LAUNCHER = Path(__file__).parents[2] / "jobs" / "classify.py"


def submitted(site: Site, *overrides: str) -> Start:
    """The job by spark-submit on two executors of two cores each, with what a cluster's own settings would bring."""
    ensure_java()
    conf = {
        **_LOCAL,
        **delta_jar_conf(),
        "spark.task.maxFailures": "1",
        "spark.executor.extraJavaOptions": QUICK_TO_START,
        "spark.python.worker.faulthandler.enabled": "true",
    }
    words = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local-cluster[2,2,1024]"]
    words += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": path}
    return site.started([*words, str(LAUNCHER), *site.arguments(*overrides)], environment, logs=True)


def executors(start: Start) -> list[int]:
    """The executors of a start."""
    return [pid for pid, command in start.family().items() if "CoarseGrainedExecutorBackend" in command]


def unlogged(site: Site) -> list[Path]:
    """Whole files of outcomes that no version of the table has."""
    folder = site.root / "outcomes"
    known = {Path(uri).name for uri in DeltaTable(folder).file_uris()}
    return [path for path in folder.rglob("*.parquet") if path.name not in known and _is_whole(path)]


def _is_whole(path: Path) -> bool:
    """Whether a Parquet file has been written to its end."""
    return path.read_bytes()[-4:] == b"PAR1"


def test_an_executor_that_is_killed(make: Make) -> None:
    """An executor lost while it labels costs the shard that it was at; the run ends complete in the same start."""
    site = make(corpus(240), pace=50)
    start = submitted(site).reaches("after outcomes.infer", 5)
    os.kill(executors(start)[0], signal.SIGKILL)
    at = time.monotonic()
    start.ends(0)
    holds(site, "an executor killed", 1, at)


def test_a_task_killed_after_its_files_are_written(make: Make) -> None:
    """Files of a task that died before the job's commit are in no version of the table: its shard is labelled once more,
    and no row is doubled."""
    site = make(corpus(1200), pace=20)
    start = submitted(site).reaches("before outcomes.infer", 6)
    # An engine's step has ended, and others of its shard follow: the driver stands still from here on, so that the task's
    # file is whole and the driver has not heard of it.
    inferred = len(site.inferred)
    until(lambda: len(site.inferred) > inferred, "a step of an engine")
    start.signal(signal.SIGSTOP, group=True)
    until(lambda: bool(unlogged(site)), "a file of a task that is not committed")
    for pid in executors(start):
        os.kill(pid, signal.SIGKILL)
    at = time.monotonic()
    start.kill(everything=True)
    assert unlogged(site)
    site.runs()
    holds(site, "a task killed with its files written", 1, at)
