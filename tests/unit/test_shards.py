"""Ids of shards and their parts, which of them count, and the parts that a split makes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelabel.shards import MOST_PARTS, Shard, can_be_split, counting, parent_id, part_id, parts_of
from lakelabel.tables import HIGHEST, LOWEST

PLANNED = st.integers(0, 2**32 - 1)
INDEX = st.integers(0, MOST_PARTS - 1)
PATH = st.lists(INDEX, max_size=3)


def descend(planned: int, path: list[int]) -> int:
    """The shard that is reached by going down the parts with these indices."""
    for index in path:
        planned = part_id(planned, index)
    return planned


def shard(shard_id: int, state: str = "pending", documents: int = 1) -> Shard:
    return Shard(shard_id, "infer", LOWEST, HIGHEST, documents, 10 * documents, state)


@given(PLANNED, PATH, PLANNED, PATH)
def test_every_shard_has_an_id_of_its_own(one: int, path: list[int], other: int, other_path: list[int]) -> None:
    """Two parts share one only if they are the same part of the same planned shard; all fit a BIGINT."""
    ids = descend(one, path), descend(other, other_path)
    assert (ids[0] == ids[1]) == ((one, path) == (other, other_path))
    assert 0 <= min(ids) <= max(ids) < 2**62


@given(PLANNED, PATH, INDEX)
def test_a_part_knows_its_parent(planned: int, path: list[int], index: int) -> None:
    """At every level; a planned shard has none, and one that was split three times has no parts."""
    found = descend(planned, path)
    assert can_be_split(found) == (len(path) < 3)
    assert parent_id(found) == (descend(planned, path[:-1]) if path else None)
    if can_be_split(found):
        assert parent_id(part_id(found, index)) == found
    else:
        with pytest.raises(ValueError, match="split 3 times"):
            part_id(found, index)


@given(PLANNED, PATH)
def test_a_name_says_the_way_to_a_part(planned: int, path: list[int]) -> None:
    """The planned id, then the parts counted from 1."""
    name = ".".join(map(str, [planned, *(index + 1 for index in path)]))
    assert shard(descend(planned, path)).name == name


@given(st.data())
def test_every_document_counts_once(data: st.DataObject) -> None:
    """Whatever was split, and whatever another driver wrote below a shard that was accepted instead: the shards that count
    without being split hold every document once."""
    documents = data.draw(st.integers(1, 40))
    rows: list[Shard] = []
    leaves: list[int] = []

    def grow(shard_id: int, n: int, is_there: bool) -> None:
        state = data.draw(st.sampled_from(["pending", "accepted", "committed"]))
        is_split = can_be_split(shard_id) and n > 1 and data.draw(st.booleans())
        # The parts of a loser stay in the table below a parent that is not split.
        has_parts = is_split or (can_be_split(shard_id) and n > 1 and data.draw(st.booleans()))
        rows.append(shard(shard_id, "split" if is_split else state, n))
        if is_there and not is_split:
            leaves.append(shard_id)
        if has_parts:
            first = data.draw(st.integers(1, n - 1))
            grow(part_id(shard_id, 0), first, is_there and is_split)
            grow(part_id(shard_id, 1), n - first, is_there and is_split)

    grow(7, documents, True)
    counted = counting(data.draw(st.permutations(rows)))
    settled = [found for found in counted if found.state != "split"]
    assert [found.shard_id for found in settled] == sorted(leaves)
    assert sum(found.documents for found in settled) == documents


def test_parts_count_from_the_moment_their_parent_is_split() -> None:
    """Not before, and not where it was accepted whole; a part without its parent is none."""
    parts = [shard(part_id(5, 0)), shard(part_id(5, 1), "committed")]
    others = [shard(6), shard(part_id(9, 0))]
    assert counting([shard(5), *parts, *others]) == [shard(5), shard(6)]
    assert counting([shard(5, "accepted"), *parts, *others]) == [shard(5, "accepted"), shard(6)]
    assert counting([shard(5, "split"), *parts, *others]) == [shard(5, "split"), shard(6), *parts]


@given(st.data())
def test_the_parts_of_a_split_are_the_shard(data: st.DataObject) -> None:
    """Their ranges are without a gap and without an overlap, their documents and tokens its own, their state untouched."""
    hashes = sorted(data.draw(st.sets(st.integers(-1000, 1000), min_size=1, max_size=30)))
    low, high = data.draw(st.integers(-2000, hashes[0])), data.draw(st.integers(hashes[-1], 2000))
    pieces = [(lo, data.draw(st.integers(1, 5)), data.draw(st.integers(0, 50))) for lo in hashes]
    parent = Shard(part_id(3, 8), "infer", low, high, sum(n for _, n, _ in pieces), 99, tries=1)
    parts = parts_of(parent, pieces)
    assert (parts[0].lo, parts[-1].hi) == (low, high)
    assert all(one.hi + 1 == other.lo for one, other in pairwise(parts))
    assert all(part.lo <= lo <= part.hi for part, (lo, _, _) in zip(parts, pieces, strict=True))
    assert [(part.documents, part.tokens) for part in parts] == [(n, tokens) for _, n, tokens in pieces]
    assert {parent_id(part.shard_id) for part in parts} == {parent.shard_id}
    assert {(part.kind, part.state, part.attempt, part.tries) for part in parts} == {("infer", "pending", None, 0)}


@pytest.mark.parametrize("pieces", [[], [(0, 2, 0)], [(0, 2, 0), (5, 2, 0)]])
def test_a_split_that_would_lose_or_double_documents_is_refused(pieces: list[tuple[int, int, int]]) -> None:
    """What the queue holds must be what was planned."""
    with pytest.raises(ValueError, match=r"the parts of shard 12\.3 do not hold its 3 documents"):
        parts_of(shard(part_id(12, 2), documents=3), pieces)
