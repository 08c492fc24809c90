"""Two drivers on one prompt_version: one works, the other stops, and one that wakes too late changes nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.faults.checks import holds
from tests.faults.documents import corpus, edited
from tests.faults.harness import Site, Start, until

Make = Callable[..., Site]

SHORT = "queue.lease_seconds=15"


def test_two_drivers_from_the_start_and_one_that_is_told_to_stop(make: Make) -> None:
    """Of two drivers started at once one stops with exit 3 and names the other; SIGTERM ends that one with exit 1, what
    it had accepted is committed, its lease is given back, and the next start goes on at once."""
    # Slow enough to be at work still when the other has come to its end.
    site = make(corpus(120), shards=12, pace=200)
    working = one_works(site, {}, {}).reaches("after outcomes.infer", 2)
    is_told_to_stop(site, working, signal.SIGTERM)
    at = time.monotonic()
    site.runs()
    holds(site, "two drivers; SIGTERM", 1, at)


def one_works(site: Site, one: dict[str, str], other: dict[str, str], *overrides: str) -> Start:
    """Start two drivers at once; the one that works, once the other has stopped with exit 3 and a reason."""
    starts = [site.start(*overrides, **one), site.start(*overrides, **other)]
    until(lambda: any(start.process.poll() is not None for start in starts), "one of two drivers stops")
    starts.sort(key=lambda start: start.process.poll() is None)
    starts[0].ends(3)
    assert f"pid {starts[1].pid}" in starts[0].stderr
    return starts[1]


def is_told_to_stop(site: Site, start: Start, number: signal.Signals) -> None:
    """Send a signal as a terminal or a scheduler does, and check that the start ends in good order."""
    start.signal(number, group=number == signal.SIGINT).ends(1, seconds=60)
    assert "start again" in start.stderr.splitlines()[-1]
    assert site.lease_event() == "released"
    assert {row["state"] for row in site.rows("shards", "state")} == {"committed", "pending"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_a_run_in_good_order(make: Make, number: signal.Signals) -> None:
    """SIGTERM, and Ctrl-C, which reaches the JVM as well: exit 1, one line that says how to go on, what is accepted is
    committed, the lease is given back; and nothing of the run stays behind."""
    site = make(corpus(240))
    start = site.start().reaches("after outcomes.infer", 10)
    is_told_to_stop(site, start, number)
    at = time.monotonic()
    until(lambda: not start.family(), "the JVM and the workers end with their driver", 30)
    site.runs()
    holds(site, number.name, 1, at)


@pytest.mark.slow
def test_two_drivers_on_two_hosts(make: Make) -> None:
    """Of two drivers on two hosts, neither of which can look for the other's process, one stops with exit 3."""
    site = make(corpus(240), planned=False)
    at = time.monotonic()
    one_works(site, {"LAKELABEL_HOST": "one"}, {"LAKELABEL_HOST": "other"}, SHORT).ends(0)
    holds(site, "two drivers on two hosts", 0, at)


@pytest.mark.slow
def test_a_driver_killed_on_another_host(make: Make) -> None:
    """Where nobody can look for the process of a dead driver, its lease is waited for, and then taken over."""
    site = make(corpus(240))
    site.breaks("before outcomes.infer", "killall", SHORT, nth=5, LAKELABEL_HOST="one")
    at = time.monotonic()
    site.runs(SHORT, LAKELABEL_HOST="other")
    holds(site, "killed on another host", 1, at)


@pytest.mark.slow
def test_two_drivers_without_a_lease(make: Make) -> None:
    """The lease only saves work: without it two drivers on one planned run keep every invariant but the count of
    inferences, which is at most double."""
    site = make(corpus(240))
    at = time.monotonic()
    starts = [site.start(LAKELABEL_NO_LEASE="1") for _ in range(2)]
    codes = [start.wait() for start in starts]
    assert 0 in codes, [start.stderr for start in starts]
    assert set(codes) <= {0, 1, 3}, [start.stderr for start in starts]
    site.runs()
    holds(site, "two drivers without a lease", 0, at, at_most=len(site.sent))


