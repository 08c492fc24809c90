"""One driver owns a prompt_version at a time. The lease saves work; correctness rests on the ledger and the fence."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from lakelabel.delta import retried
from lakelabel.errors import Fenced, LeaseHeld
from lakelabel.host import Here
from lakelabel.points import around
from lakelabel.tables import Tables, in_list, values_sql
from lakelabel_udfs.schema import LABELS, LEASES, QUARANTINE, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_GRACE_SECONDS = 300
"""Clocks of two machines are not compared more finely than this."""

_LAST_BEAT_SECONDS = 30.0
"""A beat that takes longer is stuck, and no reason to wait for ever."""

_AGAIN_SECONDS = 1.0

_POOL = "lakelabel-beat"


def _nothing_held() -> tuple[str | None, float | None]:
    return None, None


class Lease:
    """A taken lease. Use as a context manager: it beats on a thread of its own and is given back at the end, unless it was
    lost or something of this driver may still be writing.

    ``holding`` says for which run engines are held and for how many slot-seconds so far; beats carry it, so that what a
    run has cost survives its driver. ``on_lost`` is called on the beat's thread, again and again, once the lease is lost.
    """

    def __init__(self, spark: SparkSession, tables: Tables, prompt_version: str, seconds: int, here: Here) -> None:
        self._spark = spark
        self._tables = tables
        self._here = here
        self._seconds = seconds
        self._writes = 0
        self._counting = threading.Lock()
        self._beaten = time.monotonic()
        self._lost: str | None = None
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="lakelabel-lease", daemon=True)
        self._is_taken_over = False
        self.is_fencing = True
        self.holding: Callable[[], tuple[str | None, float | None]] = _nothing_held
        self.on_lost: Callable[[], None] = lambda: None
        self.prompt_version = prompt_version
        self.owner = str(uuid.uuid4())
        self.epoch = 0

    @classmethod
    def take(
        cls,
        spark: SparkSession,
        tables: Tables,
        prompt_version: str,
        seconds: int,
        say: Callable[[str], None] = lambda _: None,
        wait: Callable[[float], object] = time.sleep,
    ) -> Lease:
        """Take the lease of a prompt_version, or raise LeaseHeld with owner, host and the age of its last beat.

        It is taken over at once from a process that ended here, or whose last beat is older than the lease and five more
        minutes; else after ``seconds`` without a new beat on this driver's own clock, spent in ``wait``.
        """
        lease = cls(spark, tables, prompt_version, seconds, Here.read())
        last = lease._last()
        held = last is not None and last["event"] != "released"
        if os.environ.get("LAKELABEL_NO_LEASE"):
            # For tests of what the ledger is worth alone: neither the holder nor the fence stands in the way.
            lease.is_fencing = held = False
        if last is not None and held:
            held = lease._wait_out(last, say, wait)
        lease._claim(1 if last is None else last["epoch"] + 1)
        lease._is_taken_over = held
        return lease

    def check(self) -> None:
        """Raise Fenced once this driver must do nothing more: it was taken over, or could not beat for too long."""
        if self._lost is None and time.monotonic() - self._beaten > self._seconds:
            self._lost = f"could not be renewed for {self._seconds} s"
        if self._lost is not None:
            raise Fenced(f"the lease of {self.prompt_version} {self._lost}; this driver does nothing more")

    def next_txn(self) -> int:
        """The next txnVersion for a fenced write: grows within an epoch and with every epoch."""
        with self._counting:
            self._writes += 1
            return (self.epoch << 32) + self._writes

    def held_before(self, run_id: str) -> float:
        """Slot-seconds that earlier owners held engines for a run, as their last beats told."""
        rows = (
            self._tables.read(self._spark, LEASES)
            .where(f"prompt_version = {in_list([self.prompt_version])} AND run_id = {in_list([run_id])}")
            .where(f"epoch < {self.epoch}")
            .groupBy("epoch")
            .max("slot_seconds")
            .collect()
        )
        return float(sum(row[1] or 0.0 for row in rows))

    def __enter__(self) -> Lease:
        # Beats begin first: on a busy cluster the two small commits of a fence may take as long as a short lease.
        self._beating.start()
        try:
            if self._is_taken_over:
                self._set_fence()
        except BaseException:
            self._ended.set()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        self._ended.set()
        # A beat that came after it would say that the lease is still held.
        self._beating.join(_LAST_BEAT_SECONDS)
        # Ended by force, a commit may still be under way: only a takeover fences it.
        if self._lost is not None or self._beating.is_alive() or isinstance(error, (Fenced, KeyboardInterrupt)):
            return
        try:
            self._append("released")
        except (PySparkException, Py4JError, ConnectionError):
            # With a JVM that is gone nothing can be given back; what ended the run is what its user must hear.
            if error is None:
                raise

    def _beat(self) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        with suppress(PySparkException, Py4JError, ConnectionError):
            # Under a fair scheduler a beat never queues behind the tasks of a MERGE.
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", _POOL)
        while not self._ended.wait(self._seconds / 3):
            # A beat that does not get through is made up for by the next one; the lease outlives two lost in a row.
            with suppress(PySparkException, Py4JError, ConnectionError):
                began = time.monotonic()
                self._renew(began)
            try:
                self.check()
            except Fenced:
                self.on_lost()
                break
        # What began just after it was told is told again: between two steps of a plan nothing is there to be cancelled.
        while self._lost is not None and not self._ended.wait(_AGAIN_SECONDS):
            self.on_lost()

    def _renew(self, began: float) -> None:
        """Append a beat, and look whether a newer owner has come. A stopped driver that goes on finds out by its clock."""
        if began - self._beaten > self._seconds:
            return
        self._append("beat")
        self._beaten = began
        newer = self._own().where(f"epoch > {self.epoch}").select("epoch").limit(1).collect()
        if newer and self.is_fencing:
            self._lost = "was taken over"

    def _wait_out(self, last: Row, say: Callable[[str], None], wait: Callable[[float], object]) -> bool:
        """Return once the lease may be taken, whether its owner still stands in it, or raise LeaseHeld."""
        age = time.time() - last["at"].timestamp()
        seconds = max(self._seconds, last["lease_seconds"] or 0)
        if self._here.is_gone(last) or age >= seconds + _GRACE_SECONDS:
            return True
        if self._here.is_running(last):
            raise self._held(last, age)
        say(
            f"pid {last['pid']} on {last['host']} holds the lease of {self.prompt_version}; "
            f"waiting up to {seconds} s to see whether it still beats"
        )
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            wait(min(5.0, seconds / 10))
            now = self._last()
            if now is not None and (now["epoch"], now["event"]) == (last["epoch"], "released"):
                return False
            if now is None or (now["epoch"], now["at"]) != (last["epoch"], last["at"]):
                raise self._held(now or last, 0.0)
        return True

    def _held(self, last: Row, age: float) -> LeaseHeld:
        return LeaseHeld(
            f"{self.prompt_version} is being labelled by pid {last['pid']} on {last['host']} (owner {last['owner']}, "
            f"last beat {age:.0f} s ago); wait for it, or stop it there"
        )

    def _own(self) -> DataFrame:
        return self._tables.read(self._spark, LEASES).where(f"prompt_version = {in_list([self.prompt_version])}")

    def _last(self) -> Row | None:
        rows = self._own().orderBy("epoch", "at", ascending=False).limit(1).collect()
        return rows[0] if rows else None

    def _claim(self, epoch: int) -> None:
        # Two INSERTs never conflict; of two MERGEs for the same epoch Delta lets one insert, and its owner is read back.
        claim = values_sql(self._columns(), [self._row("taken", epoch)])
        self._beaten = time.monotonic()
        with around("leases.take"):
            retried(
                lambda: self._spark.sql(
                    f"MERGE INTO {self._tables.name(LEASES)} t USING {claim} s "
                    f"ON t.prompt_version = {in_list([self.prompt_version])} AND t.epoch = s.epoch "
                    f"WHEN NOT MATCHED THEN INSERT ({', '.join(self._columns())}, at) "
                    f"VALUES ({', '.join(f's.{column}' for column in self._columns())}, current_timestamp())"
                ).collect()
            )
        last = self._last()
        if last is None or last["owner"] != self.owner:
            host = "another driver" if last is None else f"pid {last['pid']} on {last['host']}"
            raise LeaseHeld(
                f"{self.prompt_version} was taken by {host} at the same moment; wait for it, or stop it there"
            )
        self.epoch = epoch

    def _set_fence(self) -> None:
        """Append nothing under this epoch's txnVersion: Delta then skips every MERGE that the former owner still sends."""
        for table in (LABELS, QUARANTINE):
            with around(f"{table.name}.fence"):
                # Against the very driver that it is to keep out, which may be in the middle of a MERGE.
                retried(partial(self._append_nothing, table))

    def _append_nothing(self, table: Table) -> None:
        writer = self._tables.read(self._spark, table).limit(0).write.format("delta").mode("append")
        options = {"txnAppId": self.prompt_version, "txnVersion": str(self.next_txn())}
        self._tables.write(writer.options(**options), table)

    def _append(self, event: str) -> None:
        row = self._spark.sql(
            f"SELECT *, current_timestamp() AS at FROM {values_sql(self._columns(), [self._row(event, self.epoch)])}"
        )
        with around({"beat": "leases.beat", "released": "leases.release"}[event]):
            self._tables.append(row, LEASES)

    def _row(self, event: str, epoch: int) -> tuple[str | int | float | None, ...]:
        here = self._here
        return (
            *(self.prompt_version, epoch, self.owner, event),
            *(here.host, here.boot_id, here.pid, here.pid_started),
            *(self._seconds, *self.holding()),
        )

    @staticmethod
    def _columns() -> tuple[str, ...]:
        return tuple(name for name in LEASES.names if name != "at")
