"""The function for mapInPandas, called as Spark calls it, with the fake engine and engines that fail."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakelabel_udfs import classify
from lakelabel_udfs.classify import classify_batches
from lakelabel_udfs.engines import fake
from lakelabel_udfs.engines.fake import LOADS, fake_label
from lakelabel_udfs.engines.protocol import BadSettings, EngineDied, EngineLoadFailed
from lakelabel_udfs.schema import INPUT_COLUMNS, OUTPUT_SCHEMA
from lakelabel_udfs.slot import slot
from lakelabel_udfs.specs import EngineSpec, LabelSpec, PromptSpec

NAMES = ("invoice", "contract", "other")
PROMPT = PromptSpec("v", "i", tuple(LabelSpec(name) for name in NAMES))
SPEC = EngineSpec("fake", None, "fake", None, max_model_len=100)
ARROW = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "ARRAY<DOUBLE>": pa.list_(pa.float64()),
}
COLUMNS = dict(column.strip().split(" ") for column in OUTPUT_SCHEMA.split(","))


@pytest.fixture(autouse=True)
def loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Each test begins in a worker without an engine; the file counts loads."""
    classify._loaded.close()
    monkeypatch.setenv(LOADS, str(tmp_path / "loads"))
    yield tmp_path / "loads"
    classify._loaded.close()


class Sums:
    def __init__(self) -> None:
        self.terms: list[dict[str, float]] = []

    def add(self, term: dict[str, float]) -> None:
        self.terms.append(term)


def frame(texts: Sequence[str | None], start: int = 0) -> pd.DataFrame:
    """A batch as Spark makes it of the queue's columns."""
    numbers = range(start, start + len(texts))
    failed_at = [datetime(2024, 3, 31, 1, 30) if number % 2 else None for number in numbers]
    made = pd.DataFrame(
        {
            "doc_id": [f"d{number}" for number in numbers],
            "doc_hash": pd.Series([number * 2**40 - 2**62 for number in numbers], dtype="int64"),
            "content_hash": [f"h{number}" for number in numbers],
            "text": pd.Series(texts, dtype="object"),
            "prior_attempts": pd.Series([number % 3 for number in numbers], dtype="int32"),
            "first_failed_at": pd.Series(failed_at, dtype="datetime64[ns]"),
        }
    )
    assert tuple(made.columns) == INPUT_COLUMNS
    return made


def labelled(batches: Sequence[pd.DataFrame], **options: Any) -> list[dict[str, Any]]:
    """The rows that come out, by way of Arrow with the declared types, NULL as None and NaN as NaN."""
    rows: list[dict[str, Any]] = []
    schema = pa.schema([(name, ARROW[type_]) for name, type_ in COLUMNS.items()])
    for out in classify_batches(SPEC, PROMPT, **options)(iter(batches)):
        assert list(out.columns) == list(COLUMNS)
        assert 0 < len(out) <= 1000
        for name in ("confidence", "margin", "label_mass"):
            assert out[name].dtype == "Float64", "a plain float column can hold NaN where NULL is meant"
        rows += pa.Table.from_pandas(out, schema=schema, preserve_index=False).to_pylist()
    return rows


def test_every_row_comes_back_with_what_it_brought() -> None:
    """The identity passes through unchanged; a prediction has its grounds and no failure."""
    before = datetime.now(timezone.utc)
    rows = {row["doc_id"]: row for row in labelled([frame(["one", "two"]), frame(["three"], start=2)])}
    assert sorted(rows) == ["d0", "d1", "d2"]
    row = rows["d1"]
    assert row["label"] == fake_label("two", NAMES)
    assert (row["doc_hash"], row["content_hash"], row["prior_attempts"]) == (2**40 - 2**62, "h1", 1)
    assert row["first_failed_at"] == datetime(2024, 3, 31, 1, 30, tzinfo=timezone.utc)
    assert rows["d0"]["first_failed_at"] is None
    assert before <= row["decided_at"] <= datetime.now(timezone.utc)
    assert row["engine"] == "fake"
    assert row["confidence_source"] == "fake"
    assert len(row["scores"]) == len(NAMES)
    assert row["failure_code"] is None
    assert row["failure_message"] is None
    assert 0 < row["confidence"] <= 1


def test_a_failure_has_null_and_never_nan() -> None:
    """In Spark NaN is greater than every number, so `confidence >= 0.5` would hold for a failure."""
    rows = {row["doc_id"]: row for row in labelled([frame(["fine", "x" * 401, "\t", " "])])}
    assert [rows[f"d{number}"]["failure_code"] for number in range(4)] == [None, "too_long", "empty", "empty"]
    for number in (1, 2, 3):
        row = rows[f"d{number}"]
        assert all(
            row[name] is None for name in ("label", "confidence", "confidence_source", "margin", "label_mass", "scores")
        )
        assert (row["prompt_tokens"], row["cached_tokens"], row["engine"]) == (0, 0, "fake")
        assert row["failure_message"]


