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

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("scenario", "documents", "marks", "engine"),
    [
        ("1 % poison", 400, ("segfault", "abort", "kill", "exit"), {}),
        ("a document that hangs", 240, ("hang",), {"stall_seconds": 2}),
    ],
    ids=["crashed", "timed_out"],
)
def test_documents_that_kill_or_hang_their_worker(
    make: Make, scenario: str, documents: int, marks: tuple[str, ...], engine: dict[str, Any]
) -> None:
    """Segfaults, aborts, kills as the kernel's for memory, exits and hangs: exactly those documents are set aside, each
    for at most 6 loads of an engine and 2 shards' worth of repeated inference, and every other one is labelled."""
    texts, ends = poisoned(documents, *marks)
    site = make(texts, settings=fatal(**engine), without=ends)
    at = time.monotonic()
    per_shard = max(site.infer_shards())
    site.runs()
    assert len(site.lines("loads")) - 1 <= 6 * len(marks), site.lines("loads")
    holds(site, scenario, len(marks), at, ends, at_most=2 * per_shard * len(marks))


def test_a_slot_that_always_fails(make: Make) -> None:
    """A slot whose workers die at whatever they are given ends the run with exit 1 and its name, and sets nothing aside;
    once it is mended the run ends complete."""
    site = make(corpus(240))
    start = site.start(LAKELABEL_FAKE_SICK=str(site.folder / "sick")).ends(1)
    at = time.monotonic()
    assert "this machine cannot label even a harmless text" in start.stderr.splitlines()[-1], start.stderr
    codes = {row["failure_code"] for row in site.rows("quarantine", "failure_code")}
    assert codes <= {"empty", "too_long"}
    site.runs()
    holds(site, "a slot that always fails", 1, at)
