"""Retry: quarantined documents once more, by code, and what becomes of their rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import pytest
import yaml

from lakelabel import cli
from lakelabel.errors import RunUnfinished, SettingsError
from lakelabel.facts import Gate
from lakelabel.ledger import Ledger
from lakelabel.planning import preview
from lakelabel_udfs.engines.fake import fake_label
from lakelabel_udfs.outcome import PASSING_FAILURES, FailureCode
from tests.road import TASK, Road
from tests.spark.rebuilt import assert_states_follow_from_facts
from tests.spark.test_resume import crashing

LABELS = tuple(TASK["labels"])
RULES = ("missing_doc_id", "duplicate_doc_id", "empty")


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, codes: dict[str, str]) -> Iterator[None]:
    """Within the block texts end with the given failure codes, after the engine was asked for them."""
    whole = Gate.code
    hashes = " ".join(f"WHEN content_hash = sha2('{text}', 256) THEN '{code}'" for text, code in codes.items())
    with monkeypatch.context() as patch:
        patch.setattr(Gate, "code", lambda gate: f"CASE {hashes} ELSE ({whole(gate)}) END")
        yield


def retry(road: Road, *codes: str, **options: Any) -> dict[str, Any]:
    """Retry these codes; the report."""
    return road.run(retry=codes, **options)


def rows_of(road: Road) -> dict[str, tuple[str, str, int]]:
    """doc_id to code, status and attempts of each row of quarantine."""
    return {
        row["doc_id"]: (row["failure_code"], row["status"], row["attempts"])
        for row in road.sql("SELECT * FROM {quarantine}")
    }


def test_each_code_takes_its_road(
    road: Road, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --code a retry takes what may pass by itself, infers each content once and resolves what it labels; a
    failure that was not asked for still settles its content; a changed text counts as it is now, and what left the
    source is counted and left. Codes that do not pass are taken by name."""
    codes = [code for code in get_args(FailureCode) if code not in RULES and code != "low_confidence"]
    rows: list[tuple[str | None, str]] = [(code, f"ends as {code}") for code in codes]
    rows += [("twin", "ends as crashed"), ("late", "ends as timed_out"), ("again", "fails again"), ("good", "good")]
    rows += [("none", ""), ("double", "x"), ("double", "y"), (None, "lost")]
    fails = {f"ends as {code}": code for code in codes} | {"fails again": "rejected", "before": "crashed"}
    road.write([*rows, ("gone", "before"), ("changed", "before"), ("moved", "before")])
    with failing(monkeypatch, fails):
        first = road.run()
    lost = next(key for key in road.open_failures() if key.startswith("no doc_id"))
    ends = {code: code for code in codes} | {"twin": "crashed", "late": "timed_out", "again": "rejected"}
    ends |= dict.fromkeys(("gone", "changed", "moved"), "crashed")
    assert road.open_failures() == {**ends, "none": "empty", "double": "duplicate_doc_id", lost: "missing_doc_id"}
    assert set(road.labels()) == {"good"}
    paid = road.inferred()

    road.write([*rows, ("changed", "after"), ("moved", "ends as too_long"), ("new", "not of a retry")])
    (road.folder / "conf.yml").write_text(yaml.safe_dump(road.settings))
    with failing(monkeypatch, {"fails again": "rejected"}), pytest.raises(SystemExit) as ended:
        cli.main(["retry", "--conf", str(road.folder / "conf.yml"), "--json"])
    out, err = capsys.readouterr()
    report = json.loads(out.splitlines()[-1])
    assert ended.value.code == 0
    assert "1 quarantined documents are gone from the source" in err
    counted = {name: n for name, n in report["documents"].items() if n}
    assert counted == {
        "source": 11,
        "gone": 1,
        "pending": 11,
        "inferred": 8,
        "copied": 3,
        "labeled": 9,
        "quarantined": 2,
    }
    assert report["quarantine"] == {"rejected": 1, "too_long": 1}
    assert road.inferred() - paid == 8
    texts = {key: text for key, text in rows if key} | {"changed": "after"}
    mended = {*PASSING_FAILURES, "twin", "late", "changed"}
    assert road.labels() == {key: fake_label(texts[key], LABELS) for key in {*mended, "good"}}
    quarantined = rows_of(road)
    assert {key for key, row in quarantined.items() if row[1] == "resolved"} == mended
    assert {quarantined[key][2] for key in mended} == {1}
    assert quarantined["again"] == ("rejected", "open", 2)
    assert quarantined["moved"] == ("too_long", "open", 2)
    assert quarantined["gone"] == ("crashed", "open", 1)
    left = ("too_long", "invalid_label", "none", "double", lost)
    assert all(quarantined[key][1:] == ("open", 1) for key in left)
    by = road.sql("SELECT DISTINCT resolved_by FROM {quarantine} WHERE status = 'resolved'")
    assert [row["resolved_by"] for row in by] == [report["run_id"]] != [first["run_id"]]
    (run,) = road.sql(f"SELECT settings, documents FROM {{runs}} WHERE run_id = '{report['run_id']}'")
    assert json.loads(run["settings"])["retry"] == sorted(PASSING_FAILURES)
    assert run["documents"] == report["documents"]
    assert_states_follow_from_facts(road)

    named = retry(road, *RULES, "too_long")
    assert {name: n for name, n in named["documents"].items() if n} == {
        "source": 5,
        "pending": 5,
        "by_rule": 3,
        "inferred": 1,
        "copied": 1,
        "labeled": 2,
        "quarantined": 3,
    }
    assert named["documents"]["gone"] == 0
    quarantined = rows_of(road)
    assert quarantined["none"] == ("empty", "open", 2)
    assert quarantined["moved"] == ("too_long", "resolved", 2)
    assert quarantined["invalid_label"] == ("invalid_label", "open", 1)
    assert_states_follow_from_facts(road)

    after = road.run()
    assert {name: n for name, n in after["documents"].items() if n and not name.startswith("already")} == {
        "source": 18,
        "pending": 1,
        "inferred": 1,
        "labeled": 1,
    }


