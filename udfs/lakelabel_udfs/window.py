"""The continuous window: documents enter an engine as rows arrive and leave it as they finish, whatever batch they came in."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import count, islice
from typing import Any, TypeVar

from lakelabel_udfs.engines.protocol import Engine, EngineDied
from lakelabel_udfs.outcome import Failure, Outcome

K = TypeVar("K")

_UNWATCHED = nullcontext()

_READ_AHEAD = 32
"""Rows that are read and prepared at once: a tokeniser is quicker on several texts, and few are held in memory."""


def label_stream(
    engine: Engine, rows: Iterator[tuple[K, str]], stepping: AbstractContextManager[object] = _UNWATCHED
) -> Generator[tuple[K, Outcome], None, None]:
    """Yield exactly one outcome a row, as they finish, in any order.

    rows: (key, text); keys need not be unique, for each row is followed by a number of its own.
    stepping: entered around each step of the engine, and nothing else.

    Never more documents are in the engine than its window allows at that moment, and it is never waited for to run
    empty before the rows' end. A generator that is closed early leaves the engine without documents in flight.

    Raises EngineDied, also for an engine that loses a document or returns one that it was not given.
    """
    numbers = count()
    in_flight: dict[int, K] = {}
    ready: deque[tuple[K, Any | Failure]] = deque()
    exhausted = False
    try:
        while True:
            while len(in_flight) < engine.window:
                if not ready and not exhausted:
                    chunk = list(islice(rows, _READ_AHEAD))
                    exhausted = len(chunk) < _READ_AHEAD
                    prepared_texts = _prepared(engine, [text for _, text in chunk])
                    ready.extend((key, prepared) for (key, _), prepared in zip(chunk, prepared_texts, strict=True))
                if not ready:
                    break
                key, prepared = ready.popleft()
                if isinstance(prepared, Failure):
                    yield key, prepared
                    continue
                number = next(numbers)
                in_flight[number] = key
                engine.add(number, prepared)
            if not in_flight:
                if ready or not exhausted:
                    raise EngineDied("the engine holds nothing and yet has no room in its window")
                return
            with stepping:
                finished = engine.step()
            for number, outcome in finished:
                if number not in in_flight:
                    raise EngineDied(f"the engine returned document {number}, which is not in flight")
                yield in_flight.pop(number), outcome
            if engine.in_flight != len(in_flight):
                raise EngineDied(f"{len(in_flight)} documents are in flight, and the engine holds {engine.in_flight}")
    except EngineDied:
        in_flight.clear()  # nothing to take back from an engine that is dead
        raise
    finally:
        if in_flight:
            engine.abort()


def _prepared(engine: Engine, texts: list[str]) -> list[Any | Failure]:
    prepared = engine.prepare(texts) if texts else []
    if len(prepared) != len(texts):
        raise EngineDied(f"the engine prepared {len(prepared)} of {len(texts)} texts")
    return prepared
