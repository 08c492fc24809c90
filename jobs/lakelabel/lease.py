"""One driver owns a prompt_version at a time. The lease saves work; correctness rests on the ledger and the fence."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from lakelabel.delta import retried
from lakelabel.errors import LeaseHeld
from lakelabel.tables import Tables, in_list, values_sql
from lakelabel_udfs.schema import LABELS, LEASES, QUARANTINE

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_GRACE_SECONDS = 300
"""Clocks of two machines are not compared more finely than this."""


@dataclass(frozen=True)
class Here:
    """This process, so that another on the same host can see whether it is still there."""

    host: str
    boot_id: str
    pid: int
    pid_started: int

    @classmethod
    def read(cls) -> Here:
        """This process as the kernel names it. Within one boot and pid namespace a pid and its start name a process."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = Path("/proc/self/ns/pid").readlink()
        pid = os.getpid()
        return cls(socket.gethostname(), f"{boot} {namespace}", pid, _started(pid) or 0)

    def is_gone(self, owner: Row) -> bool:
        """Whether the owner ran here and its process has ended."""
        ran_here: bool = owner["boot_id"] == self.boot_id
        return ran_here and _started(owner["pid"]) != owner["pid_started"]


def _started(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command's name may hold spaces and brackets; the fields after the last bracket begin with the third.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


class Lease:
    """A taken lease. Use as a context manager: it beats on a thread of its own and is given back at the end."""

    def __init__(self, spark: SparkSession, tables: Tables, prompt_version: str, seconds: int, here: Here) -> None:
        self._spark = spark
        self._tables = tables
        self._here = here
        self._seconds = seconds
        self._writes = 0
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="lakelabel-lease", daemon=True)
        self.prompt_version = prompt_version
        self.owner = str(uuid.uuid4())
        self.epoch = 0

    @classmethod
    def take(cls, spark: SparkSession, tables: Tables, prompt_version: str, seconds: int) -> Lease:
        """Take the lease of a prompt_version, or raise LeaseHeld with owner, host and the age of its last beat."""
        lease = cls(spark, tables, prompt_version, seconds, Here.read())
        last = lease._last()
        if last is not None and last["event"] != "released":
            age = time.time() - last["at"].timestamp()
            if not lease._here.is_gone(last) and age < seconds + _GRACE_SECONDS:
                raise LeaseHeld(
                    f"{prompt_version} is being labelled by pid {last['pid']} on {last['host']} (owner {last['owner']}, "
                    f"last beat {age:.0f} s ago); wait for it, or stop it there"
                )
        lease._claim(1 if last is None else last["epoch"] + 1)
        if last is not None and last["event"] != "released":
            lease._set_fence()
        return lease

    def next_txn(self) -> int:
        """The next txnVersion for a fenced write: grows within an epoch and with every epoch."""
        self._writes += 1
        return (self.epoch << 32) + self._writes

    def __enter__(self) -> Lease:
        self._beating.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        self._ended.set()
        # A beat that came after it would say that the lease is still held.
        self._beating.join()
        try:
            self._append("released")
        except (PySparkException, Py4JError, ConnectionError):
            # With a JVM that is gone nothing can be given back; what ended the run is what its user must hear.
            if error is None:
                raise

    def _beat(self) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        while not self._ended.wait(self._seconds / 3):
            # A beat that does not get through is made up for by the next one; the lease outlives two lost in a row.
            with suppress(PySparkException, Py4JError, ConnectionError):
                self._append("beat")

    def _last(self) -> Row | None:
        rows = (
            self._tables.read(self._spark, LEASES)
            .where(f"prompt_version = {in_list([self.prompt_version])}")
            .orderBy("epoch", "at", ascending=False)
            .limit(1)
            .collect()
        )
        return rows[0] if rows else None

    def _claim(self, epoch: int) -> None:
        # Two INSERTs never conflict; of two MERGEs for the same epoch Delta lets one insert, and its owner is read back.
        claim = values_sql(self._columns(), [self._row("taken", epoch)])
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
            nothing = self._tables.read(self._spark, table).limit(0)
            writer = nothing.write.format("delta").mode("append").option("txnAppId", self.prompt_version)
            self._tables.write(writer.option("txnVersion", self.next_txn()), table)

    def _append(self, event: str) -> None:
        row = self._spark.sql(
            f"SELECT *, current_timestamp() AS at FROM {values_sql(self._columns(), [self._row(event, self.epoch)])}"
        )
        self._tables.append(row, LEASES)

    def _row(self, event: str, epoch: int) -> tuple[str, int, str, str, str, str, int, int]:
        here = self._here
        return (self.prompt_version, epoch, self.owner, event, here.host, here.boot_id, here.pid, here.pid_started)

    @staticmethod
    def _columns() -> tuple[str, ...]:
        return tuple(name for name in LEASES.names if name != "at")
