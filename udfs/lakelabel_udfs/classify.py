"""The function that ``mapInPandas`` runs: batches of the queue in, one outcome a row out, by an engine that stays loaded.

The engine lives in this module, once a Python worker, across tasks. It stays for as long as the worker does: Spark
closes an idle worker after a minute, and a task that fails takes its worker along. All this holds only because the
module is imported in the worker: a function that travels by value would bring a new, empty cache with every task.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import datetime, timezone
from itertools import chain, islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

from lakelabel_udfs.engines.protocol import BadSettings, Engine, EngineDied, EngineLoadFailed, LoadedEngine
from lakelabel_udfs.outcome import Failure, Outcome
from lakelabel_udfs.slot import slot, sum_name
from lakelabel_udfs.specs import EngineSpec, PromptSpec
from lakelabel_udfs.watchdog import signed, watched
from lakelabel_udfs.window import label_stream

if TYPE_CHECKING:
    import pandas as pd

_ROWS_PER_BATCH = 1000
"""Rows of an output batch: large enough that Arrow's cost per batch does not show, small enough to leave soon."""

_CLOSING_SECONDS = 30.0
"""How long a dead engine is given to let go of its device."""

_DTYPES = {
    "doc_id": "object",
    "doc_hash": "Int64",
    "content_hash": "object",
    "prior_attempts": "Int32",
    "first_failed_at": "datetime64[ns]",
    "label": "object",
    "confidence": "Float64",
    "confidence_source": "object",
    "margin": "Float64",
    "label_mass": "Float64",
    "scores": "object",
    "failure_code": "object",
    "failure_message": "object",
    "prompt_tokens": "Int64",
    "cached_tokens": "Int64",
    "completion_tokens": "Int64",
    "decided_at": "datetime64[us, UTC]",
    "engine": "object",
}
"""Columns of ``schema.OUTPUT_SCHEMA`` in its order, as pandas holds them on their way to Arrow."""

_PASSED_ON = tuple(_DTYPES)[:5]
_JUDGED = tuple(_DTYPES)[5:16]
_Passed = tuple[Any, ...]
_SUMS = (
    *("loads", "load_seconds", "engine_seconds", "task_seconds"),
    *("documents", "prompt_tokens", "uncached_tokens"),
)


class Telemetry(Protocol):
    """Takes sums once a task, as a Spark accumulator does: ``loads``, ``load_seconds``, ``engine_seconds`` (inside
    ``step``), ``task_seconds``, ``documents``, ``prompt_tokens``, ``uncached_tokens``, and as ``slot HOST executor ID`` the
    documents that the engine there has answered: one that is blank or too long never reaches it, and proves no slot well.
    Telemetry only: a task that Spark runs twice counts twice."""

    def add(self, term: dict[str, float]) -> None:
        """Add one task's sums."""
        ...


def classify_batches(
    engine: EngineSpec, prompt: PromptSpec, telemetry: Telemetry | None = None
) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Return the function for ``mapInPandas``: reads ``schema.INPUT_COLUMNS``, yields ``schema.OUTPUT_SCHEMA``.

    One row out for each row in, in any order. In the task it raises EngineDied, whose text ends in the slot's name,
    BadSettings and BadPrompt, and nothing else. It loads the engine at the first row: a partition without rows costs nothing.
    """

    def run(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        # This closure travels by value; the module that it imports here is the worker's own, with its engine.
        from lakelabel_udfs.classify import label_batches

        return label_batches(engine, prompt, telemetry, batches)

    return run


class _Loaded:
    """The worker's one engine, and the prompts bound to it."""

    def __init__(self) -> None:
        self.spec: EngineSpec | None = None
        self.engine: LoadedEngine | None = None
        self.bound: dict[PromptSpec, Engine] = {}

    def close(self) -> None:
        engine, self.spec, self.engine, self.bound = self.engine, None, None, {}
        if engine is not None:
            engine.close()


_loaded = _Loaded()


def _load(spec: EngineSpec) -> LoadedEngine:
    if spec.kind == "fake":
        from lakelabel_udfs.engines.fake import LoadedFake

        return LoadedFake(spec)
    from lakelabel_udfs.engines.vllm import LoadedVllm

    return LoadedVllm(spec)


def _bound(spec: EngineSpec, prompt: PromptSpec, sums: dict[str, float]) -> tuple[Engine, str]:
    """The engine bound to ``prompt``, and its name; loaded if the worker holds another or none.

    Raises EngineLoadFailed, and BadSettings or BadPrompt for what the user can mend."""
    try:
        if _loaded.engine is None or _loaded.spec != spec:
            _loaded.close()
            started = time.monotonic()
            _loaded.engine, _loaded.spec = _load(spec), spec
            sums["loads"] += 1
            sums["load_seconds"] += time.monotonic() - started
        if prompt not in _loaded.bound:
            _loaded.bound[prompt] = _loaded.engine.bind(prompt)
    except BadSettings:
        raise
    except Exception as error:  # whatever a model's files, a driver or a device raise
        first = str(error).strip().partition("\n")[0]
        raise EngineLoadFailed(f"the engine did not load: {type(error).__name__}: {first[:300]}") from error
    return _loaded.bound[prompt], _loaded.engine.name


