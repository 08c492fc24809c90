"""What a run costs, by a clock that the test turns."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelabel.spending import Spending


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_slots_are_paid_for_while_they_are_held() -> None:
    """Also when the block fails; several blocks add up, and earlier starts count for the cost alone."""
    clock = Clock()
    spending = Spending(price=36.0, before=50.0, clock=clock)
    assert (spending.held, spending.cost) == (0.0, 0.5)
    with suppress(OSError), spending.holding(4):
        clock.now += 10
        assert spending.held == 40.0
        raise OSError
    clock.now += 1000
    assert spending.held == 40.0
    with spending.holding(2):
        clock.now += 5
    assert spending.held == 50.0
    assert spending.cost == pytest.approx(36.0 * 100 / 3600)


@pytest.mark.parametrize(("price", "budget"), [(None, None), (None, 1.0), (1.0, None)])
def test_without_price_and_budget_nothing_is_ever_too_much(price: float | None, budget: float | None) -> None:
    """A price alone gives the cost."""
    spending = Spending(price=price, budget=budget, before=1e12)
    spending.took(1, 1e6)
    assert spending.allows(10**9) and not spending.is_used_up()
    assert (spending.cost is None) == (price is None)


def test_a_budget_is_used_up_a_second_before_it_is_passed() -> None:
    """A second of all the slots."""
    clock = Clock()
    spending = Spending(price=3600.0, budget=100.0, before=40.0, clock=clock)
    with spending.holding(4):
        clock.now += 13.9
        assert not spending.is_used_up()
        clock.now += 0.2
        assert spending.is_used_up()
        assert spending.cost is not None and spending.cost < 100.0
        clock.now += 100
        assert spending.is_used_up()


def test_work_is_allowed_by_what_the_last_work_took() -> None:
    """By the slowest of the last eight; nothing is expected before the first."""
    spending = Spending(price=3600.0, budget=100.0)
    assert spending.expected(10**9) == 0.0
    assert spending.allows(10**9)
    spending.took(1000, 50.0)
    for _ in range(7):
        spending.took(1000, 10.0)
    assert spending.expected(2000) == pytest.approx(100.0)
    assert spending.allows(1999) and not spending.allows(2001)
    spending.took(1000, 10.0)
    assert spending.expected(2000) == pytest.approx(20.0)
    assert spending.allows(9999) and not spending.allows(10001)


def test_work_without_tokens_can_be_told() -> None:
    """A shard of documents that are all too long has an estimate of none."""
    spending = Spending()
    spending.took(0, 3.0)
    assert spending.expected(2) == 6.0


@given(
    st.floats(0.01, 100),
    st.floats(0.01, 1000),
    st.lists(st.tuples(st.integers(1, 500), st.floats(0.1, 20)), min_size=1, max_size=30),
)
def test_work_that_is_no_slower_than_before_never_passes_the_budget(
    price: float, budget: float, work: list[tuple[int, float]]
) -> None:
    """Once a rate is known, what is allowed and takes no longer than expected ends within it."""
    clock = Clock()
    spending = Spending(price=price, budget=budget, clock=clock)
    slowest = max(seconds / tokens for tokens, seconds in work)
    spending.took(1, slowest)
    with spending.holding(1):
        for tokens, seconds in work:
            if not spending.allows(tokens):
                continue
            clock.now += seconds
            assert spending.cost is not None
            assert spending.cost <= budget * (1 + 1e-9)
