"""Processes as Linux tells them in /proc: those above this one, and what is said of any."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def ancestors() -> Iterator[int]:
    """The pids of parent, grandparent and so on, up to the first process of the machine or the container."""
    pid = os.getppid()
    while pid > 1:
        yield pid
        fields = status(pid)
        if fields is None:
            return
        pid = int(fields[1])


def status(pid: int) -> list[str] | None:
    """What stands in ``/proc/PID/stat`` from the third field on (proc(5)): state, parent, …, the start in clock ticks since
    boot at index 19. None of a process that has ended, or is hidden."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # pid (name) state …; a name may hold anything, parentheses too.
    return text.rpartition(")")[2].split()


def arguments(pid: int) -> list[str]:
    """The words of that process's command line; none where it ended, or is hidden."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:
        return []
