"""When a run labels nonsense."""

from __future__ import annotations

from collections import Counter

import pytest

from lakelabel.sanity import Answer, Sanity
from lakelabel.sections import Stop


def told(limits: Stop, *answers: dict[Answer, int]) -> str | None:
    sanity = Sanity(limits)
    for more in answers:
        sanity.tell(more)
    return sanity.complaint()


def test_nothing_is_said_before_enough_is_known() -> None:
    """However bad it looks: the first documents of a table may well be alike."""
    limits = Stop(after=100, quarantined=0.5, one_label=0.5)
    assert told(limits, {("crashed", None): 99}) is None
    assert told(limits, {(None, "invoice"): 99}) is None
    assert told(limits) is None


def test_too_much_in_quarantine_is_named_with_its_codes() -> None:
    """The three most frequent; exactly the limit is not too much. What came in several commits is added up."""
    limits = Stop(after=100, quarantined=0.5)
    codes: dict[Answer, int] = {
        ("too_long", None): 20,
        ("rejected", None): 25,
        ("crashed", None): 4,
        ("timed_out", None): 1,
    }
    assert told(limits, codes, {(None, "invoice"): 50}) is None
    assert told(limits, codes, {("rejected", None): 1}, {(None, "invoice"): 50}) == (
        "51 of 101 documents went to quarantine (rejected 26, too_long 20, crashed 4); quality.stop.quarantined is 0.5"
    )


def test_one_label_nearly_everywhere_is_named() -> None:
    """Its share is of all documents, failures among them; its name cannot break the line."""
    limits = Stop(after=10, quarantined=None, one_label=0.9)
    assert told(limits, {(None, "a\nb"): 90, (None, "c"): 10}) is None
    assert told(limits, {(None, "a\nb"): 91, ("rejected", None): 11}) is None
    assert told(limits, {(None, "a\nb"): 91, (None, "c"): 5, ("rejected", None): 4}) == (
        "91 of 100 documents got the label a\\nb; quality.stop.one_label is 0.9"
    )


def test_limits_that_are_off_say_nothing() -> None:
    """Either of them, or both."""
    limits = Stop(after=1, quarantined=None, one_label=None)
    assert told(limits, {("rejected", None): 1000}) is None
    assert told(limits, {(None, "invoice"): 1000}) is None


@pytest.mark.parametrize("former", [0, 60])
def test_what_earlier_starts_answered_counts(former: int) -> None:
    """A run that goes wrong over several starts ends itself as well."""
    sanity = Sanity(Stop(after=100, quarantined=0.5), Counter({("rejected", None): former}))
    sanity.tell({(None, "invoice"): 40})
    assert (sanity.complaint() is not None) == (former == 60)
