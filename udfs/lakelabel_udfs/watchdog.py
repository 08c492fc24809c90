"""Ends a worker whose engine hangs: a step that does not return within ``engine.stall_seconds`` is the last of its process.

A hung step cannot be interrupted from inside, and a worker that waits for ever holds its slot for ever. What ends it is
SIGKILL, so that nothing of the engine can stand in the way; the driver sees a worker that died, and why: see ``HANG``.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HANG = re.compile(r"lakelabel: the engine did not return from a step for |Timeout \(\d+:\d\d:\d\d")
"""What the text of Spark's exception says of a worker that was ended here, the second where the hang held the GIL.

It is there only where ``spark.sql.execution.pyspark.udf.faulthandler.enabled`` is on: Spark then quotes a file of the
worker's, and the stack of a crash stands in the same place.
"""

_STDERR = 2


class Steps:
    """The steps of an engine, each a block: ``with steps: engine.step()``. Sums their wall seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.since: float | None = None
        """When the step under way began, by the monotonic clock; None between steps."""

    def __enter__(self) -> None:
        self.since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        if self.since is not None:
            self.seconds += time.monotonic() - self.since
        self.since = None


@contextmanager
def signed(slot: str) -> Iterator[None]:
    """Whatever kills this process within the block, Spark's text of its death has a line that ends in ``[slot]``: Spark
    says where a task failed only if nothing around the failure, as a write to Delta, has words of its own."""
    descriptor = _open_log()
    if descriptor == _STDERR:
        yield
        return
    try:
        os.write(descriptor, f"lakelabel: a worker of [{slot}]\n".encode())
        # Spark's own registration writes from the beginning of the file, and would take the line's place.
        faulthandler.enable(descriptor)
        yield
    finally:
        faulthandler.disable()
        os.close(descriptor)


@contextmanager
def watched(stall_seconds: float) -> Iterator[Steps]:
    """Within the block a step that takes longer than ``stall_seconds`` ends the process, by SIGKILL, with the stacks of
    all threads on stderr. Nothing but steps is watched: a load may take minutes.

    A step that holds the GIL stops the watching thread too, so a timer of faulthandler's, which needs no GIL, stands
    behind it; it takes the place of any other such timer (``spark.python.worker.tracebackDumpIntervalSeconds``). It goes by
    the clock: a process that stands still (SIGSTOP, a frozen container) for longer than ``stall_seconds`` may be ended as it
    wakes.
    """
    steps, done = Steps(), threading.Event()
    tick = min(1.0, stall_seconds / 4)
    descriptor = _open_log()

    def arm() -> None:
        # It writes to a descriptor that has to stay open, and can leave a word for Spark nowhere else.
        faulthandler.dump_traceback_later(stall_seconds + 2 * tick, exit=True, file=descriptor)

    def watch() -> None:
        seen, ticks = None, 0
        while not done.wait(tick):
            arm()
            since = steps.since
            # Ticks are counted, not the clock's seconds: those that a process slept through, for a while, are no stall.
            ticks = ticks + 1 if since is not None and since == seen else 0
            seen = since
            if ticks * tick > stall_seconds:
                # Should stderr be stuck or the disk full, the timer that was armed just now ends the process instead.
                _end(stall_seconds, {_STDERR, descriptor})

    thread = threading.Thread(target=watch, daemon=True, name="lakelabel-watchdog")
    arm()
    thread.start()
    try:
        yield steps
    finally:
        done.set()
        thread.join()
        faulthandler.cancel_dump_traceback_later()
        if descriptor != _STDERR:
            os.close(descriptor)


def _open_log() -> int:
    """The file that Spark quotes when this worker dies, open; stderr where Spark was not told to keep one."""
    folder = os.environ.get("PYTHON_FAULTHANDLER_DIR")
    if not folder or not Path(folder).is_dir():
        return _STDERR
    return os.open(Path(folder) / str(os.getpid()), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _end(stall_seconds: float, descriptors: set[int]) -> None:
    faulthandler.dump_traceback(file=_STDERR, all_threads=True)
    line = f"lakelabel: the engine did not return from a step for {stall_seconds:g} s\n"
    for descriptor in descriptors:
        os.write(descriptor, line.encode())
    os.kill(os.getpid(), signal.SIGKILL)