def test_a_queue_without_a_text_fails_the_task() -> None:
    """Taken for an empty text it would become a failure of the content, and be copied for ever."""
    with pytest.raises(EngineDied, match=r"^TypeError at classify\.py:\d+ in _text \["):
        labelled([frame(["fine", None])])


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text() | st.just("<|im_end|>") | st.just("\u202e\x00")), st.data())
def test_any_texts_in_any_split_give_one_row_each(texts: list[str], data: st.DataObject) -> None:
    """Whatever the batches, empty ones included: exactly one outcome a row, under its own doc_id."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(texts)), max_size=4)))
    bounds = [0, *cuts, len(texts)]
    batches = [frame(texts[a:b], start=a) for a, b in itertools.pairwise(bounds)]
    rows = labelled(batches)
    assert sorted(row["doc_id"] for row in rows) == sorted(f"d{number}" for number in range(len(texts)))
    for row in rows:
        text = texts[int(row["doc_id"][1:])]
        assert row["label"] == (fake_label(text, NAMES) if text.strip() and len(text) <= 400 else None)


def test_many_rows_leave_in_batches_of_at_most_a_thousand() -> None:
    """Results leave while later rows are still to come."""
    asked = 0

    def batches() -> Iterator[pd.DataFrame]:
        nonlocal asked
        for start in range(0, 5000, 500):
            asked += 1
            yield frame([f"text {number}" for number in range(start, start + 500)], start)

    stream = classify_batches(SPEC, PROMPT)(batches())
    assert len(next(stream)) == 1000
    assert asked <= 3
    assert sum(map(len, stream)) == 4000


def test_an_empty_partition_loads_nothing(loads: Path) -> None:
    """Spark calls the function for empty partitions as well."""
    sums = Sums()
    assert labelled([], telemetry=sums) == []
    assert labelled([frame([])], telemetry=sums) == []
    assert not loads.exists()
    assert [term["loads"] for term in sums.terms] == [0, 0]


def test_one_engine_serves_every_task_and_prompt_of_a_worker(loads: Path) -> None:
    """The second task and another prompt load nothing; another engine spec replaces the engine."""
    sums = Sums()
    other = PromptSpec("w", "i", (LabelSpec("x"), LabelSpec("y")))
    for prompt in (PROMPT, PROMPT, other):
        list(classify_batches(SPEC, prompt, sums)(iter([frame(["a", "b"])])))
    assert len(loads.read_text().splitlines()) == 1
    assert [term["loads"] for term in sums.terms] == [1, 0, 0]
    assert [term["documents"] for term in sums.terms] == [2, 2, 2]
    assert all(0 <= term["engine_seconds"] <= term["task_seconds"] for term in sums.terms)
    changed = EngineSpec("fake", None, "fake", None, max_model_len=101)
    list(classify_batches(changed, PROMPT)(iter([frame(["a"])])))
    assert len(loads.read_text().splitlines()) == 2


def test_the_function_finds_the_workers_engine_when_it_travels_by_value(loads: Path) -> None:
    """Spark pickles it for every task; a cache that travelled along would be empty each time."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    for _ in range(3):
        run = cloudpickle.loads(cloudpickle.dumps(classify_batches(SPEC, PROMPT)))
        assert len(list(run(iter([frame(["a"])])))) == 1
    assert len(loads.read_text().splitlines()) == 1


