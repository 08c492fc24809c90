"""What can end a run, told apart by type, each with the exit code that the command line returns for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

_SHOWN_VALUE = 80
"""Characters of a bad value that a message shows: enough to recognise it, and never a whole template or prompt."""


_PASSWORD = re.compile(r"(?<=://)[^/@\s:]*:[^/@\s]*@")
"""User and password in an address, which no message may repeat."""


def shown(value: object) -> str:
    """Return `value` as one short line: strings quoted, control characters escaped, long values cut in the middle."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = _PASSWORD.sub("***:***@", escaped(repr(str(value) if isinstance(value, PurePath) else value)))
    if len(text) <= _SHOWN_VALUE:
        return text
    head = (_SHOWN_VALUE - 1) * 2 // 3
    return f"{text[:head]}…{text[head + 1 - _SHOWN_VALUE :]}"


def escaped(text: str) -> str:
    """Return `text` with everything that could break or forge a line of output escaped; printable characters stay."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


@dataclass(frozen=True)
class Problem:
    """One thing wrong with the settings, a task file or an argument.

    key: dotted, as the user wrote it (`engine.max_model_len`, `task.labels[2].name`).
    value: what stood there; `MISSING` where nothing did.
    remedy: what to do, as an imperative without a full stop.
    """

    key: str
    value: object
    remedy: str

    def __str__(self) -> str:
        what = "is missing" if self.value is MISSING else f"is {shown(self.value)}"
        return escaped(f"{self.key} {what}; {self.remedy}")


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()
"""Stands for the value of a key that was not given."""


class LakelabelError(Exception):
    """Anything that ends a run; `exit_code` is what the command line returns."""

    exit_code = 1


class RunFailed(LakelabelError):
    """The run failed after it had begun to write; starting it again resumes it."""

    exit_code = 1


class Interrupted(RunFailed):
    """A signal asked for the end; what was accepted is committed, and starting again goes on."""

    def __init__(self, text: str = "interrupted; start again to go on") -> None:
        super().__init__(text)


class SettingsError(LakelabelError):
    """Settings or arguments are wrong, and nothing was touched.

    One error carries one or more problems, and its text has one line for each, so that a file with three mistakes
    is mended in one go: `SettingsError(key, value, remedy)` for one, `SettingsError.of(problems)` for several.
    """

    exit_code = 2

    def __init__(self, key: str, value: object, remedy: str, *more: Problem) -> None:
        self.problems: tuple[Problem, ...] = (Problem(key, value, remedy), *more)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> SettingsError:
        """Return one error for all of `problems` (at least one)."""
        first, *rest = problems
        return cls(first.key, first.value, first.remedy, *rest)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the constructor's arguments: an exception's default is its message alone, which does not rebuild."""
        first = self.problems[0]
        return (type(self), (first.key, first.value, first.remedy, *self.problems[1:]))


class PromptRefused(LakelabelError):
    """The prompt cannot work with this model, and nothing was touched; the text names key, value and remedy."""

    exit_code = 2


class RunUnfinished(LakelabelError):
    """Another run must come to its end first, and nothing was touched; the text names it and says how."""

    exit_code = 2


class Stopped(LakelabelError):
    """Stopped on purpose, with everything accepted so far kept: a later start goes on."""

    exit_code = 3


class LeaseHeld(Stopped):
    """Another driver holds the lease of this prompt_version and still beats."""


class Fenced(Stopped):
    """This driver lost its lease while it ran: a newer epoch writes now."""
