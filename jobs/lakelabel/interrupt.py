"""Ctrl-C and SIGTERM: the first asks a run to end in good order, the second ends it as an error would, the third at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType

_STDERR = 2
_AGAIN_SECONDS = 1.0


class Interrupt:
    """Whether this process was asked to stop. ``on_stop`` is called on a thread of its own, for a signal comes in the
    middle of whatever call into the JVM is under way, and another call on that thread would break it; and it is called every
    second, for between two steps of a plan there is nothing that it could cancel."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._signals = 0
        self._first: SimpleQueue[None] = SimpleQueue()
        self.on_stop: Callable[[], None] = lambda: None

    def install(self) -> None:
        """Take SIGINT and SIGTERM over. PySpark's own handler cancels jobs from within the call, and fails in a trace."""
        if threading.current_thread() is threading.main_thread():
            threading.Thread(target=self._listen, name="lakelabel-stop", daemon=True).start()
            signal.signal(signal.SIGINT, self._signalled)
            signal.signal(signal.SIGTERM, self._signalled)

    @property
    def asked(self) -> bool:
        """Whether the process was asked to stop."""
        return self._asked.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep, but for no longer than until the process is asked to stop; whether it was."""
        return self._asked.wait(seconds)

    def ask(self) -> None:
        """Ask for the end, as the first signal does."""
        self._asked.set()
        self.on_stop()

    def _listen(self) -> None:
        self._first.get()
        while True:
            self.ask()
            time.sleep(_AGAIN_SECONDS)

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals == 1:
            # Of all that wakes another thread, this alone may be called while the same call is under way further down.
            self._first.put(None)
        elif self._signals == 2:
            raise KeyboardInterrupt
        else:
            # A thread that hangs in the JVM would be waited for when the interpreter ends.
            os.write(_STDERR, b"error: ended at once; start again to go on\n")
            os._exit(1)
