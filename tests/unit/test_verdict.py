"""Who is at fault when a worker dies."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakelabel.shards import MOST_PARTS, Shard, part_id
from lakelabel.tables import HIGHEST, LOWEST
from lakelabel.verdict import Verdicts, ways

MANY = Shard(1, "infer", LOWEST, HIGHEST, 100, 1000)
ALONE = Shard(part_id(1, 0), "infer", LOWEST, HIGHEST, 1, 10)
AGAIN = replace(ALONE, tries=1)


@given(st.integers(2, 2_000_000))
@example(48)
@example(49)
@example(48**2)
@example(48**2 + 1)
@example(2_000_000)
def test_three_splits_reach_single_documents(documents: int) -> None:
    """From any shard of up to two million; no split makes one part, or more than there are ids for."""
    for _ in range(3):
        parts = ways(documents, MOST_PARTS)
        assert 2 <= parts <= min(MOST_PARTS, documents)
        # Parts are as equal as they can be, so this is the largest.
        documents = math.ceil(documents / parts)
        if documents == 1:
            return
    pytest.fail(f"{documents} documents are left together")


def test_few_documents_are_split_into_single_ones_at_once() -> None:
    """A split costs a load of the engine, a part a job."""
    assert ways(2, MOST_PARTS) == 2
    assert ways(48, MOST_PARTS) == 48
    assert ways(49, MOST_PARTS) == 7


def test_several_documents_are_split_at_their_first_death() -> None:
    """Nobody is suspected yet; where no part can be split again, the documents stand together."""
    verdicts = Verdicts()
    assert verdicts.died(MANY, "a", "crashed", {}) == "split"
    assert verdicts.died(replace(MANY, tries=5), "a", "crashed", {}) == "split"
    last = replace(MANY, shard_id=part_id(part_id(part_id(1, 0), 0), 0), documents=2)
    assert verdicts.died(last, "a", "crashed", {}) == "again"
    assert verdicts.died(replace(last, tries=1), "a", "crashed", {}) == "wait"


def test_slots_that_die_under_a_new_name_each_time_are_probed_all_the_same() -> None:
    """An executor whose container is killed comes back as another one, and none dies three times in a row."""
    verdicts = Verdicts(slots=2)
    for nth in range(5):
        assert verdicts.died(MANY, f"e{nth}", "crashed", {}) == "split"
    assert not verdicts.wants_probe(idle=False)
    verdicts.died(MANY, "e5", "crashed", {})
    assert verdicts.wants_probe(idle=False)
    verdicts.probed({"e6": 1.0})
    assert not verdicts.wants_probe(idle=False)


def test_a_document_is_condemned_after_two_deaths_once_its_slot_has_labelled_since() -> None:
    """Its code is that of the last death; what the slot had labelled before proves nothing."""
    verdicts = Verdicts()
    labelled = {"a": 500.0}
    assert verdicts.died(ALONE, "a", "crashed", labelled) == "again"
    assert verdicts.died(AGAIN, "a", "timed_out", labelled) == "wait"
    waiting = {ALONE.shard_id: AGAIN}
    verdicts.look(labelled)
    assert verdicts.proven(waiting) == {}
    verdicts.look({"a": 501.0})
    assert verdicts.proven(waiting) == {ALONE.shard_id: "timed_out"}


def test_each_slot_that_a_document_died_on_must_be_proven() -> None:
    """A document that died on a sick slot and on a sound one is not condemned by the sound one alone."""
    verdicts = Verdicts(2)
    verdicts.died(ALONE, "a", "crashed", {})
    verdicts.died(AGAIN, "b", "crashed", {})
    waiting = {ALONE.shard_id: AGAIN}
    verdicts.look({"b": 9.0})
    assert verdicts.proven(waiting) == {}
    verdicts.look({"b": 9.0, "a": 1.0})
    assert verdicts.proven(waiting) == {ALONE.shard_id: "crashed"}


def test_only_waiting_suspects_are_condemned() -> None:
    """One that lived through its second try is a label."""
    verdicts = Verdicts()
    verdicts.died(ALONE, "a", "crashed", {})
    verdicts.look({"a": 1.0})
    assert verdicts.proven({}) == {}
    assert verdicts.proven({MANY.shard_id: MANY}) == {}


def test_a_probe_is_wanted_where_a_slot_dies_three_times_in_a_row() -> None:
    """Whatever it labels in between proves it in order; another slot's labels do not."""
    verdicts = Verdicts(2)
    for _ in range(2):
        verdicts.died(MANY, "a", "crashed", {"a": 1.0})
    assert not verdicts.wants_probe(idle=False)
    verdicts.died(MANY, "a", "crashed", {"a": 2.0})
    assert not verdicts.wants_probe(idle=False)
    for _ in range(2):
        verdicts.died(MANY, "a", "crashed", {"a": 2.0, "b": 80.0})
    assert verdicts.wants_probe(idle=False)


def test_a_probe_is_wanted_where_nothing_else_can_clear_a_slot() -> None:
    """At the end of a run a suspect's slot has nothing left to label."""
    verdicts = Verdicts()
    assert not verdicts.wants_probe(idle=True)
    verdicts.died(ALONE, "a", "crashed", {})
    verdicts.died(AGAIN, "a", "crashed", {})
    assert not verdicts.wants_probe(idle=False)
    assert verdicts.wants_probe(idle=True)
    verdicts.probed({"a": 1.0})
    assert not verdicts.wants_probe(idle=True)
    assert verdicts.proven({ALONE.shard_id: AGAIN}) == {ALONE.shard_id: "crashed"}


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_a_slot_that_probes_do_not_reach_is_blamed_for_nothing_in_the_end(slots: int) -> None:
    """An executor that was lost never labels again. But Spark picks any free slot for a probe: with more slots more probes
    must have gone elsewhere."""
    verdicts = Verdicts(slots)
    for _ in range(3):
        verdicts.died(ALONE, "lost", "crashed", {})
    waiting = {ALONE.shard_id: AGAIN}
    probes = 0
    while verdicts.wants_probe(idle=True):
        assert verdicts.proven(waiting) == {}
        probes += 1
        verdicts.probed({"b": float(probes)})
        assert probes < 1000
    assert probes == 5 * slots
    assert verdicts.proven(waiting) == {ALONE.shard_id: "crashed"}


def test_a_slot_is_at_fault_for_a_load_that_fails_twice_without_a_label_between() -> None:
    """Its own labels clear it, those of another do not; each slot is counted by itself."""
    verdicts = Verdicts(3)
    assert not verdicts.load_failed("a", {"a": 1.0})
    assert not verdicts.load_failed("c", {"a": 1.0, "b": 8.0})
    assert not verdicts.load_failed("a", {"a": 2.0, "b": 8.0})
    assert verdicts.load_failed("a", {"a": 2.0, "b": 9.0})
