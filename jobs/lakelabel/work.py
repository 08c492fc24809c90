"""What the steps of one start share: session, job, tables, ledger, lease, clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakelabel.job import Job
from lakelabel.lease import Lease
from lakelabel.ledger import Ledger, Run
from lakelabel.progress import Reporter
from lakelabel.report import Clock
from lakelabel.tables import Tables, in_list
from lakelabel_udfs.schema import QUEUE
from lakelabel_udfs.telemetry import Telemetry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 1
"""One label job is in flight at a time, so one engine works."""


@dataclass(frozen=True)
class Work:
    """One start of a job under its lease."""

    spark: SparkSession
    job: Job
    lease: Lease
    reporter: Reporter
    telemetry: Telemetry
    clock: Clock = field(default_factory=lambda: Clock(slots=SLOTS))
    began: float = field(default_factory=time.monotonic)

    @property
    def tables(self) -> Tables:
        """The tables that the job writes."""
        return self.job.tables

    @property
    def ledger(self) -> Ledger:
        """The ledger of those tables."""
        return Ledger(self.spark, self.job.tables)

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
        self.spark.sql(f"DELETE FROM {self.tables.name(QUEUE)} WHERE run_id = {in_list([run.run_id])}")


def sql_map(values: dict[str, int] | dict[str, float], suffix: str) -> str:
    """Names and numbers of ours as an SQL map; the suffix is that of the literals, L or D."""
    return "map(" + ", ".join(f"'{name}', {value}{suffix}" for name, value in values.items()) + ")"
