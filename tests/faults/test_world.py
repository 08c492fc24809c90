"""The world around a run: sources that move, disks that fill up, tables that others write, settings and money."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakelabel.delta import retried
from tests.faults.checks import holds
from tests.faults.documents import corpus, verdict
from tests.faults.harness import Site

Make = Callable[..., Site]

pytestmark = pytest.mark.slow

NEW = {f"n{i:03}": f"new {i}" for i in range(60)}


@pytest.mark.parametrize("name", ["appended to", "overwritten", "dropped and made anew"])
def test_a_source_that_moves_during_the_run(make: Make, name: str) -> None:
    """A run never looks at its source again once it is planned, so that whatever becomes of it meanwhile changes nothing;
    a start after a kill ends that run first, and then brings what is new."""
    site = make(corpus(240))
    old = dict(site.documents)
    start = site.start().reaches("after outcomes.infer", 5)
    if name == "appended to":
        site.write(NEW, append=True)
    else:
        site.write({**dict(list(old.items())[:120]), **NEW}, forget=name == "dropped and made anew")
    start.reaches("after outcomes.infer", 15).kill(everything=True)
    at = time.monotonic()
    report = site.runs().report
    assert len(report["runs"]) == 2
    # Labels of documents that left the source stay.
    holds(site, f"source {name}", 1, at, {doc_id: verdict(text) for doc_id, text in old.items()})


def test_settings_that_change_after_a_crash(make: Make) -> None:
    """A run that was killed is closed by a start with other settings; what it had labelled is not paid for again."""
    site = make(corpus(240))
    site.start().reaches("after shards.accept", 3).kill()
    at = time.monotonic()
    report = site.runs("quality.min_confidence=0.0").report
    assert len(report["runs"]) == 1
    assert {row["state"] for row in site.rows("runs", "state")} == {"closed", "finished"}
    holds(site, "settings changed after a kill", 1, at)


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A folder that is a disk of its own."""
    folder.mkdir(parents=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder], capture_output=True)
    if made.returncode:
        pytest.skip(f"no tmpfs may be mounted here: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_that_is_full(make: Make) -> None:
    """A disk that fills up under `outcomes` ends the run with exit 1 and a reason in words; once there is room, the next
    start goes on."""
    site = make(corpus(240), planned=False)
    with small_disk(site.root / "outcomes", 256) as disk:
        start = site.start().ends(1)
        at = time.monotonic()
        assert "space" in start.stderr.splitlines()[-1], start.stderr
        assert 0 < len(site.inferred) < len(site.sent)
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        site.runs()
        holds(site, "disk full under outcomes", 1, at)


def test_labels_that_another_process_writes_and_rewrites(make: Make, spark: SparkSession) -> None:
    """Appends of another prompt_version and OPTIMIZE of our own rows, both all the time: conflicts are retried, and
    nothing is lost or doubled."""
    site = make(corpus(240))
    start = site.start().reaches("after labels.insert")
    name = f"delta.`{site.root}/labels`"
    one = spark.sql(f"SELECT * FROM {name} LIMIT 1")
    # From memory, or each append would be one that has read the table.
    foreign = spark.createDataFrame(one.collect(), one.schema).selectExpr(
        *("* EXCEPT (prompt_version)", "'foreign-000000000000' AS prompt_version")
    )
    at, optimized = time.monotonic(), 0
    while start.process.poll() is None:
        foreign.write.format("delta").mode("append").save(f"{site.root}/labels")
        metrics = retried(lambda: spark.sql(f"OPTIMIZE {name}").selectExpr("metrics.numFilesRemoved AS n").collect())
        optimized += metrics[0]["n"]
    start.ends(0)
    assert optimized > 10
    spark.sql(f"DELETE FROM {name} WHERE prompt_version = 'foreign-000000000000'")
    holds(site, "labels written and optimized meanwhile", 0, at)


def test_a_budget(make: Make) -> None:
    """A run stops in good order with exit 3 before its budget is passed, as often as it is started, and goes on once the
    budget is raised; money is counted over all its starts."""
    site = make(corpus(240))
    price = "cost.price_per_slot_hour=3600"
    for _ in range(2):
        start = site.start(price, "cost.budget=8").ends(3)
        assert "budget" in start.stderr.splitlines()[-1], start.stderr
    at = time.monotonic()
    held: dict[int, float] = {}
    for row in site.rows("leases", "epoch", "slot_seconds"):
        held[row["epoch"]] = max(held.get(row["epoch"], 0.0), row["slot_seconds"] or 0.0)
    assert 0 < sum(held.values()) <= 8, held
    before = len(site.inferred)
    site.runs(price, "cost.budget=1000")
    assert 0 < before < len(site.inferred)
    holds(site, "stopped twice by its budget", 0, at, at_most=2 * max(site.infer_shards()))


@pytest.mark.parametrize("limit", ["quarantined", "one_label"])
def test_a_run_that_has_gone_wrong(make: Make, limit: str) -> None:
    """Too much in quarantine, or one label nearly everywhere, ends a run with exit 3 and says why; a start without the
    limit goes on from there."""
    site = make(corpus(240) | {f"d{i:05}": f"document {i} " + "long " * 40 for i in range(3, 240, 3)})
    start = site.start("quality.stop.after=30", f"quality.stop.{limit}=0.2").ends(3)
    at = time.monotonic()
    assert f"quality.stop.{limit}" in start.stderr.splitlines()[-1], start.stderr
    assert len(site.inferred) < len(site.sent)
    site.runs("quality.stop.quarantined=null")
    holds(site, f"stopped by quality.stop.{limit}", 0, at)


def test_status_from_another_process(make: Make) -> None:
    """`status` shows how far a run is while another process works on it, what a crash has left, and its end."""
    site = make(corpus(240))

    def asked() -> dict[str, Any]:
        found = site.start(command="status").ends(0).report["prompt_versions"][0]
        return {"lease": found["lease"]["state"], **{key: found["runs"][0][key] for key in ("state", "documents")}}

    # Its third commit never ends, so that it is seen while it runs however long it takes to look.
    start = site.start(fault="after shards.accept:hang:3").reaches("after shards.accept", 3)
    running = asked()
    start.kill()
    at = time.monotonic()
    crashed = asked()
    site.runs()
    finished = asked()
    assert [one["lease"] for one in (running, crashed, finished)] == ["beats", "gone", "released"]
    assert [one["state"] for one in (running, crashed, finished)] == ["ready", "ready", "finished"]
    settled = [one["documents"]["settled"] for one in (running, crashed, finished)]
    assert 0 < settled[0] <= settled[1] < settled[2] == 240
    holds(site, "status while running and after a kill", 1, at)
