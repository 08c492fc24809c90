"""A deterministic engine without a model: for tests, dry runs and measuring the road around an engine.

Two environment variables let a test count from outside what happened in the workers: ``LAKELABEL_FAKE_INFERENCES``
names a file that gets a line with the text's sha256 for every inference, ``LAKELABEL_FAKE_LOADS`` one that gets a line
with the process id for every load. A line is one appending write, so that workers can share a file.

It also dies to order. Where ``extra.poison`` is a mark, a text that contains the mark followed by the name of a way to die
does that as it is inferred: ``segfault``, ``abort``, ``kill``, ``exit``, ``raise`` (EngineDied) or ``hang``. And a third
variable, ``LAKELABEL_FAKE_SICK``, names a file by which one executor is sick: the first worker that finds it missing
writes its parent's pid there, the daemon's, and every worker of that daemon kills itself in its first step.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import NoReturn

from lakelabel_udfs.engines.protocol import BadSettings, EngineDied
from lakelabel_udfs.outcome import Failure, Outcome
from lakelabel_udfs.scoring import predicted
from lakelabel_udfs.specs import EngineSpec, PromptSpec

INFERENCES = "LAKELABEL_FAKE_INFERENCES"
LOADS = "LAKELABEL_FAKE_LOADS"
SICK = "LAKELABEL_FAKE_SICK"

_CHARACTERS_PER_TOKEN = 4
_WINDOW = 64
_PER_STEP = 16


def fake_scores(text: str, labels: Sequence[str]) -> tuple[float, ...]:
    """Log-probabilities of the labels for this text: a function of the two alone. They share 0.2 to 0.9 of the whole."""
    content = _digest(text)
    logits = [6.0 * _unit(sha256(content + label.encode()).digest()) for label in labels]
    total = math.log(math.fsum(map(math.exp, logits)))
    log_mass = math.log(0.2 + 0.7 * _unit(content))
    return tuple(log_mass + logit - total for logit in logits)


def fake_label(text: str, labels: Sequence[str]) -> str:
    """The label that the fake engine gives this text."""
    scores = fake_scores(text, labels)
    return labels[max(range(len(labels)), key=scores.__getitem__)]


class LoadedFake:
    """The fake engine before any prompt; ``extra.milliseconds_per_document`` is how long an inference takes, and
    ``extra.poison`` the mark of the texts that it dies of."""

    name = "fake"

    def __init__(self, spec: EngineSpec) -> None:
        extra = json.loads(spec.extra)
        unknown = sorted(set(extra) - {"milliseconds_per_document", "poison"})
        if unknown:
            raise BadSettings(
                f"engine.extra.{unknown[0]}: the fake engine does not know it; remove it "
                "(it takes milliseconds_per_document and poison)"
            )
        self._seconds = float(extra.get("milliseconds_per_document", 0.0)) / 1000.0
        self._window = spec.window or _WINDOW
        self._max_characters = spec.max_model_len * _CHARACTERS_PER_TOKEN
        ways = "|".join(_DEATHS)
        self._poison = re.compile(f"{re.escape(extra['poison'])}({ways})") if "poison" in extra else None
        self._sick = _is_sick()
        _append(LOADS, f"{os.getpid()}\n")

    def bind(self, prompt: PromptSpec) -> FakeEngine:
        """Bind a prompt: only its labels and its overflow policy matter here."""
        return FakeEngine(prompt, self._max_characters, self._window, self._seconds, self._poison, self._sick)

    def close(self) -> None:
        """Nothing is held."""


class FakeEngine:
    """The fake engine bound to one prompt; outcomes leave it out of order, as they do a real one."""

    def __init__(
        self,
        prompt: PromptSpec,
        max_characters: int,
        window: int,
        seconds: float,
        poison: re.Pattern[str] | None,
        sick: bool,
    ) -> None:
        self.window = window
        self._labels = prompt.label_names
        self._cuts = prompt.overflow != "quarantine"
        self._max_characters = max_characters
        self._seconds = seconds
        self._poison = poison
        self._sick = sick
        self._texts: dict[int, str] = {}

    @property
    def in_flight(self) -> int:
        """Documents that were added and not returned."""
        return len(self._texts)

    def prepare(self, texts: Sequence[str]) -> list[str | Failure]:
        """Texts as they are, but for one that is blank (``empty``) or has more than 4 × max_model_len characters."""
        return [self._prepared(text) for text in texts]

    def _prepared(self, text: str) -> str | Failure:
        if not text.strip():
            return Failure("empty", "the text is blank")
        if len(text) > self._max_characters and not self._cuts:
            return Failure("too_long", f"the text has {len(text)} characters, and {self._max_characters} fit")
        return text

    def add(self, key: int, prepared: str) -> None:
        """Take one text in."""
        self._texts[key] = prepared

    def step(self) -> list[tuple[int, Outcome]]:
        """Label the 16 texts that have waited longest, the youngest of them first; die at one that is poison."""
        if self._sick:
            _kill()
        keys = list(self._texts)[:_PER_STEP]
        texts = {key: self._texts.pop(key) for key in reversed(keys)}
        inferred = 0
        deadly = None
        for text in texts.values():
            deadly = self._poison and self._poison.search(text)
            if deadly:
                break
            inferred += 1
        if self._seconds:
            time.sleep(self._seconds * inferred)
        _append(INFERENCES, "".join(f"{_digest(text).hex()}\n" for text in islice(texts.values(), inferred)))
        if deadly:
            _DEATHS[deadly[1]]()
        return [(key, self._labelled(text)) for key, text in texts.items()]

    def _labelled(self, text: str) -> Outcome:
        scores = fake_scores(text, self._labels)
        mass = min(1.0, math.fsum(map(math.exp, scores)))
        tokens = -(-min(len(text), self._max_characters) // _CHARACTERS_PER_TOKEN)
        return predicted(self._labels, scores, mass, "fake", (tokens, 0, 1))

    def abort(self) -> None:
        """Forget the texts in flight."""
        self._texts.clear()


def _kill() -> NoReturn:
    while True:  # the signal is on its way, and nothing else may happen
        os.kill(os.getpid(), signal.SIGKILL)


def _segfault() -> None:
    ctypes.string_at(0)


def _raise() -> None:
    raise EngineDied("the fake engine was told to die")


def _hang() -> NoReturn:
    while True:
        time.sleep(3600)


_DEATHS: Mapping[str, Callable[[], None]] = {
    "segfault": _segfault,
    "abort": os.abort,
    "kill": _kill,
    "exit": lambda: os._exit(1),
    "raise": _raise,
    "hang": _hang,
}


def _is_sick() -> bool:
    """Whether this process belongs to the sick executor; the first that asks makes its own executor the sick one."""
    path = os.environ.get(SICK)
    if not path:
        return False
    parent = str(os.getppid())
    draft = Path(f"{path}.{os.getpid()}")
    draft.write_text(parent)
    with suppress(FileExistsError):  # linked whole, so that nobody reads a file that is half written
        os.link(draft, path)
    draft.unlink()
    return Path(path).read_text() == parent


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "replace")).digest()


def _unit(digest: bytes) -> float:
    """A number from 0 (inclusive) to 1 (exclusive) made of the first 6 bytes of a digest."""
    return int.from_bytes(digest[:6], "big") / 2**48


def _append(variable: str, lines: str) -> None:
    """Append ``lines`` in one write to the file that an environment variable names, if it is set."""
    path = os.environ.get(variable)
    if path and lines:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, lines.encode())
        finally:
            os.close(file)
