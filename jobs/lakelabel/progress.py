"""Progress on stderr: a bar on a terminal, plain lines elsewhere. Nothing of a document is ever printed."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Reporter(Protocol):
    """Where a run says how far it is."""

    def say(self, text: str) -> None:
        """One line about a step."""
        ...

    def begin(self, documents: int) -> None:
        """Labelling begins, with so many documents to infer."""
        ...

    def advance(self, documents: int) -> None:
        """So many more are done."""
        ...


class Terminal:
    """Reports to a console on stderr; a context manager, so that a bar never outlives its run."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, markup=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("documents"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("label", visible=False)
        self._began = time.monotonic()
        self._done = self._total = 0

    def __enter__(self) -> Terminal:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print one line with the seconds since the start."""
        self._console.print(f"{time.monotonic() - self._began:7.1f} s  {text}", soft_wrap=True)

    def begin(self, documents: int) -> None:
        """Show the bar."""
        self._done, self._total = 0, documents
        self._progress.reset(self._task, total=documents, visible=True)

    def advance(self, documents: int) -> None:
        """Move the bar, or print a line where there is none."""
        self._done += documents
        self._progress.advance(self._task, documents)
        if self._progress.disable:
            self.say(f"labelled {self._done} of {self._total} documents")
