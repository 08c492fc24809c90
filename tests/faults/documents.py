"""The documents of the scenarios: what they are, how they change, and what must become of each."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from lakelabel_udfs.engines.fake import fake_label

LABELS = ("invoice", "contract", "manual")
TASK = {"name": "kind", "instruction": "What is it?", "labels": list(LABELS)}
MAX_MODEL_LEN = 32
"""A text of more than four times as many characters is too_long for the fake engine."""

MARK = "POISON-"
"""Texts with this and a word do harm to the worker that labels them, where ``fatal`` settings say so."""


def corpus(n: int) -> dict[str, str]:
    """Documents by id. Of every 60 one is empty, two are too long, and three have a text that an earlier one has."""
    documents = {}
    for i in range(n):
        text = f"document {i}"
        if i % 60 == 20:
            text = ""
        elif i % 30 == 15:
            text = f"{text} " + "long " * MAX_MODEL_LEN
        elif i % 60 in (41, 42, 43):
            text = f"document {i - 40}"
        documents[f"d{i:05}"] = text
    return documents


def verdict(text: str) -> str:
    """What a document's text must end as: a label, or ``!`` and the code of a failure."""
    if not text:
        return "!empty"
    if len(text) > 4 * MAX_MODEL_LEN:
        return "!too_long"
    return fake_label(text, LABELS)


def digest(text: str) -> str:
    """A text as the fake engine counts it."""
    return sha256(text.encode()).hexdigest()


def edited(documents: dict[str, str]) -> dict[str, str]:
    """The same documents, some of them changed: labels that change or become failures, and failures that become labels."""
    changes = {}
    for i, doc_id in enumerate(documents):
        if i % 60 in (15, 20):
            changes[doc_id] = f"mended {i}"
        elif i % 6 == 1:
            changes[doc_id] = f"edited {i}"
        elif i % 6 == 2:
            changes[doc_id] = ""
    return documents | changes


def fatal(**engine: Any) -> dict[str, Any]:
    """Settings under which texts with the mark do harm."""
    extra = {"milliseconds_per_document": 2, "poison": MARK}
    return {"engine": {"kind": "fake", "max_model_len": MAX_MODEL_LEN, "extra": extra, **engine}}


def poisoned(n: int, *marks: str) -> tuple[dict[str, str], dict[str, str]]:
    """A corpus with one poisoned document a mark, spread evenly, and what those must end as."""
    documents, ends = corpus(n), {}
    for i, mark in enumerate(marks):
        # An odd place that is no twin's, no empty one's and no long one's.
        doc_id = f"d{i * n // len(marks) + 5:05}"
        documents[doc_id] = f"{doc_id} {MARK}{mark}"
        ends[doc_id] = "!timed_out" if mark == "hang" else "!crashed"
    return documents, ends