def test_a_dead_engine_fails_the_task_and_is_never_used_again(loads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EngineDied propagates with what telemetry there is, and the next task loads anew."""

    def die(self: fake.FakeEngine) -> list[Any]:
        raise EngineDied("CUDA error")

    sums = Sums()
    with monkeypatch.context() as patch:
        patch.setattr(fake.FakeEngine, "step", die)
        with pytest.raises(EngineDied) as died:
            list(classify_batches(SPEC, PROMPT, sums)(iter([frame(["a"])])))
    assert str(died.value) == f"CUDA error [{slot()}]"
    assert len(sums.terms) == 1
    assert len(labelled([frame(["a"])])) == 1
    assert len(loads.read_text().splitlines()) == 2


def test_a_dead_engine_that_hangs_as_it_is_closed_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker ends with its task, and so does whatever is left of the engine."""
    goes_on = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(classify, "_CLOSING_SECONDS", 0.05)
        patch.setattr(fake.LoadedFake, "close", lambda _: goes_on.wait(30))
        patch.setattr(fake.FakeEngine, "step", lambda _: 1 / 0)
        with pytest.raises(EngineDied, match="ZeroDivisionError"):
            list(classify_batches(SPEC, PROMPT)(iter([frame(["a"])])))
    goes_on.set()


def test_a_foreign_error_is_told_without_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may quote a document, and so may those of its causes; its type, its place and the slot do not."""

    def choke(self: fake.FakeEngine, texts: Sequence[str]) -> list[Any]:
        try:
            raise KeyError(texts[0])
        except KeyError as error:
            raise UnicodeError(f"cannot read {texts[0]}") from error

    monkeypatch.setattr(fake.FakeEngine, "prepare", choke)
    with pytest.raises(EngineDied) as died:
        list(classify_batches(SPEC, PROMPT)(iter([frame(["SECRET"])])))
    assert re.fullmatch(rf"UnicodeError at test_classify\.py:\d+ in choke \[{re.escape(slot())}\]", str(died.value))
    assert "SECRET'" not in "".join(traceback.format_exception(died.value))


def test_a_load_that_fails_is_told_from_a_document_that_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the load or the prompt's binding raises: its type and first line, cut short. The user's mistakes stay theirs."""
    sums = Sums()
    for place in ("__init__", "bind"):
        with monkeypatch.context() as patch:

            def fail(*_: object) -> None:
                raise MemoryError(f"CUDA out of memory{'!' * 1000}\nand a second line")

            patch.setattr(fake.LoadedFake, place, fail)
            with pytest.raises(EngineLoadFailed) as failed:
                list(classify_batches(SPEC, PROMPT, sums)(iter([frame(["the text of a document"])])))
        assert str(failed.value).startswith("the engine did not load: MemoryError: CUDA out of memory!!!")
        assert len(str(failed.value)) < 400
        assert "second line" not in str(failed.value)
    assert [term["documents"] for term in sums.terms] == [0, 0]
    unknown = EngineSpec("fake", None, "fake", None, extra='{"speed": 1}')
    with pytest.raises(BadSettings, match=r"engine\.extra\.speed"):
        list(classify_batches(unknown, PROMPT)(iter([frame(["a"])])))


def test_documents_are_counted_for_the_slot_that_labelled_them() -> None:
    """Under the slot's name, so that the driver knows which have ever labelled one; what never reached the engine, for it is
    blank or too long, says nothing of it."""
    sums = Sums()
    labelled([frame(["a", "b", " ", "x" * 401])], telemetry=sums)
    assert [(term["documents"], term[f"slot {slot()}"]) for term in sums.terms] == [(4, 2)]


def test_a_step_that_hangs_ends_the_worker() -> None:
    """The spec's stall_seconds are what the watchdog is told."""
    program = (
        "import pandas as pd\n"
        "from lakelabel_udfs.classify import classify_batches\n"
        "from lakelabel_udfs.specs import EngineSpec, LabelSpec, PromptSpec\n"
        "row = pd.DataFrame({'doc_id': ['a'], 'doc_hash': 1, 'content_hash': 'h', 'text': ['@@hang'],"
        " 'prior_attempts': 0, 'first_failed_at': pd.NaT})\n"
        """spec = EngineSpec('fake', None, 'fake', None, stall_seconds=1.0, extra='{"poison": "@@"}')\n"""
        "list(classify_batches(spec, PromptSpec('v', 'i', (LabelSpec('a'), LabelSpec('b'))))(iter([row])))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert ended.stderr.endswith("lakelabel: the engine did not return from a step for 1 s\n")


def test_a_task_that_is_stopped_early_leaves_a_usable_engine(loads: Path) -> None:
    """A LIMIT closes the generator; the next task on the same engine gets its own documents only."""
    stream = classify_batches(SPEC, PROMPT)(iter([frame([f"text {number}" for number in range(3000)])]))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    rows = labelled([frame(["a", "b"], start=9000)])
    assert sorted(row["doc_id"] for row in rows) == ["d9000", "d9001"]
    assert len(loads.read_text().splitlines()) == 1


def test_importing_the_function_pulls_in_nothing_heavy() -> None:
    """The driver imports it; pandas, vllm, torch and transformers are the worker's."""
    code = (
        "import sys, lakelabel_udfs.classify, lakelabel_udfs.engines.vllm, lakelabel_udfs.engines.fake;"
        "print([name for name in ('pandas', 'vllm', 'torch', 'transformers', 'tokenizers', 'pyspark', 'mlflow')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
