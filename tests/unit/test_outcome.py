"""Outcomes are values."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from typing import get_args

import pytest

from lakelabel_udfs.outcome import CONTENT_FAILURES, PASSING_FAILURES, Failure, FailureCode, Prediction


def test_outcomes_are_frozen_and_travel() -> None:
    """They compare by value, also after they crossed a wire, and cannot be changed on the way."""
    prediction = Prediction("a", 0.9, 0.8, None, (-0.1, -2.3), "fake", 10, 4, 1)
    failure = Failure("too_long", "the document has 9 tokens, and 8 fit")
    for outcome in (prediction, failure):
        assert pickle.loads(pickle.dumps(outcome)) == outcome
        assert hash(outcome) == hash(pickle.loads(pickle.dumps(outcome)))
    with pytest.raises(FrozenInstanceError):
        failure.code = "empty"  # type: ignore[misc]


def test_a_failure_that_belongs_to_the_content_is_one_of_the_codes() -> None:
    """What is copied to identical content is named by codes that exist, and never by one that a retry could mend."""
    codes = set(get_args(FailureCode))
    assert set(CONTENT_FAILURES) < codes
    assert {"timed_out", "expired", "missing", "missing_doc_id", "duplicate_doc_id"}.isdisjoint(CONTENT_FAILURES)


def test_what_a_retry_takes_unasked_can_pass_by_itself() -> None:
    """A rule of the document, its length, its label and its confidence are the same tomorrow; every other code may not be."""
    permanent = {"missing_doc_id", "duplicate_doc_id", "empty", "too_long", "invalid_label", "low_confidence"}
    assert set(PASSING_FAILURES) == set(get_args(FailureCode)) - permanent
