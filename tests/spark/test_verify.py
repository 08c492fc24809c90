"""`lakelabel audit verify`: sound tables hold, whatever is broken by hand is named, and what cannot be known is said."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from pyspark.sql import SparkSession

from lakelabel.answers import Answer
from lakelabel.cli import main
from lakelabel.commit import Committer
from lakelabel.completeness import complete
from lakelabel.ledger_invariants import LEDGER
from lakelabel.snapshot import Snapshot
from lakelabel.state_invariants import STATES
from lakelabel.template import literal
from lakelabel.verify import verify
from lakelabel_udfs.schema import LABELS, RUNS, SHARDS, TABLES
from tests.independent import problems
from tests.road import Road
from tests.spark.test_resume import crashing

LONG = "x" * 9000
HOSTILE = "it's\n\x1b[31m " + "y" * 500
FIRST = [
    ("copy", "text 1"),
    ("none", ""),
    ("long", LONG),
    (HOSTILE, "text 1"),
    *((f"d{i}", f"text {i}") for i in range(8)),
]
SECOND = [
    ("d0", "edited"),
    ("d1", LONG),
    ("long", "short now"),
    *(row for row in FIRST if row[0] not in ("d0", "d1", "long")),
]


@pytest.fixture(scope="module")
def labelled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Road:
    """Two runs, the second over edited documents: labels won, lost and replaced, copies, failures open and resolved."""
    folder = tmp_path_factory.mktemp("labelled")
    road = Road(spark, folder, folder / "inferences")
    for rows in (FIRST, SECOND):
        road.write(rows)
        road.run("queue.shard_tokens=6")
    return road


@contextmanager
def broken(road: Road, *statements: str) -> Iterator[None]:
    """Within the block the tables that the statements name are as these leave them."""
    named = sorted(set(re.findall(r"\{(\w+)\}", " ".join(statements))))
    before = {table: road.versions(table) for table in named}
    try:
        for statement in statements:
            road.sql(statement)
        yield
    finally:
        for table, version in before.items():
            road.sql(f"RESTORE TABLE {{{table}}} TO VERSION AS OF {version}")


def answers(road: Road) -> dict[str, Answer]:
    """By invariant, of the one prompt_version of the road."""
    found = list(verify(road.spark, road.tables))
    assert len({answer.invariant for answer in found}) == len(found) == 14
    return {answer.invariant: answer for answer in found}


def asked(road: Road, *names: str) -> dict[str, Answer]:
    """Some of them alone, since each costs the better part of a second."""
    snapshot = Snapshot(road.spark, road.tables)
    view = snapshot.of(*snapshot.prompt_versions())
    found = {
        one.name: one.judge(view.prompt_version, view.frame(sql(view)))
        for one, sql in STATES + LEDGER
        if one.name in names
    }
    return found | ({"complete": complete(view)} if "complete" in names else {})


def wrong(road: Road) -> dict[str, dict[str, str]]:
    """What is broken: by invariant the keys, without their doc_hash, and what is said of them."""
    found = {}
    for answer in answers(road).values():
        found |= told(answer)
    return found


def told(answer: Answer) -> dict[str, dict[str, str]]:
    """The same of one answer."""
    assert (answer.verdict == "broken") == bool(answer.broken) == bool(answer.remedy) == bool(answer.keys)
    assert answer.verdict != "not checkable" or answer.reason
    keys = (key.partition(": ") for key in answer.keys)
    return {answer.invariant: {key.partition(" (doc_hash")[0]: what for key, _, what in keys}} if answer.broken else {}


def copied(key: str, **instead: str) -> str:
    """An INSERT of a copy of a row of labels, some columns of it other SQL."""
    columns = ", ".join(f"{instead[name]} AS {name}" if name in instead else name for name in LABELS.names)
    return f"INSERT INTO {{labels}} SELECT {columns} FROM {{labels}} WHERE doc_id = '{key}'"


IN_BOTH = copied("d3", doc_id="'none'", doc_hash="xxhash64('none')")
UNCHECKED = "ALTER TABLE {labels} DROP CONSTRAINT confidence_is_a_share"


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        pytest.param(
            [
                copied("d2"),
                "UPDATE {labels} SET label = 'nonsense' WHERE doc_id = 'd3'",
                "DELETE FROM {labels} WHERE doc_id = 'd4'",
                UNCHECKED,
                "UPDATE {labels} SET confidence = double('NaN') WHERE doc_id = 'd5'",
                "UPDATE {labels} SET seq = 77 WHERE doc_id = 'd6'",
                "INSERT INTO {quarantine} SELECT * FROM {quarantine} WHERE doc_id = 'none'",
                "UPDATE {prompts} SET digest = concat('0', substr(digest, 2))",
            ],
            {
                "unique_labels": {"d2": "stands 2 times"},
                "unique_quarantine": {"none": "stands 2 times"},
                "labels_follow": {
                    "d3": "differing in label",
                    "d4": "missing",
                    "d5": "differing in confidence",
                    "d6": "differing in seq",
                },
                "complete": {"d2": "there 2 times", "d4": "in neither state", "none": "there 2 times"},
                "known_labels": {"d3": "with a label that the prompt does not have"},
                "sound_rows": {
                    "d5": "with a confidence that is no share",
                    "d6": "whose run and seq are those of no run",
                },
                "defined_prompt": {"kind": "whose definition has another digest"},
            },
            id="rows doubled, lost and altered, another digest",
        ),
        pytest.param(
            [
                IN_BOTH,
                "UPDATE {quarantine} SET attempts = 7, status = 'resolved' WHERE doc_id = 'd1'",
                "DELETE FROM {quarantine} WHERE doc_id = 'long'",
                "UPDATE {labels} SET content_hash = 'another' WHERE doc_id = 'd7'",
                "DELETE FROM {prompts}",
            ],
            {
                "label_or_failure": {"none": "has a label and an open failure"},
                "labels_follow": {"none": "extra, without an accepted fact", "d7": "differing in content_hash"},
                "quarantine_follows": {"d1": "differing in attempts, status", "long": "missing"},
                "complete": {
                    "none": "there 2 times",
                    "d1": "in neither state",
                    "d7": "there with other content",
                },
                "defined_prompt": {"kind": "with 0 definitions"},
            },
            id="in both states, failures altered and lost, other content, no prompt",
        ),
    ],
)
def test_what_is_broken_in_the_states_is_named(
    labelled: Road, statements: list[str], expected: dict[str, dict[str, str]]
) -> None:
    """Each invariant that a hand has broken is named with its keys, and no other one is."""
    with broken(labelled, *statements):
        found = wrong(labelled)
        found = {name: {key.partition("-")[0]: what for key, what in keys.items()} for name, keys in found.items()}
        assert found == expected


@dataclass(frozen=True)
class Target:
    """A shard of the road that is to be broken."""

    name: str
    where: str
    attempt: str
    ids: tuple[str, ...]


@pytest.fixture(scope="module")
def targets(labelled: Road) -> list[Target]:
    """Infer shards of two documents or more."""
    rows = labelled.sql(
        "SELECT s.run_id, s.shard_id, s.attempt, array_sort(collect_list(o.doc_id)) AS ids FROM {shards} s"
        " JOIN {outcomes} o ON o.attempt = s.attempt WHERE s.kind = 'infer' AND s.documents > 1"
        " GROUP BY s.run_id, s.shard_id, s.attempt ORDER BY s.run_id, s.shard_id"
    )
    return [
        Target(
            f"{row['run_id']}/{row['shard_id']}",
            f"run_id = '{row['run_id']}' AND shard_id = {row['shard_id']}",
            row["attempt"],
            tuple(row["ids"]),
        )
        for row in rows
    ]


def test_what_is_broken_in_facts_and_ledger_is_named(labelled: Road, targets: list[Target]) -> None:
    """Facts that are lost, one in the place of another, a shard that is not settled, ranges that overlap and sums that do
    not add up are named by shard or run; in the states only rows that rest on these facts are."""
    lost, doubled, pending = targets[:3]
    one, other = doubled.ids[:2]
    with broken(
        labelled,
        f"DELETE FROM {{outcomes}} WHERE attempt = '{lost.attempt}'",
        f"DELETE FROM {{outcomes}} WHERE attempt = '{doubled.attempt}' AND doc_id = '{other}'",
        f"INSERT INTO {{outcomes}} SELECT * FROM {{outcomes}} WHERE attempt = '{doubled.attempt}' AND doc_id = '{one}'",
        f"UPDATE {{shards}} SET documents = documents + 1 WHERE {lost.where}",
        f"UPDATE {{shards}} SET lo = lo - 1 WHERE {doubled.where}",
        f"UPDATE {{shards}} SET state = 'pending' WHERE {pending.where}",
    ):
        found = wrong(labelled)
    assert found.pop("complete_attempts") == {
        lost.name: "with another number of facts than documents",
        doubled.name: "with several facts of one document",
    }
    assert found.pop("disjoint_shards") == {doubled.name: "overlapping one before it"}
    assert found.pop("settled_shards") == {pending.name: "pending in a finished run"}
    assert found.pop("sums_of_shards") == {
        lost.name.partition("/")[0]: "whose shards have other documents in sum than were planned"
    }
    resting = {key for name in ("labels_follow", "quarantine_follows") for key in found.pop(name, {})}
    assert {other, *lost.ids, *pending.ids} - {"d0", "d1", "long"} <= resting <= {other, *lost.ids, *pending.ids}
    assert found == {}


def test_another_reader_comes_to_the_same(labelled: Road, targets: list[Target]) -> None:
    """delta-rs and a few lines of Python find nothing in sound tables, and in broken ones what `audit verify` names."""
    root = labelled.folder / "out"
    assert problems(root) == []
    version = labelled.job().prompt_version
    with broken(
        labelled,
        copied("d2"),
        "INSERT INTO {quarantine} SELECT * FROM {quarantine} WHERE doc_id = 'long'",
        IN_BOTH,
        f"DELETE FROM {{outcomes}} WHERE attempt = '{targets[0].attempt}'",
    ):
        assert problems(root) == [
            f"labels: {(version, 'd2')} stands 2 times",
            f"quarantine: {(version, 'long')} stands 2 times",
            f"both: {(version, 'none')}",
            f"shard {targets[0].name}: 0 facts of 0 documents, not {len(targets[0].ids)}",
        ]


def test_of_two_unfinished_runs_both_are_named(labelled: Road) -> None:
    """Completeness is then no question to answer: it says what to start."""
    own = {"run_id": "upper(run_id)", "state": "'ready'"}
    columns = ", ".join(f"{own[column]} AS {column}" if column in own else column for column in RUNS.names)
    with broken(labelled, f"INSERT INTO {{runs}} SELECT {columns} FROM {{runs}}"):
        found = asked(labelled, "one_unfinished_run", "complete")
    assert set(told(found["one_unfinished_run"])["one_unfinished_run"].values()) == {"unfinished beside another"}
    assert found["one_unfinished_run"].broken == 2
    assert found["complete"].verdict == "not checkable"
    assert "start it again" in str(found["complete"].reason)


def test_the_parts_of_a_split_shard_count_in_its_place(labelled: Road, targets: list[Target]) -> None:
    """A split shard's parts carry its facts and add up to it; parts of a shard that is not split count for nothing."""
    split = targets[0]
    first = labelled.sql(f"SELECT min(doc_hash) AS at FROM {{outcomes}} WHERE attempt = '{split.attempt}'")[0]["at"]
    part = f"shard_id + (CASE WHEN doc_hash = {first} THEN 1L ELSE 2L END << 32)"
    own = {
        "shard_id": "shard_id + (i << 32)",
        "lo": f"CASE i WHEN 1 THEN lo ELSE {first} + 1 END",
        "hi": f"CASE i WHEN 1 THEN {first} ELSE hi END",
        "documents": "CASE i WHEN 1 THEN 1 ELSE documents - 1 END",
    }
    parts = ", ".join(f"{own[column]} AS {column}" if column in own else column for column in SHARDS.names)
    statements = [
        *(
            f"UPDATE {{{table}}} SET shard_id = {part} WHERE {split.where}"
            for table in ("outcomes", "labels", "quarantine")
        ),
        f"INSERT INTO {{shards}} SELECT {parts} FROM {{shards}}, VALUES (1L), (2L) AS v(i) WHERE {split.where}",
        f"UPDATE {{shards}} SET state = 'split', attempt = NULL WHERE {split.where}",
    ]
    with broken(labelled, *statements):
        assert wrong(labelled) == {}
        labelled.sql(f"UPDATE {{shards}} SET documents = documents + 1 WHERE {split.where}")
        assert told(asked(labelled, "sums_of_shards")["sums_of_shards"])["sums_of_shards"] == {
            split.name: "whose parts have other documents in sum",
            split.name.partition("/")[0]: "whose shards have other documents in sum than were planned",
        }
        labelled.sql(f"UPDATE {{shards}} SET state = 'committed' WHERE {split.where}")
        found = asked(labelled, "complete_attempts", "labels_follow", "quarantine_follows")
        assert told(found["complete_attempts"])["complete_attempts"].keys() == {split.name}
        assert found["labels_follow"].broken + found["quarantine_follows"].broken == len(split.ids)


