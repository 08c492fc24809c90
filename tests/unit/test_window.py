"""The continuous window, with an engine that is told how to behave."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelabel_udfs.engines.protocol import EngineDied
from lakelabel_udfs.outcome import Failure, Outcome
from lakelabel_udfs.window import label_stream


class Scripted:
    """Finishes a random part of what it holds at each step, in random order; `sabotage` spoils what a step returns."""

    def __init__(self, window: int = 4, seed: int = 0, sabotage: str = "") -> None:
        self.window, self.sabotage = window, sabotage
        self.held: dict[int, str] = {}
        self.most = self.steps = 0
        self.aborted = False
        self._random = random.Random(seed)

    @property
    def in_flight(self) -> int:
        return len(self.held)

    def prepare(self, texts: Sequence[str]) -> list[str | Failure]:
        prepared = [text or Failure("empty", "blank") for text in texts]
        return prepared[1:] if self.sabotage == "prepare" else prepared

    def add(self, key: int, prepared: str) -> None:
        self.held[key] = prepared
        self.most = max(self.most, len(self.held))

    def step(self) -> list[tuple[int, Outcome]]:
        self.steps += 1
        keys = self._random.sample(sorted(self.held), self._random.randint(0, len(self.held)))
        done: list[tuple[int, Outcome]] = [(key, Failure("rejected", self.held.pop(key))) for key in keys]
        if self.sabotage == "lose":
            return done[1:]
        if self.sabotage == "unknown":
            return [(9999, Failure("rejected", "who?"))]
        return done + done[:1] if self.sabotage == "twice" else done

    def abort(self) -> None:
        self.held.clear()
        self.aborted = True


@given(st.lists(st.text(max_size=3)), st.integers(1, 50), st.integers(0, 10**6))
def test_every_row_gets_exactly_one_outcome_of_its_own(texts: list[str], window: int, seed: int) -> None:
    """For any texts, window and order of finishing; keys come back with the outcome of their own text."""
    engine = Scripted(window, seed)
    outcomes = list(label_stream(engine, iter(enumerate(texts))))
    assert sorted(key for key, _ in outcomes) == list(range(len(texts)))
    for key, outcome in outcomes:
        assert isinstance(outcome, Failure)
        assert outcome.message == (texts[key] or "blank")
    assert engine.most <= window
    assert not engine.aborted


def test_the_engine_is_stepped_before_all_rows_are_read() -> None:
    """Rows enter as others leave: reading goes on only as the window empties."""
    engine = Scripted(window=2)
    read = []

    def rows() -> Iterator[tuple[int, str]]:
        for number in range(1000):
            read.append(number)
            yield number, "x"

    stream = label_stream(engine, rows())
    next(stream)
    assert len(read) <= 32
    assert sum(1 for _ in stream) == 999
    assert engine.most == 2


def test_equal_keys_are_kept_apart() -> None:
    """A document id that stands twice gives two outcomes."""
    assert len(list(label_stream(Scripted(), iter([("same", "a"), ("same", "b")])))) == 2


@pytest.mark.parametrize("sabotage", ["lose", "unknown", "twice", "prepare"])
def test_an_engine_that_loses_or_invents_a_document_is_dead(sabotage: str) -> None:
    """A wrong count of outcomes never passes for a result."""
    with pytest.raises(EngineDied):
        list(label_stream(Scripted(window=8, sabotage=sabotage), iter((number, "x") for number in range(100))))


def test_an_engine_without_room_is_dead() -> None:
    """A window of 0 would wait for ever."""
    with pytest.raises(EngineDied, match="no room"):
        list(label_stream(Scripted(window=0), iter([(0, "x")])))


def test_a_stream_that_is_closed_early_leaves_the_engine_empty() -> None:
    """Spark may stop reading; the next task must not meet this one's documents."""
    engine = Scripted()
    stream = label_stream(engine, iter((number, "x") for number in range(100)))
    next(stream)
    stream.close()
    assert engine.aborted
    assert not engine.held


def test_rows_that_fail_to_come_leave_the_engine_empty() -> None:
    """An error of what feeds the stream is raised as it is."""

    def rows() -> Iterator[tuple[int, str]]:
        for number in range(40):
            yield number, "x"
        raise OSError("the socket closed")

    engine = Scripted()
    with pytest.raises(OSError, match="the socket closed"):
        list(label_stream(engine, rows()))
    assert not engine.held


def test_every_step_and_nothing_else_is_inside_the_block_that_is_given() -> None:
    """So that steps can be timed and watched; a row that is slow to come is no step."""

    class Stepping:
        entered = depth = 0

        def __enter__(self) -> None:
            self.entered, self.depth = self.entered + 1, self.depth + 1

        def __exit__(self, *_: object) -> None:
            self.depth -= 1

    class Watched(Scripted):
        def step(self) -> list[tuple[int, Outcome]]:
            assert stepping.depth == 1
            return super().step()

    def rows() -> Iterator[tuple[int, str]]:
        for number in range(100):
            assert stepping.depth == 0
            yield number, "x"

    engine, stepping = Watched(), Stepping()
    for _ in label_stream(engine, rows(), stepping):
        assert stepping.depth == 0
    assert stepping.entered == engine.steps
