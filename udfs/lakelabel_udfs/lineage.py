"""The processes above this one, as Linux tells them in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def ancestors() -> Iterator[int]:
    """The pids of parent, grandparent and so on, up to the first process of the machine or the container."""
    pid = os.getppid()
    while pid > 1:
        yield pid
        try:
            status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it ended meanwhile, or is hidden
            return
        # pid (name) state parent …; a name may hold anything, parentheses too.
        pid = int(status.rpartition(")")[2].split()[1])


def arguments(pid: int) -> list[str]:
    """The words of that process's command line; none where it ended, or is hidden."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:
        return []
