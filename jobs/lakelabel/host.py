"""This process as another one can know it: whether an owner that ran here is still there."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakelabel_udfs.lineage import status

if TYPE_CHECKING:
    from pyspark.sql import Row


@dataclass(frozen=True)
class Here:
    """Host and process. Within one boot and pid namespace a pid and its start name a process."""

    host: str
    boot_id: str
    pid: int
    pid_started: int

    @classmethod
    def read(cls) -> Here:
        """This process as the kernel names it; ``LAKELABEL_HOST`` lets a test stand for another host."""
        pretended = os.environ.get("LAKELABEL_HOST")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = f"{boot} {Path('/proc/self/ns/pid').readlink()}"
        pid = os.getpid()
        _, started = _stat(pid) or ("", 0)
        return cls(pretended or socket.gethostname(), pretended or namespace, pid, started)

    def is_gone(self, owner: Row) -> bool:
        """Whether the owner ran here and its process has ended."""
        return self._ran_here(owner) and _stat_of(owner) is None

    def is_running(self, owner: Row) -> bool:
        """Whether the owner runs here in another process; one that was stopped (SIGSTOP) does not run. What this process
        itself took before and never gave back, its beats tell."""
        stat = _stat_of(owner) if self._ran_here(owner) and owner["pid"] != self.pid else None
        return stat is not None and stat[0] not in "tT"

    def _ran_here(self, owner: Row) -> bool:
        return bool(owner["boot_id"] == self.boot_id)


def _stat_of(owner: Row) -> tuple[str, int] | None:
    stat = _stat(owner["pid"])
    return stat if stat is not None and stat[1] == owner["pid_started"] else None


def _stat(pid: int) -> tuple[str, int] | None:
    """State and start time (clock ticks since boot) of a process, None where it has ended."""
    fields = status(pid)
    return None if fields is None or fields[0] in "ZX" else (fields[0], int(fields[19]))
