"""SIGKILL, at every point and at any moment: starting again is resuming, and costs at most the shard in flight."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.faults.checks import KILLED_AT, holds
from tests.faults.commits import CREATING, both
from tests.faults.documents import corpus, edited, fatal, poisoned
from tests.faults.harness import Site

Make = Callable[..., Site]

# Twenty starts one after the other.
pytestmark = pytest.mark.timeout(1800)


def killed_at(site: Site, points: tuple[str, ...], *overrides: str) -> float:
    """Start the site once a point, each start killed at the next one, alone and with its JVM in turn; when the last was."""
    for i, point in enumerate(points):
        site.breaks(point, ("killall", "kill")[i % 2], *overrides)
        KILLED_AT.add(point)
    return time.monotonic()


def test_a_document_kills_its_worker_and_the_driver_is_killed_while_it_commits(make: Make) -> None:
    """A document at which the worker dies is set aside alone and the rest of its shard is labelled; a driver that is
    killed between the two states costs at most the shard that it was at."""
    documents, ends = poisoned(72, "segfault")
    site = make(documents, shards=12, settings=fatal(), without=ends)
    site.breaks("after labels.insert", "kill")
    at = time.monotonic()
    site.runs()
    per_shard = max(site.infer_shards())
    holds(site, "a poisoned document, killed committing", 2, at, ends, at_most=3 * per_shard)


@pytest.mark.slow
def test_killed_while_the_tables_are_made(make: Make) -> None:
    """A start that dies at any commit that makes a table leaves nothing that the next one stumbles over."""
    site = make(corpus(240), planned=False)
    at = killed_at(site, both(*CREATING))
    site.runs()
    holds(site, "killed making the tables", len(CREATING) * 2, at)


@pytest.mark.slow
def test_killed_while_the_lease_is_taken(make: Make) -> None:
    """A start that dies while it takes the lease of a dead one does not keep the next one waiting."""
    site = make(corpus(240), planned=False)
    points = both("prompts.register", "leases.take", "labels.fence", "quarantine.fence")
    at = killed_at(site, points)
    site.runs()
    holds(site, "killed taking the lease", len(points), at)


@pytest.mark.slow
def test_killed_while_it_plans(make: Make) -> None:
    """A plan that broke off counts for nothing, and closing it may break off as well."""
    site = make(corpus(240), planned=False)
    points = (*both("runs.add", "queue.add", "shards.add"), "before runs.ready")
    points += (*both("shards.close", "queue.drop", "runs.close"), "after runs.ready")
    at = killed_at(site, points)
    assert site.inferred == []
    site.runs()
    holds(site, "killed planning", len(points), at)


@pytest.mark.slow
def test_killed_while_it_labels_and_commits(make: Make) -> None:
    """Appended and not accepted, accepted and in no state, in one state and not in the other, in both and not marked,
    copies half done: each is gone on with, and nothing is inferred anew that was appended."""
    site = make(corpus(360), shards=72)
    points = both("outcomes.rule", "outcomes.infer", "shards.accept", "labels.insert", "quarantine.insert")
    points += both("shards.commit", "outcomes.copy")
    at = killed_at(site, points)
    site.runs()
    holds(site, "killed labelling and committing", len(points), at)


@pytest.mark.slow
def test_killed_while_it_finishes(make: Make) -> None:
    """A run that is finished and not cleaned up is cleaned up by the next start, and planned no second time."""
    site = make(corpus(240))
    points = both("leases.beat")
    killed_at(site, points, "queue.lease_seconds=10")
    points += (*both("queue.drop", "runs.finish"), *both("leases.release"))
    at = killed_at(site, points[2:])
    report = site.runs().report
    assert report["documents"]["pending"] == 0
    holds(site, "killed finishing", len(points), at)


@pytest.mark.slow
def test_killed_while_rows_change(make: Make) -> None:
    """Labels that change, are lost or are gained by an edited source do so whole, wherever a start dies between the two
    tables."""
    site = make(corpus(240))
    site.runs()
    site.write(edited(site.documents))
    at = killed_at(site, both("labels.update", "quarantine.update"))
    site.runs()
    holds(site, "killed changing rows", 4, at)


@pytest.mark.slow
def test_killed_while_an_older_run_is_closed(make: Make) -> None:
    """What a run of other settings has accepted is kept, wherever the start that closes it dies."""
    site = make(corpus(240))
    site.breaks("after outcomes.infer", "killall", nth=12)
    points = both("shards.close", "queue.drop", "runs.close")
    at = killed_at(site, points, "quality.min_label_mass=0.01")
    site.runs("quality.min_label_mass=0.01")
    holds(site, "settings changed after a kill, killed closing", len(points) + 1, at)


@pytest.mark.slow
def test_killed_while_a_shard_is_split(make: Make) -> None:
    """A document that kills its worker is found by splitting its shard, also when the driver dies on the way."""
    documents, ends = poisoned(240, "kill")
    site = make(documents, settings=fatal(), without=ends)
    points = both("shards.split", "shards.fail", "outcomes.condemn")
    at = killed_at(site, points)
    site.runs()
    holds(site, "killed splitting a poisoned shard", len(points), at, ends)


@pytest.mark.slow
def test_twenty_random_kills_in_twenty_thousand_documents(make: Make) -> None:
    """A run that is killed twenty times, the driver alone or with its JVM, at any moment, ends complete."""
    chance = random.Random(5)
    site = make(corpus(20_000), planned=False, shards=160)
    for _ in range(20):
        start = site.start()
        shards = chance.randrange(6)
        if shards:
            start.reaches("after outcomes.infer", shards)
        time.sleep(chance.uniform(0, 1.5 if shards else 12.0))
        start.kill(everything=chance.random() < 0.5)
    at = time.monotonic()
    site.runs()
    holds(site, "20 random kills", 20, at)