def test_a_source_that_is_gone_is_proven_complete_by_the_fingerprint(labelled: Road) -> None:
    """Without the source the run's fingerprint proves that the states hold just its documents; where they do not, that is
    no proof of a loss, and the answer says so. A retry is no measure of what is complete."""
    retry = 'UPDATE {runs} SET settings = concat(\'{{"retry":["too_long"],\', substr(settings, 2)) WHERE seq = 2'
    with broken(labelled, retry):
        found = asked(labelled, "complete")["complete"]
        assert (found.verdict, found.looked_at) == ("holds", "12 documents of the source at version 0")
    shutil.move(labelled.folder / "documents", labelled.folder / "moved")
    try:
        found = asked(labelled, "complete")["complete"]
        assert found.verdict == "holds"
        assert found.looked_at.startswith("12 documents by the fingerprint of run ")
        with broken(labelled, "DELETE FROM {labels} WHERE doc_id = 'd4'"):
            assert asked(labelled, "complete")["complete"].verdict == "not checkable"
    finally:
        shutil.move(labelled.folder / "moved", labelled.folder / "documents")


def test_the_command_reads_alone_and_says_by_its_exit_code_whether_anything_is_broken(
    labelled: Road, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 0 where all holds and 1 where something is broken, with keys that cannot forge a line, and one JSON object as
    the last line; of the settings it needs the root alone. 2 where there are no tables, or not that prompt_version."""
    conf = labelled.folder / "tables.yml"
    conf.write_text(yaml.safe_dump({"tables": labelled.settings["tables"]}))
    before = {table.name: labelled.versions(table.name) for table in TABLES}
    assert command(conf, "--json") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert before == {table: labelled.versions(table) for table in before}
    assert (found["holds"], found["broken"], found["not_checkable"]) == (14, 0, 0)
    rests_on = {one["invariant"]: int(one["looked_at"].split()[0]) for one in found["answers"]}
    assert rests_on["unique_labels"] == rests_on["known_labels"] == 10
    # d1 and none are open, long is resolved.
    assert rests_on["unique_quarantine"] == 3
    assert rests_on["complete"] == rests_on["label_or_failure"] == 12
    assert rests_on["one_unfinished_run"] == rests_on["sums_of_shards"] == 2

    version = labelled.job().prompt_version
    with broken(labelled, f"DELETE FROM {{labels}} WHERE doc_hash = xxhash64({literal(HOSTILE)})"):
        assert command(conf, "--prompt-version", version) == 1
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1]) == (f"prompt_version {version}", "12 hold, 2 broken, 0 not checkable")
    (key,) = (line.strip() for line in lines if line.endswith(": missing") and "1 broken" not in line)
    assert key.startswith("it's\\n\\x1b[31m yyy") and key.isprintable() and len(key) < 200
    (lost,) = (Path(urlsplit(file).path) for file in labelled.frame("SELECT * FROM {labels}").inputFiles()[:1])
    lost.rename(lost.with_suffix(".lost"))
    try:
        assert command(conf) == 1
    finally:
        lost.with_suffix(".lost").rename(lost)
    assert "reading labels failed: " in capsys.readouterr().err
    assert command(conf, "--prompt-version", "kind-000000000000") == 2
    nothing = labelled.folder / "nothing"
    assert command(conf, "--set", f"tables.root={nothing}") == 2
    assert "it has no table labels" in capsys.readouterr().err
    assert not nothing.exists()


@pytest.mark.slow
def test_a_run_that_broke_off_is_told_apart_from_what_is_broken(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    """With shards accepted and not committed nothing is broken, and what cannot be known yet is not said to hold; the
    rest is checked. Ended, with a limit, and over an older version of the source after that, all holds."""
    road.write(FIRST)
    road.run(limit=3)
    found = asked(road, "complete")["complete"]
    assert found.verdict == "holds"
    assert found.looked_at == "3 documents of the source at version 0, --limit 3"

    road.write(SECOND)
    with crashing(monkeypatch, Committer, "commit", before=True):
        road.run()
    broke_off = answers(road)
    assert {answer.verdict for answer in broke_off.values()} == {"holds", "not checkable"}
    assert broke_off["labels_follow"].verdict == broke_off["complete"].verdict == "not checkable"
    assert re.match(r"\d+ in shards that are accepted and not yet committed: ", str(broke_off["labels_follow"].reason))
    assert "start it again" in str(broke_off["complete"].reason)

    road.run()
    assert {answer.verdict for answer in answers(road).values()} == {"holds"}
    road.run("source.version=0")
    found = asked(road, "complete")["complete"]
    assert (found.verdict, found.looked_at) == ("holds", "12 documents of the source at version 0")


def command(conf: Path, *arguments: str) -> int:
    """Exit code of the command line."""
    with pytest.raises(SystemExit) as ended:
        main(["audit", "verify", "--conf", str(conf), *arguments])
    return int(ended.value.code or 0)
