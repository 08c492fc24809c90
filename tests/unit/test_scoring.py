"""The label trie and a document's walk through it, against probabilities that are written out."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelabel_udfs.engines.protocol import BadPrompt
from lakelabel_udfs.outcome import Failure, Prediction
from lakelabel_udfs.scoring import MAX_CANDIDATES, LabelTrie, Query, Walk, predicted

END = 99


def walked(
    trie: LabelTrie, probabilities: Mapping[tuple[int, ...], Mapping[int, float]]
) -> tuple[Prediction, list[Query]]:
    """The outcome where `probabilities` gives for each path what the model thinks of the next token."""
    walk, asked = Walk(trie), []
    while queries := walk.queries():
        asked += queries
        for query in queries:
            row = probabilities[query.path]
            walk.tell(query, {token: math.log(row[token]) for token in query.candidates})
    outcome = walk.outcome((10, 4, 1))
    assert isinstance(outcome, Prediction)
    return outcome, asked


def shares(prediction: Prediction) -> list[float]:
    return [math.exp(score) for score in prediction.scores]


def test_labels_with_distinct_first_tokens_take_one_pass_and_keep_the_models_own_log_probabilities() -> None:
    """Scores are the model's log-probabilities; confidence is their softmax, margin its lead, label_mass their sum."""
    trie = LabelTrie.of(["a", "b", "c"], [(1, 5), (2,), (3, 6, 7)], END, "auto")
    outcome, asked = walked(trie, {(): {1: 0.1, 2: 0.3, 3: 0.05}})
    assert asked == [Query((), (1, 2, 3))]
    assert shares(outcome) == pytest.approx([0.1, 0.3, 0.05])
    assert (outcome.label, outcome.confidence_source) == ("b", "label_token")
    assert outcome.confidence == pytest.approx(0.3 / 0.45)
    assert outcome.margin == pytest.approx(0.2 / 0.45)
    assert outcome.label_mass == pytest.approx(0.45)
    assert (outcome.prompt_tokens, outcome.cached_tokens, outcome.completion_tokens) == (10, 4, 1)
    assert trie.depth == 0


def test_a_branch_shares_what_it_holds_among_its_labels() -> None:
    """Deeper probabilities are scaled to sum to one within their branch, so that all labels sum to the root's mass."""
    trie = LabelTrie.of(["card", "note", "bill"], [(1, 7, 2), (1, 7, 3), (4,)], END, "auto")
    outcome, asked = walked(trie, {(): {1: 0.5, 4: 0.3}, (1, 7): {2: 0.06, 3: 0.02}})
    assert [query.path for query in asked] == [(), (1, 7)]
    assert shares(outcome) == pytest.approx([0.375, 0.125, 0.3])
    assert outcome.label_mass == pytest.approx(0.8)
    assert (outcome.label, outcome.confidence_source, trie.depth) == ("card", "trie", 2)


def test_a_label_that_begins_another_is_closed_by_the_end_of_the_answer() -> None:
    """ "credit" competes with "credit note" as the answer that ends there."""
    trie = LabelTrie.of(["credit", "credit note", "bill"], [(1,), (1, 2), (3,)], END, "auto")
    outcome, _ = walked(trie, {(): {1: 0.6, 3: 0.2}, (1,): {END: 0.3, 2: 0.1}})
    assert shares(outcome) == pytest.approx([0.45, 0.15, 0.2])


def test_what_all_labels_begin_with_moves_into_the_prompt() -> None:
    """Tokens that all labels share are no choice: they open the answer, and the mass is what follows them."""
    trie = LabelTrie.of(["doc a", "doc b"], [(8, 9, 1), (8, 9, 2)], END, "auto")
    assert trie.opening == (8, 9)
    outcome, asked = walked(trie, {(): {1: 0.2, 2: 0.6}})
    assert asked == [Query((), (1, 2))]
    assert (outcome.label, outcome.confidence_source) == ("doc b", "label_token")
    assert outcome.label_mass == pytest.approx(0.8)


def test_one_label_is_scored_by_its_first_token() -> None:
    """With one label confidence and margin are 1, and the mass still says how much the model meant it."""
    trie = LabelTrie.of(["only"], [(5, 6)], END, "auto")
    outcome, _ = walked(trie, {(): {5: 0.25}})
    assert (trie.opening, outcome.confidence, outcome.margin) == ((), 1.0, 1.0)
    assert outcome.label_mass == pytest.approx(0.25)


def test_a_negligible_branch_is_not_asked_about_and_is_shared_evenly() -> None:
    """A branch under 1 % of the mass that cannot hold the argmax costs no pass."""
    trie = LabelTrie.of(["a", "b1", "b2"], [(1,), (2, 3), (2, 4)], END, "auto")
    outcome, asked = walked(trie, {(): {1: 0.9, 2: 0.008}})
    assert len(asked) == 1
    assert shares(outcome) == pytest.approx([0.9, 0.004, 0.004])


