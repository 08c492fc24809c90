"""What an engine says about one document: a prediction, or the reason why there is none.

Row failures are data; an engine that dies raises (see ``engines.protocol``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FailureCode = Literal[
    "missing_doc_id",
    "duplicate_doc_id",
    "empty",
    "too_long",
    "invalid_label",
    "low_confidence",
    "rejected",
    "crashed",
    "timed_out",
    "refused",
    "expired",
    "missing",
]

CONTENT_FAILURES: tuple[FailureCode, ...] = (
    "empty",
    "too_long",
    "invalid_label",
    "low_confidence",
    "rejected",
    "crashed",
)
"""Failures that belong to the text itself: the same text under another id fails the same way, so it is a copy."""

PASSING_FAILURES: tuple[FailureCode, ...] = ("crashed", "timed_out", "rejected", "refused", "expired", "missing")
"""Failures that may pass by themselves: a retry takes them without being asked by name. The others stay as long as the
document and the settings do."""


@dataclass(frozen=True)
class Prediction:
    """A label and the grounds for it.

    ``confidence`` is the softmax over the labels' scores (0 to 1), ``margin`` its lead over the second label (1.0 where
    there is one label alone), ``label_mass`` the labels' share of the whole vocabulary's probability (0 to 1; None where
    the engine cannot know it), ``scores`` the labels' log-probabilities in the order of the task's labels.
    Tokens are counted over every pass that the document cost; a pass writes one completion token.
    """

    label: str
    confidence: float
    margin: float
    label_mass: float | None
    scores: tuple[float, ...]
    confidence_source: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Failure:
    """Why a document got no label; ``message`` is for people and holds no text of the document."""

    code: FailureCode
    message: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


Outcome = Prediction | Failure
