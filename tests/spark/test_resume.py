"""Starting again is resuming: what one start left behind, the next one finishes, without paying twice."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lakelabel import working
from lakelabel.commit import Committer
from lakelabel.errors import Fenced, LeaseHeld, RunFailed
from lakelabel.host import Here
from lakelabel.lease import Lease
from lakelabel.ledger import Ledger
from lakelabel.merge import Facts
from lakelabel.tables import values_sql
from lakelabel_udfs.engines.fake import fake_label
from lakelabel_udfs.lineage import status
from lakelabel_udfs.schema import LEASES
from tests.road import TASK, Road
from tests.spark.rebuilt import assert_states_follow_from_facts

LABELS = tuple(TASK["labels"])
ROWS = [(f"d{i}", f"text {i}") for i in range(12)] + [("copy", "text 1"), ("none", "")]


class Crash(Exception):
    pass


@contextmanager
def crashing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, before: bool) -> Iterator[None]:
    """Within the block the named method raises, before or after it has done its work."""
    whole = getattr(owner, name)

    def crash(*arguments: Any, **options: Any) -> Any:
        if not before:
            whole(*arguments, **options)
        raise Crash(name)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, crash)
        with pytest.raises(Crash):
            yield


@pytest.mark.parametrize(
    ("owner", "name", "before"),
    [
        (Ledger, "add_shards", False),
        (Ledger, "accept", True),
        (Ledger, "accept", False),
        (Ledger, "mark_committed", True),
    ],
    ids=["while planning", "appended, not accepted", "accepted, not committed", "committed, not marked"],
)
def test_a_start_that_broke_off_costs_no_second_inference(
    road: Road, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, before: bool
) -> None:
    """Wherever a start breaks off, the next one ends with every document settled and each text inferred once."""
    road.write(ROWS)
    with crashing(monkeypatch, owner, name, before):
        road.run("queue.shard_tokens=4")
    report = road.run("queue.shard_tokens=4")
    assert report["documents"]["remaining"] == 0
    assert road.labels() == {key: fake_label(text, LABELS) for key, text in ROWS if text}
    assert road.open_failures() == {"none": "empty"}
    assert road.inferred() == 12
    assert_states_follow_from_facts(road)


def test_a_run_with_other_settings_is_closed_and_what_it_accepted_is_kept(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepted shards of the old run are committed, its pending ones can never be accepted, and the rest is planned anew."""
    road.write(ROWS)
    with crashing(monkeypatch, Committer, "commit", before=True):
        road.run("queue.shard_tokens=4")
    assert road.labels() == {}
    report = road.run("queue.shard_tokens=4", "quality.min_confidence=0.0")
    assert len(report["runs"]) == 1
    states = {row["state"] for row in road.sql("SELECT DISTINCT state FROM {runs}")}
    assert states == {"closed", "finished"}
    assert set(road.labels()) == {key for key, text in ROWS if text}
    assert road.inferred() == 12
    assert_states_follow_from_facts(road)


@pytest.mark.parametrize("is_allowed", [False, True], ids=["not asked for", "allowed"])
def test_what_another_model_had_labelled_is_adopted_only_where_that_is_allowed(
    road: Road, monkeypatch: pytest.MonkeyPatch, is_allowed: bool
) -> None:
    """What a broken-off run of another model had appended, and nobody accepted, is no label of this prompt_version yet."""
    texts = ROWS[:12]
    road.write(texts)
    road.settings["engine"]["revision"] = "first"
    with crashing(monkeypatch, Ledger, "accept", before=True):
        road.run()
    road.settings["engine"]["revision"] = "second"
    report = road.run(allow_model_change=is_allowed)
    found = {row["doc_id"]: row["model_revision"] for row in road.sql("SELECT doc_id, model_revision FROM {labels}")}
    assert found == {key: "first" if is_allowed else "second" for key, _ in texts}
    assert report["documents"]["inferred"] == (0 if is_allowed else 12)


