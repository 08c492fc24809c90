"""The MERGE texts, without Spark."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelabel import merge
from lakelabel.merge import Facts, contiguous
from lakelabel.tables import HIGHEST, LOWEST, Tables, in_range

TABLES = Tables("main.labels")
FACTS = Facts("kind-0123456789ab", "run-1", ("attempt-1", "attempt-2"), ((LOWEST, -1), (0, 9), (100, 199)))
STATEMENTS = (merge.insert_labels, merge.update_labels, merge.insert_quarantine, merge.update_quarantine)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_conditions_carry_literals_of_partition_and_ranges(statement: object) -> None:
    """Delta prunes and locks by literals: the prompt_version, and an OR of contiguous ranges rather than one hull."""
    text = statement(TABLES, FACTS)  # type: ignore[operator]
    assert "t.prompt_version = 'kind-0123456789ab'" in text
    assert "AND (t.doc_hash <= 9 OR t.doc_hash >= 100 AND t.doc_hash <= 199)" in text
    assert "t.doc_id = s.doc_id" in text


def test_every_matched_clause_orders_by_seq() -> None:
    """No matched clause can let an older fact win."""
    for statement in STATEMENTS:
        clauses = statement(TABLES, FACTS).split("WHEN MATCHED")[1:]
        assert all(clause.startswith(" AND s.seq > t.seq") for clause in clauses)


def test_inserts_never_update_and_updates_never_insert() -> None:
    """Insert-only MERGEs are one scan; matched-only ones are asked for where they are needed."""
    assert "WHEN MATCHED" not in merge.insert_labels(TABLES, FACTS) + merge.insert_quarantine(TABLES, FACTS)
    assert "NOT MATCHED" not in merge.update_labels(TABLES, FACTS) + merge.update_quarantine(TABLES, FACTS)


def test_the_whole_range_needs_no_condition() -> None:
    """Copies and rules lie anywhere: their MERGE is pruned by partition alone."""
    assert "doc_hash >=" not in merge.insert_labels(TABLES, Facts("v-1", "r", ("a",), ((LOWEST, HIGHEST),)))


ranges = st.lists(
    st.tuples(st.integers(-50, 50), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair))), max_size=8
)


@given(ranges)
def test_contiguous_ranges_hold_the_same_numbers(given_ranges: list[tuple[int, int]]) -> None:
    """Joining loses and adds no number, and leaves gaps between what it returns."""
    joined = contiguous(given_ranges)
    numbers = {n for low, high in given_ranges for n in range(low, high + 1)}
    assert {n for low, high in joined for n in range(low, high + 1)} == numbers
    assert all(left[1] + 1 < right[0] for left, right in itertools.pairwise(joined))


def test_open_ends_have_no_literal() -> None:
    """The lowest BIGINT does not parse as a literal, so the ends of the range are left open."""
    assert in_range("h", LOWEST, HIGHEST) == "true"
    assert in_range("h", LOWEST, 5) == "h <= 5"
    assert in_range("h", 5, HIGHEST) == "h >= 5"
