"""The adapter to vLLM where vLLM misbehaves: its engine is replaced by one that is told what to do."""

from __future__ import annotations

import math
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.scores import TRIE, prompt_of
from benchmarks.tiny_model import single_token_words
from lakelabel_udfs import classify
from lakelabel_udfs.classify import classify_batches
from lakelabel_udfs.engines.protocol import BadSettings, EngineDied
from lakelabel_udfs.engines.vllm import LoadedVllm, VllmEngine, _cache_tokens, _Limits
from lakelabel_udfs.outcome import Failure, Prediction
from lakelabel_udfs.prompt import Prompt
from lakelabel_udfs.specs import EngineSpec
from lakelabel_udfs.window import label_stream
from tests.engine.conftest import Bind


class Scripted:
    """Takes requests as vLLM does and answers them all at the next step; `answer` makes the scores."""

    def __init__(self) -> None:
        self.waiting: dict[str, tuple[dict[str, Any], Any]] = {}
        self.aborted: list[str] = []
        self.answer: Any = lambda candidates: dict.fromkeys(candidates, -3.0)

    def add_request(self, request: str, prompt: dict[str, Any], params: Any) -> None:
        self.waiting[request] = (prompt, params)

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting)

    def abort_request(self, requests: list[str]) -> None:
        self.aborted += requests
        for request in requests:
            self.waiting.pop(request, None)

    def step(self) -> list[Any]:
        waiting, self.waiting = self.waiting, {}
        return [self.output(request, params) for request, (_, params) in waiting.items()]

    def output(self, request: str, params: Any) -> Any:
        scores = self.answer(params.logprob_token_ids)
        flat = scores and SimpleNamespace(token_ids=[7, *scores], logprobs=[-0.1, *scores.values()])
        return SimpleNamespace(
            request_id=request, finished=True, num_cached_tokens=None, outputs=[SimpleNamespace(logprobs=flat)]
        )


@pytest.fixture
def vllm_engine() -> Scripted:
    return Scripted()


def adapter(
    engine: Scripted, tokenizer: Any, labels: tuple[str, ...] = ("invoice", "other"), **limits: Any
) -> VllmEngine:
    prompt = Prompt.of(tokenizer, prompt_of(labels), 8192)
    wanted = _Limits(**{"documents": 100, "tokens": 10_000, "fixed": False, **limits})
    return VllmEngine(engine, prompt, wanted, 0, count())


def outcomes(engine: VllmEngine, number: int = 3) -> list[Any]:
    return [outcome for _, outcome in label_stream(engine, iter([(place, f"text {place}") for place in range(number)]))]


@pytest.mark.parametrize("scores", [None, {}, {1: -1.0}, math.nan, math.inf, -math.inf])
def test_a_request_without_usable_scores_is_rejected(vllm_engine: Scripted, tokenizer: Any, scores: Any) -> None:
    """One document's failure, with its code; the others go on."""
    vllm_engine.answer = lambda candidates: dict.fromkeys(candidates, scores) if isinstance(scores, float) else scores
    engine = adapter(vllm_engine, tokenizer)
    assert [outcome.code for outcome in outcomes(engine)] == ["rejected"] * 3
    assert engine.in_flight == 0


def test_a_request_that_vllm_refuses_is_rejected_without_its_text(vllm_engine: Scripted, tokenizer: Any) -> None:
    """The message names the kind of error and never quotes it: it may hold the prompt."""

    def refuse(request: str, prompt: dict[str, Any], params: Any) -> None:
        raise ValueError("the secret text of the document")

    vllm_engine.add_request = refuse  # type: ignore[method-assign]
    (outcome,) = outcomes(adapter(vllm_engine, tokenizer), 1)
    assert isinstance(outcome, Failure)
    assert outcome.code == "rejected"
    assert "ValueError" in outcome.message
    assert "secret" not in outcome.message