# Zombies: drivers stopped past their lease, and continued when others have long gone on.

PLANNING = ("runs.add", "queue.add", "shards.add", "runs.ready")
LABELLING = ("outcomes.infer", "shards.accept", "labels.insert", "quarantine.insert", "shards.commit")
FINISHING = ("outcomes.copy", "queue.drop", "runs.finish", "leases.release")
UPDATING = ("labels.update", "quarantine.update")


def others_go_on_and_they_wake(site: Site, scenario: str, stopped: list[Start]) -> None:
    """Others finish and change the same rows; then each start that stood still is continued, must stop by itself, and must
    have changed nothing."""
    at = time.monotonic()
    site.runs(SHORT)
    # Rows that the stopped ones were about to write are changed: relabelled, made failures, mended.
    site.write(edited(site.documents))
    site.runs(SHORT)
    before = site.states()
    for start in stopped:
        # One that had nothing left to do but to mark its run as done may say that it is: others have marked it.
        was_done = "before runs.finish" in start.points
        code = start.signal(signal.SIGCONT, group=True).wait()
        assert code in (1, 3) or (code == 0 and was_done), f"exit {code} after {start.points[-3:]}\n{start.stderr}"
        assert "Traceback" not in start.stderr, start.stderr
        assert site.states() == before, start.points[-3:]
    # One that woke in the middle of a plan went on for a moment; nothing of that stays.
    assert site.runs(SHORT).report["documents"]["pending"] == 0
    assert site.rows("queue", "run_id") == []
    assert not any(row["state"] == "pending" for row in site.rows("shards", "state"))
    holds(site, scenario, len(stopped), at)


def stopped_before(site: Site, commits: tuple[str, ...]) -> list[Start]:
    """One start a commit, each taking over from the one before it and stopped before the next commit."""
    starts = []
    for commit in commits:
        start = site.start(SHORT, fault=f"before {commit}:stop").reaches(f"before {commit}")
        until(start.is_stopped, f"stopped before {commit}", 10)
        starts.append(start)
    return starts


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_driver_that_wakes_in_the_middle_of_a_plan(make: Make) -> None:
    """What it planned is closed by whoever took over from it, and what it still writes is cleared away."""
    site = make(corpus(240), planned=False)
    others_go_on_and_they_wake(site, "stopped past the lease, planning", stopped_before(site, PLANNING))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_driver_that_wakes_after_its_lease(make: Make) -> None:
    """A driver that stands still past its lease, before any commit, and goes on after others have finished and have
    changed the same rows, stops by itself and changes nothing: no label that became a failure comes back."""
    site = make(corpus(360), shards=72)
    others_go_on_and_they_wake(site, "stopped past the lease", stopped_before(site, LABELLING + FINISHING))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_driver_that_wakes_after_its_lease_while_rows_change(make: Make) -> None:
    """The same, where what it was about to do is to change rows and to take them away."""
    site = make(corpus(240))
    site.runs()
    site.write(site.documents | {f"d{i:05}": f"once more {i}" for i in range(0, 240, 3)})
    others_go_on_and_they_wake(site, "stopped past the lease, changing rows", stopped_before(site, UPDATING))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_driver_that_stands_still_inside_a_merge(make: Make) -> None:
    """A MERGE that had read its tables before the others wrote, and commits after them, is refused by Delta."""
    site = make(corpus(240))
    stopped = []
    for milliseconds in (50, 100, 200, 400, 800):
        start = site.start(SHORT).reaches("before labels.insert")
        time.sleep(milliseconds / 1000)
        stopped.append(start.signal(signal.SIGSTOP, group=True))
    inside = [start for start in stopped if "after labels.insert" not in start.points]
    assert inside, "every MERGE had ended before its driver was stopped"
    others_go_on_and_they_wake(site, "stopped past the lease inside a MERGE", stopped)