def test_rows_that_somebody_took_away_before_a_run_was_finished_are_planned_anew(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that had settled them says so and is closed; the next start brings them back without an inference."""
    road.write(ROWS)
    with crashing(monkeypatch, working, "_verified", before=True):
        road.run()
    road.sql("DELETE FROM {labels} WHERE doc_id IN ('d1', 'd2')")
    with pytest.raises(
        RunFailed, match=r"settled 14 documents, and labels and quarantine hold 12 of them: another writer"
    ):
        road.run()
    assert road.run()["documents"]["pending"] == 2
    assert road.labels() == {key: fake_label(text, LABELS) for key, text in ROWS if text}
    assert road.inferred() == 12
    assert_states_follow_from_facts(road)


def test_what_a_planner_wrote_after_its_run_was_closed_is_cleared_away(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that woke in the middle of a plan leaves pending shards, and texts in the queue, for nobody."""
    road.write(ROWS)
    with crashing(monkeypatch, Ledger, "move_run", before=True):
        road.run()
    road.sql("UPDATE {runs} SET state = 'closed'")
    assert road.run()["documents"]["inferred"] == 12
    assert road.sql("SELECT * FROM {queue}") == []
    assert {row["state"] for row in road.sql("SELECT DISTINCT state FROM {shards}")} == {"closed", "committed"}
    assert_states_follow_from_facts(road)


def test_a_plan_that_broke_off_counts_for_nothing(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules of a plan that never became ready are no facts: a source that was mended since keeps its label."""
    road.write([("a", "one"), ("b", "two")])
    road.run()
    road.write([("a", "one"), ("a", "another"), ("b", "two")])
    with crashing(monkeypatch, Ledger, "add_shards", before=False):
        road.run()
    road.write([("a", "one"), ("b", "two")])
    assert road.run()["documents"]["already_labeled"] == 2
    assert road.labels()["a"] == fake_label("one", LABELS)
    assert {row["state"] for row in road.sql("SELECT DISTINCT state FROM {shards}")} == {"committed", "closed"}
    assert_states_follow_from_facts(road)


def test_a_run_that_began_to_close_is_closed_whatever_comes_next(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that dies while it closes an older run does not wedge that run, even if the old settings come back. Rate,
    seconds and cost of the run that ends it are of its own work."""
    road.write(ROWS)
    with crashing(monkeypatch, Committer, "commit", before=True):
        road.run("queue.shard_tokens=4")
    with crashing(monkeypatch, Ledger, "close_shards", before=False):
        road.run("quality.min_confidence=0.0")
    report = road.run("queue.shard_tokens=4", "cost.price_per_slot_hour=3600")
    assert set(road.labels()) == {key for key, text in ROWS if text}
    assert road.inferred() == 12
    assert_states_follow_from_facts(road)
    row = road.sql(f"SELECT * FROM {{runs}} WHERE run_id = '{report['run_id']}'")[0]
    assert row["state"] == "finished"
    assert row["documents"] == report["documents"]
    assert row["tokens"] == report["tokens"]
    assert row["seconds"]["total"] > row["seconds"]["commit"] > 0
    seconds = road.sql(
        "SELECT sum(seconds) AS s FROM {shards} WHERE kind = 'infer' AND run_id = '" + row["run_id"] + "'"
    )
    # The engine is held for the loop around the jobs too, and for nothing else.
    assert seconds[0]["s"] < row["cost"] < row["seconds"]["total"]


def test_a_source_that_moved_on_is_planned_once_more(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unfinished run ends over its own version, and a second one brings what came since; the report adds them up."""
    road.write(ROWS)
    with crashing(monkeypatch, Ledger, "accept", before=True):
        road.run()
    road.write([*ROWS, ("new", "since then")])
    report = road.run()
    assert len(report["runs"]) == 2
    assert report["documents"]["inferred"] == 13
    assert road.labels()["new"] == fake_label("since then", LABELS)
    assert road.inferred() == 13


def lease_row(road: Road, version: str, epoch: int, owner: dict[str, Any], age: int) -> None:
    """Append a lease row of some other driver, whose last beat is `age` seconds old."""
    row = {"prompt_version": version, "epoch": epoch, "owner": str(uuid.uuid4()), "event": "taken", **owner}
    row |= {"lease_seconds": 10, "run_id": None, "slot_seconds": None}
    frame = road.spark.sql(
        f"SELECT *, current_timestamp() - INTERVAL {age} SECONDS AS at FROM {values_sql(tuple(row), [tuple(row.values())])}"
    )
    road.tables.append(frame, LEASES)


def test_one_driver_owns_a_prompt_version(road: Road) -> None:
    """A lease held by a live owner elsewhere stops a start with exit 3 and says who holds it; the lease of a process that
    ended here, or whose last beat is minutes past, is taken over, and is given back at the end."""
    road.write(ROWS)
    version = road.run()["prompt_version"]
    here, parent = Here.read(), os.getppid()
    started = int((status(parent) or [])[19])
    alive = {"host": here.host, "boot_id": here.boot_id, "pid": parent, "pid_started": started}
    lease_row(road, version, 2, alive, age=10)
    with pytest.raises(LeaseHeld, match=rf"pid {parent} on {here.host}") as held:
        road.run()
    assert held.value.exit_code == 3

    elsewhere = {"host": "gpu-7", "boot_id": "another", "pid": 4711, "pid_started": 1}
    lease_row(road, version, 3, elsewhere, age=3600)
    assert road.run()["documents"]["pending"] == 0
    gone = {"host": here.host, "boot_id": here.boot_id, "pid": os.getpid(), "pid_started": here.pid_started - 1}
    lease_row(road, version, 5, gone, age=1)
    assert road.run()["documents"]["pending"] == 0
    events = road.sql("SELECT epoch, event FROM {leases} ORDER BY epoch DESC, at DESC LIMIT 1")
    assert [tuple(row) for row in events] == [(6, "released")]


def test_an_owner_elsewhere_is_observed_for_as_long_as_its_lease(road: Road) -> None:
    """Whether an owner on another host is alive shows by its beats alone: a new one means exit 3, none a takeover."""
    road.tables.create(road.spark)
    elsewhere = {"host": "gpu-7", "boot_id": "another", "pid": 4711, "pid_started": 1}
    lease_row(road, "kind-0", 1, elsewhere, age=20)
    waits: list[float] = []

    def beat(seconds: float) -> None:
        waits.append(seconds)
        lease_row(road, "kind-0", 1, elsewhere, age=0)

    with pytest.raises(LeaseHeld, match=r"pid 4711 on gpu-7 .*, last beat 0 s ago"):
        Lease.take(road.spark, road.tables, "kind-0", 5, wait=beat)
    assert len(waits) == 1

    said: list[str] = []
    began = time.monotonic()
    with Lease.take(road.spark, road.tables, "kind-0", 5, said.append) as lease:
        assert lease.epoch == 2
        # The owner's lease is longer than this one's.
        assert time.monotonic() - began >= 10
    assert said == ["pid 4711 on gpu-7 holds the lease of kind-0; waiting up to 10 s to see whether it still beats"]


def test_a_driver_whose_lease_was_taken_over_writes_nothing_more(road: Road) -> None:
    """After a takeover Delta skips the former owner's MERGE, and the former owner learns it from the empty result."""
    road.write(ROWS)
    report = road.run()
    version, spark = report["prompt_version"], road.spark
    former = Lease.take(spark, road.tables, version, 180)
    gone = {"host": "h", "boot_id": "another", "pid": 1, "pid_started": 1}
    lease_row(road, version, former.epoch + 1, gone, age=3600)
    with Lease.take(spark, road.tables, version, 180) as newer:
        assert newer.epoch == former.epoch + 2
        road.sql("DELETE FROM {labels} WHERE doc_id = 'd1'")
        attempts = tuple(row["attempt"] for row in road.sql("SELECT attempt FROM {shards} WHERE attempt IS NOT NULL"))
        facts = Facts(version, report["run_id"], attempts, ((-(2**63), 2**63 - 1),))
        committers = [Committer(spark, road.tables, Ledger(spark, road.tables), lease) for lease in (former, newer)]
        with pytest.raises(Fenced):
            committers[0]._merge(facts)
        assert "d1" not in road.labels()
        committers[1]._merge(facts)
        assert "d1" in road.labels()
    assert spark.conf.get("spark.databricks.delta.write.txnAppId", None) is None