def test_a_refused_second_request_takes_the_first_back(vllm_engine: Scripted, tokenizer: Any) -> None:
    """A document is settled once: what else it had in flight is aborted."""
    labels = tuple(single_token_words(tokenizer, 200))
    accept = vllm_engine.add_request

    def refuse_odd(request: str, prompt: dict[str, Any], params: Any) -> None:
        if int(request) % 2:
            raise ValueError
        accept(request, prompt, params)

    vllm_engine.add_request = refuse_odd  # type: ignore[method-assign]
    engine = adapter(vllm_engine, tokenizer, labels)
    assert len(engine.prompt.trie.queries(engine.prompt.trie.root)) == 2
    assert [outcome.code for outcome in outcomes(engine, 2)] == ["rejected"] * 2
    assert len(vllm_engine.aborted) == 2
    assert engine.in_flight == 0


def test_an_error_in_a_step_is_the_engines_death(vllm_engine: Scripted, tokenizer: Any) -> None:
    """Whatever its type: the core's state is unknown afterwards. A device's words are told; others may quote a prompt."""
    device = "CUDA error: an illegal memory access was encountered"
    for words, told in ((device, f": {device}"), ("bad request: document 0", "")):

        def fail(words: str = words) -> list[Any]:
            raise RuntimeError(words)

        vllm_engine.step = fail  # type: ignore[method-assign]
        with pytest.raises(EngineDied) as died:
            outcomes(adapter(vllm_engine, tokenizer))
        assert str(died.value) == f"vLLM failed in a step: RuntimeError{told}"


def test_lost_and_unknown_requests_are_the_engines_death(vllm_engine: Scripted, tokenizer: Any) -> None:
    """A document without an answer would be waited for for ever."""

    def lose() -> list[Any]:
        vllm_engine.waiting.clear()
        return []

    vllm_engine.step = lose  # type: ignore[method-assign]
    with pytest.raises(EngineDied, match="lost 3 requests"):
        outcomes(adapter(vllm_engine, tokenizer))
    other = Scripted()
    other.output = lambda request, params: SimpleNamespace(request_id="other", finished=True)  # type: ignore[method-assign]
    with pytest.raises(EngineDied, match="request other"):
        outcomes(adapter(other, tokenizer))


def test_a_stream_that_is_closed_early_aborts_in_vllm(vllm_engine: Scripted, tokenizer: Any) -> None:
    """The next task finds an engine without requests of this one."""
    engine = adapter(vllm_engine, tokenizer, documents=4)
    stream = label_stream(engine, iter([(place, "x") for place in range(10)]))
    next(stream)
    engine.add(10_000, [5, 6])
    stream.close()
    assert not vllm_engine.waiting
    assert engine.in_flight == 0
    assert all(isinstance(outcome, Prediction) for outcome in outcomes(engine))


def test_the_window_closes_at_tokens_or_documents(vllm_engine: Scripted, tokenizer: Any) -> None:
    """Three steps' worth of uncached tokens, or so many documents; one is always let in; a setting fixes it."""
    engine = adapter(vllm_engine, tokenizer, tokens=1)
    assert engine.window == 1
    engine.add(0, [5] * 100)
    assert engine.window == 1
    few = adapter(vllm_engine, tokenizer, documents=2)
    for key in range(2):
        assert few.window == key + 1
        few.add(key, [5])
    assert few.window == 2
    few.step()
    assert few.window == 1
    assert adapter(vllm_engine, tokenizer, documents=7, fixed=True).window == 7


