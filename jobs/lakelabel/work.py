"""What the steps of one start share: session, job, tables, ledger, lease, clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from lakelabel.delta import retried
from lakelabel.interrupt import Interrupt
from lakelabel.job import Job
from lakelabel.lease import Lease
from lakelabel.ledger import Ledger, Run
from lakelabel.points import around
from lakelabel.progress import Reporter
from lakelabel.report import Clock
from lakelabel.tables import Tables, in_list
from lakelabel_udfs.schema import QUEUE
from lakelabel_udfs.telemetry import Telemetry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Work:
    """One start of a job under its lease."""

    spark: SparkSession
    job: Job
    lease: Lease
    reporter: Reporter
    telemetry: Telemetry
    interrupt: Interrupt = field(default_factory=Interrupt)
    slots: int = 1
    clock: Clock = field(default_factory=Clock)
    began: float = field(default_factory=time.monotonic)

    @property
    def tables(self) -> Tables:
        """The tables that the job writes."""
        return self.job.tables

    @property
    def ledger(self) -> Ledger:
        """The ledger of those tables; it writes for as long as the lease is this driver's."""
        return Ledger(self.spark, self.job.tables, self.lease.check)

    @contextmanager
    def cancellable(self) -> Iterator[None]:
        """Within the block this thread's jobs may be cancelled, as a plan's may be."""
        self.spark.sparkContext.addJobTag(self._tag)
        try:
            yield
        finally:
            with suppress(Py4JError, ConnectionError):
                self.spark.sparkContext.removeJobTag(self._tag)

    def labels_here(self) -> None:
        """This thread's jobs label: they may be cancelled as a whole, and share executors fairly with commits."""
        with suppress(Py4JError, ConnectionError):  # a JVM that is gone is told by the job itself
            self.spark.sparkContext.addJobTag(self._tag)
            self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", "lakelabel-label")

    def commits_here(self) -> None:
        """This thread's jobs commit: they share executors fairly with those that label, and are never cancelled."""
        with suppress(Py4JError, ConnectionError):
            self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", "lakelabel-commit")

    def cancel_labels(self) -> None:
        """Cancel what this start has in flight, but for commits and beats. A worker that is cancelled is killed."""
        with suppress(Py4JError, ConnectionError):
            self.spark.sparkContext.cancelJobsWithTag(self._tag)

    @property
    def _tag(self) -> str:
        return f"lakelabel-{self.lease.owner}"

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the seconds of the block to one step of the clock."""
        began = time.monotonic()
        try:
            yield
        finally:
            setattr(self.clock, step, getattr(self.clock, step) + time.monotonic() - began)

    def drop_queue(self, run: Run) -> None:
        """Delete the queue of a run that needs it no more: partitions as a whole, so no file is rewritten."""
        self.lease.check()
        statement = f"DELETE FROM {self.tables.name(QUEUE)} WHERE run_id = {in_list([run.run_id])}"
        with around("queue.drop"):
            retried(lambda: self.spark.sql(statement).collect())


def sql_map(values: dict[str, int] | dict[str, float], suffix: str) -> str:
    """Names and numbers of ours as an SQL map; the suffix is that of the literals, L or D."""
    return "map(" + ", ".join(f"'{name}', {value}{suffix}" for name, value in values.items()) + ")"