def label_batches(
    spec: EngineSpec, prompt: PromptSpec, telemetry: Telemetry | None, batches: Iterator[pd.DataFrame]
) -> Iterator[pd.DataFrame]:
    """Label the rows of ``batches``; see ``classify_batches``."""
    started = time.monotonic()
    sums = dict.fromkeys(_SUMS, 0.0)
    answered = 0
    try:
        rows = _rows(batches)
        first = next(rows, None)
        if first is None:
            return
        with signed(slot()):
            engine, name = _bound(spec, prompt, sums)
            with (
                watched(spec.stall_seconds) as steps,
                closing(label_stream(engine, chain((first,), rows), steps)) as outcomes,
            ):
                while labelled := list(islice(outcomes, _ROWS_PER_BATCH)):
                    sums["documents"] += len(labelled)
                    answered += sum(told.completion_tokens > 0 for _, told in labelled)
                    sums["prompt_tokens"] += sum(told.prompt_tokens for _, told in labelled)
                    sums["uncached_tokens"] += sum(told.prompt_tokens - told.cached_tokens for _, told in labelled)
                    sums["engine_seconds"] = steps.seconds
                    yield _frame(labelled, name)
    except BadSettings:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a tokenizer or an engine raises, it is raised anew
        _close_in_time()
        # Spark prints causes too; those of a load are no document's, and somebody must mend it.
        raise _told(error) from (error.__cause__ if isinstance(error, EngineLoadFailed) else None)
    finally:
        sums["task_seconds"] = time.monotonic() - started
        if telemetry is not None:
            telemetry.add({**sums, sum_name(): float(answered)})


def _close_in_time() -> None:
    """Close the engine before the task fails, so that the next worker finds its device free; but a dead one may never be
    done with closing, and what is left of it ends with this worker."""

    def close() -> None:
        with suppress(Exception):  # the engine's death is what the task must tell
            _loaded.close()

    closing_thread = threading.Thread(target=close, name="lakelabel-close", daemon=True)
    closing_thread.start()
    closing_thread.join(_CLOSING_SECONDS)


def _told(error: Exception) -> EngineDied:
    """The error in words of ours, followed by the slot: Spark does not say where an exception of a worker's came from, and
    a foreign message may quote a document, so that no more is told of it than its type and place."""
    if isinstance(error, EngineDied):
        return type(error)(f"{error} [{slot()}]")
    at = traceback.extract_tb(error.__traceback__)[-1]
    return EngineDied(f"{type(error).__name__} at {PurePath(at.filename).name}:{at.lineno} in {at.name} [{slot()}]")


def _rows(batches: Iterator[pd.DataFrame]) -> Iterator[tuple[_Passed, str]]:
    for batch in batches:
        passed = zip(*(batch[column] for column in _PASSED_ON), strict=True)
        yield from zip(passed, map(_text, batch["text"]), strict=True)


def _text(text: object) -> str:
    if not isinstance(text, str):
        # An empty text in its place would become a failure of the content, and be copied for ever.
        raise TypeError(f"the queue holds {type(text).__name__} where the text of a document to infer should be")
    return text


def _frame(labelled: Sequence[tuple[_Passed, Outcome]], engine: str) -> pd.DataFrame:
    """One output batch.

    Nullable dtypes throughout: where a value is missing, Spark must see NULL and never NaN, which is greater than
    every number there. Times carry their zone, so that no session's zone is applied to them.
    """
    # Here, since the driver imports this module as well, and pandas takes as long to import as all the rest.
    import pandas as pd

    now = datetime.now(timezone.utc)
    columns: dict[str, list[Any]] = {name: [] for name in _DTYPES}
    for passed, outcome in labelled:
        for name, value in zip(_PASSED_ON, passed, strict=True):
            columns[name].append(value)
        for name, value in _judged(outcome).items():
            columns[name].append(value)
        columns["decided_at"].append(now)
        columns["engine"].append(engine)
    frame: pd.DataFrame = pd.DataFrame({name: pd.Series(columns[name], dtype=dtype) for name, dtype in _DTYPES.items()})
    return frame


def _judged(outcome: Outcome) -> dict[str, Any]:
    """The output columns that an outcome fills, NULL as None."""
    judged: dict[str, Any] = dict.fromkeys(_JUDGED)
    for name in _JUDGED[-3:]:
        judged[name] = getattr(outcome, name)
    if isinstance(outcome, Failure):
        judged["failure_code"], judged["failure_message"] = outcome.code, outcome.message
    else:
        judged.update({name: getattr(outcome, name) for name in _JUDGED[:5]})
        judged["scores"] = list(outcome.scores)
    return judged