def test_follow_up_passes_are_asked_for_where_labels_begin_alike(vllm_engine: Scripted, tokenizer: Any) -> None:
    """With all tokens equally likely, each branch of the trie is looked into, once a document."""
    engine = adapter(vllm_engine, tokenizer, TRIE)
    before, found = next(engine._numbers), outcomes(engine, 2)
    assert all(isinstance(outcome, Prediction) for outcome in found)
    assert next(engine._numbers) - before - 1 == 2 * 3, "the root and the branches of credit and debit"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": '{"max_num_sequences": 4}'}, r"engine\.extra\.max_num_sequences: vLLM .* does not know it"),
        ({"max_model_len": 1_000_000}, r"vLLM .* refuses these settings: .*max_model_len"),
        ({"model": None}, r"engine\.model is missing"),
        # Its cache holds 96 tokens, and a document may have more: it would wait in vLLM for ever.
        ({"extra": '{"num_gpu_blocks_override": 4}', "max_model_len": 128}, r"vLLM .* KV cache"),
    ],
)
def test_bad_settings_are_told_before_anything_is_loaded(
    spec: EngineSpec, changes: dict[str, Any], message: str
) -> None:
    """With the key, in one line of its own, instead of a trace of vLLM's."""
    from dataclasses import replace

    with pytest.raises(BadSettings, match=f"(?s){message}"):
        LoadedVllm(replace(spec, **changes))


def test_a_cache_holds_one_block_less_than_it_has() -> None:
    """What vLLM says of models that keep several caches comes before blocks times their size."""
    assert _cache_tokens(SimpleNamespace(num_gpu_blocks=5, block_size=32)) == 128
    assert _cache_tokens(SimpleNamespace(num_gpu_blocks=5, block_size=32, kv_cache_size_tokens=None)) == 128
    assert _cache_tokens(SimpleNamespace(num_gpu_blocks=5, block_size=32, kv_cache_size_tokens=80)) == 48


def test_a_document_that_the_cache_cannot_hold_is_too_long(
    bind: Bind, spec: EngineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never reaches vLLM, which would let it wait for ever; one that just fits is labelled."""
    prompt = prompt_of(("invoice", "other"))
    bind(prompt)
    loaded = classify._loaded.engine
    assert isinstance(loaded, LoadedVllm)
    monkeypatch.setattr("lakelabel_udfs.engines.vllm._cache_tokens", lambda cache: 256)
    engine = loaded.bind(prompt)
    own = engine.prompt.max_model_len - engine.prompt.budget
    texts = [" a" * (256 - own), " a" * (256 - own + 1)]
    fits, too_long = (
        outcome for _, outcome in sorted(label_stream(engine, iter(enumerate(texts))), key=lambda o: o[0])
    )
    assert isinstance(fits, Prediction)
    assert isinstance(too_long, Failure)
    assert too_long.code == "too_long"


def test_processes_that_could_outlive_the_worker_are_refused(spec: EngineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where vLLM cannot find the plugin an engine is kept to one process: a core and its workers would be orphans."""
    from dataclasses import replace

    monkeypatch.setattr("lakelabel_udfs.engines.vllm.guarded", lambda: False)
    with pytest.raises(BadSettings, match="outlive a worker"):
        LoadedVllm(replace(spec, tensor_parallel_size=2))
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    with pytest.raises(BadSettings, match="outlive a worker"):
        LoadedVllm(spec)


def test_one_load_serves_every_task_of_a_worker(bind: Bind, spec: EngineSpec) -> None:
    """Two calls as of two tasks, and another prompt: the engine that was there is used."""
    import pandas as pd

    bind(prompt_of(("invoice", "other")))
    engine = classify._loaded.engine
    terms: list[dict[str, float]] = []
    telemetry = SimpleNamespace(add=terms.append)
    row = pd.DataFrame({"doc_id": ["a"], "text": ["Pay."], "doc_hash": 1, "content_hash": "h", "prior_attempts": 0})
    row = row.assign(first_failed_at=pd.NaT)
    for labels in (("invoice", "other"), ("invoice", "other"), ("yes", "no")):
        (out,) = classify_batches(spec, prompt_of(labels), telemetry)(iter([row]))
        assert list(out["label"].isin(labels)) == [True]
    assert [term["loads"] for term in terms] == [0, 0, 0]
    assert classify._loaded.engine is engine
