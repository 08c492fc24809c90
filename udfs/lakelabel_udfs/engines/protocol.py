"""What the label loop asks of an engine. One document in, one outcome out; how many passes lie between is its own affair.

Loading and binding are apart: a load is expensive and shared by every prompt, binding a prompt to it is cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from lakelabel_udfs.outcome import Failure, Outcome
from lakelabel_udfs.specs import PromptSpec


class EngineDied(RuntimeError):
    """The engine cannot go on: the task must fail, and its worker's engine must not be used again."""


class EngineLoadFailed(EngineDied):
    """The engine did not come up, before it saw any document: the fault of the slot or the settings. The text holds none."""


class BadSettings(ValueError):
    """A setting cannot work here: a user's mistake, found before any document. The text names key, value and remedy."""


class BadPrompt(BadSettings):
    """The prompt cannot work with this engine's tokenizer or context."""


class Engine(Protocol):
    """A loaded engine bound to one prompt.

    Only the thread that calls ``step`` calls ``add`` and ``abort``. ``prepare`` is pure, holds no engine state and may
    run on another thread (tokenisers release the GIL).
    """

    @property
    def window(self) -> int:
        """How many documents may be in flight (added and not yet returned) at this moment; at least 1 when none is."""
        ...

    @property
    def in_flight(self) -> int:
        """How many documents it holds: added, and neither returned nor aborted."""
        ...

    def prepare(self, texts: Sequence[str]) -> list[Any | Failure]:
        """Make texts ready for ``add``, one result a text; a text that can never be labelled becomes its failure."""
        ...

    def add(self, key: int, prepared: Any) -> None:
        """Submit one prepared document under a key that is unique among those in flight. Raises EngineDied."""
        ...

    def step(self) -> list[tuple[int, Outcome]]:
        """Do one step of work; the outcomes that it finished, in any order. Raises EngineDied."""
        ...

    def abort(self) -> None:
        """Forget every document in flight: their outcomes will not be returned."""
        ...


class LoadedEngine(Protocol):
    """An engine with its model loaded, before any prompt."""

    name: str
    """Engine and version, as the rows will say it: ``vllm 0.32.0``."""

    def bind(self, prompt: PromptSpec) -> Engine:
        """Bind a prompt. Raises BadPrompt."""
        ...

    def close(self) -> None:
        """Give back what the engine holds; neither it nor what was bound to it is used afterwards."""
        ...
