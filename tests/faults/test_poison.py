"""Documents that kill or hang their worker, and a slot that does so by itself: the two are told apart."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.checks import holds
from tests.faults.documents import corpus, fatal, poisoned
from tests.faults.harness import Site

Make = Callable[..., Site]

DEATHS = ("segfault", "abort", "kill", "exit")


def is_found(make: Make, scenario: str, n: int, marks: tuple[str, ...], shards: int, **engine: Any) -> None:
    """Exactly the poisoned documents are set aside, at a bounded cost, and every other one is labelled."""
    documents, ends = poisoned(n, *marks)
    site = make(documents, shards=shards, settings=fatal(**engine), without=ends)
    at = time.monotonic()
    report = site.runs().report
    per_shard = max(row["documents"] for row in site.rows("shards", "kind", "documents") if row["kind"] == "infer")
    holds(site, scenario, len(marks), at, ends, at_most=2 * per_shard * len(marks))
    assert len(site.lines("loads")) - 1 <= 6 * len(marks), site.lines("loads")
    assert report["documents"]["remaining"] == 0


def test_a_document_that_kills_its_worker(make: Make) -> None:
    """A document at which the worker dies costs a few loads and a bounded part of its shard, and is set aside alone."""
    is_found(make, "a document that kills its worker", 60, ("segfault",), shards=6)


@pytest.mark.slow
def test_one_percent_of_the_documents_kill_their_worker(make: Make) -> None:
    """Segfaults, aborts, kills as the kernel's for memory, and exits: exactly those documents are set aside."""
    is_found(make, "1 % poison", 400, DEATHS, shards=48)


@pytest.mark.slow
def test_a_document_that_hangs(make: Make) -> None:
    """An engine that does not return from a step is ended, and the document at which it happens alone is set aside."""
    is_found(make, "a document that hangs", 240, ("hang",), shards=48, stall_seconds=2)


@pytest.mark.slow
def test_a_slot_that_always_fails(make: Make) -> None:
    """A slot whose workers die at whatever they are given ends the run with exit 1 and its name, and sets nothing aside;
    once it is mended the run ends complete."""
    site = make(corpus(240))
    start = site.start(LAKELABEL_FAKE_SICK=str(site.folder / "sick")).ends(1)
    at = time.monotonic()
    assert "this machine cannot label even a harmless text" in start.stderr.splitlines()[-1], start.stderr
    codes = {row["failure_code"] for row in site.rows("quarantine", "failure_code")}
    assert codes <= {"empty"}
    site.runs()
    holds(site, "a slot that always fails", 1, at)
