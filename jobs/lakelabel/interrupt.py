"""Ctrl-C and SIGTERM: the first asks a run to end in good order, the second ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType


class Interrupt:
    """Whether this process was asked to stop. ``on_stop`` is called once, on a thread of its own: a signal comes in the
    middle of whatever call into the JVM is under way, and another call on that thread would break it."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.on_stop: Callable[[], None] = lambda: None

    def install(self) -> None:
        """Take SIGINT and SIGTERM over. PySpark's own handler cancels jobs from within the call, and fails in a trace."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._signalled)
            signal.signal(signal.SIGTERM, self._signalled)

    def __bool__(self) -> bool:
        return self._asked.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep, but for no longer than until the process is asked to stop; whether it was."""
        return self._asked.wait(seconds)

    def ask(self) -> None:
        """Ask for the end, as the first signal does."""
        if not self._asked.is_set():
            self._asked.set()
            threading.Thread(target=self.on_stop, name="lakelabel-stop", daemon=True).start()

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        if self._asked.is_set():
            raise KeyboardInterrupt
        self.ask()
