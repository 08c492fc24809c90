"""What the scenarios must cover together: every commit that a run makes has its points, and was killed at both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.checks import KILLED_AT, RESULTS
from tests.faults.commits import COMMITS, both
from tests.faults.documents import edited, fatal, poisoned
from tests.faults.harness import Site

pytestmark = pytest.mark.slow


def test_every_version_of_every_table_has_its_points(make: Callable[..., Site]) -> None:
    """Over starts that make every kind of commit, each table has as many versions as points `after` a commit of it were
    reached: no commit of a run goes without."""
    documents, ends = poisoned(60, "kill")
    site = make(documents, planned=False, shards=8, settings=fatal(), without=ends)
    site.start(command="plan").ends(0)
    # At this point no other thread is in the middle of a commit, whose version would then have no point.
    site.start(fault="after leases.take:killall").is_killed()
    short = ("queue.lease_seconds=10", "quality.min_label_mass=0.01")
    site.runs(*short)
    site.write(edited(site.documents))
    site.runs(*short)
    after = Counter(point.split()[1] for point in site.points.elements() if point.startswith("after "))
    assert set(after) == set(COMMITS)
    by_table = Counter[str]()
    for commit, times in after.items():
        by_table[commit.split(".")[0]] += times
    assert by_table == {table: version + 1 for table, version in site.versions().items()}


def test_a_start_was_killed_before_and_after_every_commit(request: pytest.FixtureRequest) -> None:
    """With the whole suite run: 25 scenarios and more, and a SIGKILL at every point."""
    here = {item.path.name for item in request.session.items if item.path.parent == Path(__file__).parent}
    if here < {path.name for path in Path(__file__).parent.glob("test_*.py")} or request.config.option.keyword:
        pytest.skip("only a part of the scenarios was asked for")
    assert set(both(*COMMITS)) == KILLED_AT
    assert len(RESULTS) >= 25
