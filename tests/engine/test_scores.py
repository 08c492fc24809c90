"""The scores are the model's: a tiny model by vLLM and by transformers, both in float32."""

from __future__ import annotations

import math
from typing import Any

import pytest

from benchmarks.scores import DOCUMENTS, TOLERANCE, TRIE, Reference, cases, differences, expected, prompt_of
from benchmarks.tiny_model import single_token_words
from lakelabel_udfs.outcome import Prediction
from lakelabel_udfs.specs import PromptSpec
from lakelabel_udfs.window import label_stream
from tests.engine.conftest import Bind


def labelled(engine: Any, texts: list[str]) -> dict[str, Prediction]:
    outcomes = dict(label_stream(engine, iter([(text, text) for text in texts])))
    assert all(isinstance(outcome, Prediction) for outcome in outcomes.values()), outcomes
    return outcomes  # type: ignore[return-value]


@pytest.mark.parametrize("case", ["1", "5", "128", "trie"])
def test_scores_equal_those_of_the_logits(bind: Bind, tokenizer: Any, logprobs: Reference, case: str) -> None:
    """Within 1e-3, for one label, five, as many as a request takes, and labels that begin alike."""
    prompt = cases(tokenizer)[case]
    assert len(prompt.labels) == {"1": 1, "5": 5, "128": 128, "trie": len(TRIE)}[case]
    found = list(differences(bind(prompt), logprobs))
    assert len(found) == len(DOCUMENTS)
    assert max(max(pair) for pair in found) < TOLERANCE["float32"]


def test_confidence_margin_and_mass_follow_from_the_scores(bind: Bind, tokenizer: Any, logprobs: Reference) -> None:
    """Softmax over the labels, lead over the second, and their share of the whole vocabulary, worked out here."""
    engine = bind(cases(tokenizer)["5"])
    outcome = labelled(engine, [DOCUMENTS[0]])[DOCUMENTS[0]]
    (document,) = engine.prepare([DOCUMENTS[0]])
    row = logprobs(engine.prompt.ids(document))  # type: ignore[arg-type]
    names = engine.prompt.trie.names
    probabilities = {name: math.exp(row[tokenizer.encode(f" {name}")[0]]) for name in names}
    mass = sum(probabilities.values())
    first, second = sorted(probabilities.values(), reverse=True)[:2]
    assert outcome.label == max(probabilities, key=probabilities.__getitem__)
    assert outcome.label_mass == pytest.approx(mass, rel=1e-3)
    assert outcome.confidence == pytest.approx(first / mass, rel=1e-3)
    assert outcome.margin == pytest.approx((first - second) / mass, rel=1e-3)
    assert outcome.confidence_source == "label_token"
    assert outcome.prompt_tokens == len(engine.prompt.ids(document))  # type: ignore[arg-type]


def test_a_tries_scores_worked_out_by_hand(bind: Bind, tokenizer: Any, logprobs: Reference) -> None:
    """A branch's probability is shared among its labels in the proportion that the model gives after the branch."""
    engine = bind(prompt_of(("credit", "credit note", "credit card", "statement")))
    text = DOCUMENTS[1]
    outcome = labelled(engine, [text])[text]
    (document,) = engine.prepare([text])
    ids = engine.prompt.ids(document)  # type: ignore[arg-type]
    credit, note, card, statement = (
        tokenizer.encode(f" {word}")[0] for word in ("credit", "note", "card", "statement")
    )
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    root, after = logprobs(ids), logprobs([*ids, credit])
    branch = math.log(sum(math.exp(after[token]) for token in (end, note, card)))
    want = [root[credit] + after[token] - branch for token in (end, note, card)] + [root[statement]]
    assert outcome.scores == pytest.approx(want, abs=1e-3)
    assert outcome.confidence_source == "trie"
    assert outcome.label_mass == pytest.approx(math.exp(root[credit]) + math.exp(root[statement]), abs=1e-3)
    assert outcome.prompt_tokens == 2 * len(ids) + 1, "a second pass for the branch"


def test_more_labels_than_a_request_takes(bind: Bind, tokenizer: Any, logprobs: Reference) -> None:
    """300 labels, some of which begin alike, take several requests and are scored as by transformers."""
    words = single_token_words(tokenizer, 280)
    engine = bind(prompt_of((*words, *(f"{word} {other}" for word in words[:4] for other in words[-5:]))))
    text = DOCUMENTS[2]
    outcome = labelled(engine, [text])[text]
    (document,) = engine.prepare([text])
    want = expected(engine.prompt, document, logprobs)  # type: ignore[arg-type]
    assert len(outcome.scores) == 300
    assert outcome.scores == pytest.approx(want.scores, abs=1e-3)
    assert outcome.label == want.label


def test_outcomes_do_not_depend_on_the_batch(bind: Bind, tokenizer: Any) -> None:
    """Together, in another order, and each alone: the same labels, and in float32 the same scores.

    The prefix cache is emptied in between, or else what is compared would be one computation with itself.
    """
    engine = bind(cases(tokenizer)["trie"])
    texts = [f"{DOCUMENTS[number % 4]} {number} " * (1 + number % 7) for number in range(40)]
    together = labelled(engine, texts)
    assert engine._engine.reset_prefix_cache()
    reversed_order = labelled(engine, texts[::-1])
    assert engine._engine.reset_prefix_cache()
    alone: dict[str, Prediction] = {}
    for text in texts:
        alone |= labelled(engine, [text])
    assert len({outcome.label for outcome in together.values()}) > 1
    for text in texts:
        for other in (reversed_order[text], alone[text]):
            assert other.label == together[text].label
            assert other.scores == pytest.approx(together[text].scores, abs=1e-4)


def test_the_shared_head_is_cached(bind: Bind, tokenizer: Any) -> None:
    """From the second document on, whole blocks of the head cost nothing."""
    prompt: PromptSpec = cases(tokenizer)["128"]
    engine = bind(prompt)
    labelled(engine, ["The first one."])
    outcome = labelled(engine, ["Quite another."])["Quite another."]
    assert outcome.cached_tokens == engine.prompt.cacheable(32) > 300
