"""`lakelabel status`: how far a run is and who holds the lease, read from another process's tables."""

from __future__ import annotations

import json
import os

import pytest

from lakelabel.cli import main
from lakelabel.host import Here
from lakelabel.status import Status, status
from lakelabel_udfs.schema import TABLES
from tests.road import Road
from tests.spark.test_resume import lease_row

ELSEWHERE = {"host": "gpu-7", "boot_id": "another", "pid": 4711, "pid_started": 1}


def asked(road: Road) -> Status:
    return status(road.spark, road.tables, road.job().prompt_version, 180)


def test_status_shows_how_far_a_run_is_and_who_works_on_it(road: Road, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run that nobody works on: what is settled and left; of one that goes on elsewhere also its rate and the hours
    left; an owner that is silent or has ended is told apart, and so is a run that has finished. Looking changes nothing."""
    road.write([("none", ""), ("d0", "text 0")])
    road.run()
    road.write([("none", ""), *((f"d{i}", f"text {i}") for i in range(12)), ("copy", "text 1")])
    road.run("queue.shard_tokens=4", plan_only=True)
    shards = road.sql("SELECT run_id, shard_id, documents FROM {shards} WHERE state = 'pending' ORDER BY shard_id")
    assert len(shards) > 4
    run_id, remaining = shards[0]["run_id"], shards[0]["documents"] + shards[-1]["documents"]
    for minutes, shard in enumerate(reversed(shards[1:-1])):
        road.sql(
            "UPDATE {shards} SET state = 'accepted',"
            f" updated_at = TIMESTAMP'2026-01-01 12:00:00' - INTERVAL {minutes} MINUTES"
            f" WHERE run_id = '{run_id}' AND shard_id = {shard['shard_id']}"
        )
    before = {table.name: road.versions(table.name) for table in TABLES}
    found = asked(road)
    assert before == {table: road.versions(table) for table in before}
    run, former = found.runs
    assert (run.run_id, run.state, former.state) == (run_id, "ready", "finished")
    assert run.documents == {"planned": 12, "settled": 12 - remaining, "remaining": remaining}
    assert former.documents == {"planned": 2, "settled": 2, "remaining": 0}
    assert run.shards == {"accepted": len(shards) - 2, "pending": 2}
    assert found.lease is not None
    assert (found.lease.state, found.lease.pid) == ("released", os.getpid())
    assert run.documents_per_hour is run.hours_left is None
    assert found.quarantine == {"empty": 1}

    here = Here.read()
    version = found.prompt_version
    owners = [
        ("beats", ELSEWHERE, 10, "held by pid 4711 on gpu-7 (owner "),
        ("silent", ELSEWHERE, 1000, "s: the next start may take it over"),
        ("gone", {**ELSEWHERE, "boot_id": here.boot_id, "pid": os.getpid()}, 1, "start again to go on"),
    ]
    for epoch, (state, owner, age, words) in enumerate(owners, found.lease.epoch + 1):
        lease_row(road, version, epoch, owner, age)
        seen = asked(road)
        assert seen.lease is not None
        assert (seen.lease.state, seen.lease.epoch) == (state, epoch)
        assert age <= seen.lease.age < age + 60
        assert words in str(seen)
        run = seen.runs[0]
        if state != "beats":
            assert run.documents_per_hour is run.hours_left is None
            continue
        expected = 60 * sum(shard["documents"] for shard in shards[2:-1]) / len(shards[2:-1])
        assert run.documents_per_hour == pytest.approx(expected)
        assert run.hours_left == pytest.approx(remaining / run.documents_per_hour)

    road.sql("UPDATE {runs} SET prompt_version = 'former-000000000000'")
    conf = str(road.folder / "conf.yml")
    capsys.readouterr()
    assert command("--conf", conf, "--json") == 0
    (told,) = json.loads(capsys.readouterr().out.splitlines()[-1])["prompt_versions"]
    assert (told["prompt_version"], told["runs"], told["lease"]["state"]) == (version, [], "gone")
    (road.folder / "task.yml").unlink()
    assert command("--conf", conf, "--all") == 0
    assert capsys.readouterr().out.startswith("former-000000000000\n  lease: never taken\n  run ")
    assert command("--conf", conf, "--all", "--set", f"tables.root={road.folder / 'nothing'}") == 2
    assert not (road.folder / "nothing").exists()


def command(*arguments: str) -> int:
    """Exit code of the command line."""
    with pytest.raises(SystemExit) as ended:
        main(["status", *arguments])
    return int(ended.value.code or 0)