def test_a_branch_that_could_hold_the_argmax_is_asked_about_however_small_it_is() -> None:
    """Among hundreds of labels the best may be in a branch under 1 %."""
    leaves = 300
    names = [f"leaf {place}" for place in range(leaves)] + ["b1", "b2"]
    sequences = [(place,) for place in range(leaves)] + [(1000, 1), (1000, 2)]
    trie = LabelTrie.of(names, sequences, 9999, "auto")
    root = dict.fromkeys(range(leaves), 0.9 / leaves) | {1000: 0.005}
    outcome, asked = walked(trie, {(): root, (1000,): {1: 0.99, 2: 0.01}})
    assert outcome.label == "b1"
    assert [len(query.candidates) for query in asked] == [128, 128, 45, 2]


def test_where_every_branch_is_small_the_largest_is_asked_about_first() -> None:
    """Without any single label at the root, the walk goes into the largest branch and needs no other."""
    branches = 150
    names = [f"{branch} {leaf}" for branch in range(branches) for leaf in "ab"]
    sequences = [(branch, leaf) for branch in range(branches) for leaf in (500, 501)]
    trie = LabelTrie.of(names, sequences, 9999, "auto")
    root = dict.fromkeys(range(branches), 0.005) | {77: 0.009}
    outcome, asked = walked(trie, {(): root, (77,): {500: 0.7, 501: 0.1}})
    assert outcome.label == "77 a"
    assert [query.path for query in asked] == [(), (), (77,)]


@pytest.mark.parametrize("answer", [{1: math.nan, 2: -1.0}, {1: -math.inf, 2: -1.0}, {2: -1.0}, {}])
def test_scores_that_are_missing_or_not_finite_are_a_rejection(answer: dict[int, float]) -> None:
    """NaN is greater than every number in Spark, so it must never become a confidence."""
    walk = Walk(LabelTrie.of(["a", "b"], [(1,), (2,)], END, "auto"))
    (query,) = walk.queries()
    walk.tell(query, answer)
    assert walk.queries() == []
    outcome = walk.outcome((7, 0, 1))
    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.prompt_tokens) == ("rejected", 7)


def test_label_token_refuses_labels_that_begin_alike() -> None:
    """The message names two of them."""
    with pytest.raises(BadPrompt, match=r"task\.scoring is 'label_token'.*'credit card'.*'credit note'"):
        LabelTrie.of(["credit card", "credit note", "bill"], [(1, 2), (1, 3), (4,)], END, "label_token")


def test_labels_of_the_same_tokens_are_refused() -> None:
    """Two names that a tokenizer cannot tell apart are one label."""
    with pytest.raises(BadPrompt, match="'A' and 'a' are the same tokens"):
        LabelTrie.of(["A", "a"], [(1,), (1,)], END, "auto")


def test_a_label_without_tokens_is_refused() -> None:
    """A name that the tokenizer drops cannot be scored."""
    with pytest.raises(BadPrompt, match="has no tokens"):
        LabelTrie.of(["a", "\u200b"], [(1,), ()], END, "auto")


def test_scoring_trie_says_so_also_where_one_token_would_do() -> None:
    """confidence_source is what the task asked for."""
    assert LabelTrie.of(["a", "b"], [(1,), (2,)], END, "trie").source == "trie"


def test_equal_scores_go_to_the_first_label() -> None:
    """A tie is decided by the task's order, and always the same way."""
    assert predicted(["x", "y"], [-1.0, -1.0], 0.7, "fake", (0, 0, 0)).label == "x"


@given(st.sets(st.lists(st.integers(0, 5), min_size=1, max_size=6).map(tuple), min_size=1, max_size=40), st.randoms())
def test_any_labels_form_a_trie_whose_scores_sum_to_the_mass(labels: set[tuple[int, ...]], random: object) -> None:
    """For any distinct token sequences: every label scored once, no request over the limit, mass conserved."""
    sequences = sorted(labels)
    names = [str(sequence) for sequence in sequences]
    trie = LabelTrie.of(names, sequences, END, "trie")
    walk = Walk(trie)
    while queries := walk.queries():
        for query in queries:
            assert len(query.candidates) <= MAX_CANDIDATES
            assert len(query.path) <= trie.depth
            weights = {token: random.uniform(0.01, 1.0) for token in query.candidates}  # type: ignore[attr-defined]
            total = sum(weights.values()) + random.random()  # type: ignore[attr-defined]
            walk.tell(query, {token: math.log(weight / total) for token, weight in weights.items()})
    outcome = walk.outcome((0, 0, 0))
    assert isinstance(outcome, Prediction)
    assert outcome.label == names[max(range(len(names)), key=lambda label: outcome.scores[label])]
    assert outcome.label_mass is not None
    assert math.fsum(shares(outcome)) == pytest.approx(outcome.label_mass)
    assert 0.0 < outcome.confidence <= 1.0
    assert 0.0 <= outcome.margin <= outcome.confidence


def test_predicted_survives_very_small_probabilities() -> None:
    """Log-probabilities far below what a float holds as a probability still give a confidence."""
    outcome = predicted(["a", "b"], [-2000.0, -2001.0], 0.0, "label_token", (0, 0, 0))
    assert outcome.confidence == pytest.approx(1 / (1 + math.exp(-1)))