@pytest.mark.slow
def test_what_is_known_by_now_is_copied_and_not_paid_for(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    """A label that the content got meanwhile settles a retry, as does a low confidence that passes today's threshold;
    one that does not is inferred anew. `--limit` counts quarantined documents, and a failure of a newer source version
    is left."""
    for _ in range(2):
        road.write([("a", "one"), ("b", "two"), ("c", "three")])
    with failing(monkeypatch, {"one": "timed_out"}):
        road.run("quality.min_confidence=1.0")
    (lowest,) = road.sql(
        "SELECT doc_id, first_failed_at FROM {quarantine} WHERE doc_id <> 'a' ORDER BY doc_hash LIMIT 1"
    )
    report = road.run("quality.min_confidence=1.0", retry=("low_confidence",), limit=1)
    assert (report["documents"]["source"], report["documents"]["inferred"], road.inferred()) == (1, 1, 4)
    row = road.sql(f"SELECT * FROM {{quarantine}} WHERE doc_id = '{lowest['doc_id']}'")[0]
    assert (row["failure_code"], row["attempts"], row["first_failed_at"]) == (
        *("low_confidence", 2),
        lowest["first_failed_at"],
    )

    road.write([("a", "one"), ("b", "two"), ("c", "three"), ("d", "one")])
    assert road.run()["documents"]["inferred"] == 1
    of_the_past = preview(road.spark, road.job("source.version=0", retry=("timed_out",))).documents
    assert (of_the_past["source"], of_the_past["already_quarantined"], of_the_past["pending"]) == (1, 1, 0)
    report = retry(road, "timed_out")
    assert (report["documents"]["source"], report["documents"]["copied"]) == (1, 1)
    report = retry(road, "low_confidence")
    assert (report["documents"]["inferred"], report["documents"]["copied"]) == (0, 2)
    assert road.labels() == {
        key: fake_label(text, LABELS) for key, text in (("a", "one"), ("b", "two"), ("c", "three"), ("d", "one"))
    }
    assert road.inferred() == 5
    assert_states_follow_from_facts(road)


def test_a_retry_resumes_and_classify_comes_first(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry is refused, and touches nothing, without tables and while a run of classify is unfinished. A retry that
    broke off is gone on with by the same retry, over its own plan; classify closes it and commits what it accepted."""
    rows = [("a", "one"), ("b", "two"), ("c", "three")]
    road.write(rows)
    with pytest.raises(SettingsError, match=r"tables\.root .* run classify first"):
        retry(road, "timed_out")
    assert not (road.folder / "out").exists()
    with failing(monkeypatch, {"one": "timed_out", "two": "refused"}):
        with crashing(monkeypatch, Ledger, "accept", before=True):
            road.run()
        before = {name: road.versions(name) for name in ("leases", "runs", "labels")}
        with pytest.raises(RunUnfinished, match=r"is unfinished; run classify first") as refused:
            retry(road, "timed_out")
        assert refused.value.exit_code == 2
        assert {name: road.versions(name) for name in before} == before
        road.run()
    assert road.open_failures() == {"a": "timed_out", "b": "refused"}

    with crashing(monkeypatch, Ledger, "accept", before=True):
        retry(road, "timed_out")
    road.write([*rows, ("d", "four")])
    report = retry(road, "timed_out")
    assert (len(report["runs"]), report["documents"]["inferred"], road.inferred()) == (1, 1, 4)
    assert set(road.labels()) == {"a", "c"}

    with crashing(monkeypatch, Ledger, "accept", before=False):
        retry(road, "refused")
    report = road.run()
    assert (report["documents"]["already_labeled"], report["documents"]["inferred"]) == (3, 1)
    assert set(road.labels()) == {"a", "b", "c", "d"}
    assert road.open_failures() == {}
    assert road.inferred() == 6
    states = road.sql("SELECT state, count(*) AS n FROM {runs} GROUP BY state")
    assert {row["state"]: row["n"] for row in states} == {"finished": 3, "closed": 1}
    assert_states_follow_from_facts(road)
