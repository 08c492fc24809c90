"""The rate of a run as its ledger tells it."""

from __future__ import annotations

from datetime import datetime, timedelta

from lakelabel.status import documents_per_hour

NOON = datetime(2026, 1, 1, 12)


def at(*moments: tuple[float, int]) -> list[tuple[datetime, int]]:
    return [(NOON + timedelta(minutes=minutes), documents) for minutes, documents in moments]


def test_a_rate_is_what_came_between_the_first_moment_and_the_last() -> None:
    """What the first moment brought was done before it, in a time that nobody knows."""
    assert documents_per_hour(at((0, 700), (10, 100), (30, 200))) == 600.0
    assert documents_per_hour(at((30, 200), (0, 700), (10, 100))) == 600.0


def test_of_fewer_than_two_moments_there_is_no_rate() -> None:
    """Nothing accepted yet, and one step alone, say nothing about speed."""
    assert documents_per_hour([]) is None
    assert documents_per_hour(at((0, 700))) is None


def test_what_is_more_than_an_hour_before_the_last_moment_does_not_count() -> None:
    """A run that stood still for a night has the rate of this morning."""
    assert documents_per_hour(at((-900, 5000), (0, 10), (15, 100))) == 400.0
