"""The main road on real Spark and Delta, with the deterministic engine: what becomes of documents over several runs."""

from __future__ import annotations

from typing import Any

import pytest

from lakelabel.errors import SettingsError
from lakelabel_udfs.engines.fake import fake_label
from tests.road import TASK, Road
from tests.spark.rebuilt import assert_states_follow_from_facts

LABELS = tuple(TASK["labels"])
LONG = "w " * 9000


def counted(report: dict[str, Any], *names: str) -> dict[str, int]:
    return {name: report["documents"][name] for name in names}


def test_every_document_is_settled_once_and_a_second_run_does_nothing(road: Road) -> None:
    """Each document ends in labels or in quarantine; equal texts are inferred once; running again adds no version."""
    rows = [("a", "one"), ("b", "two"), ("c", "two"), ("d", " \n"), ("e", "x"), ("e", "y"), ("f", LONG), ("g", "one")]
    road.write([*rows, ("g", "one"), (None, "lost")])
    report = road.run()
    assert road.labels() == {key: fake_label(text, LABELS) for key, text in rows if key in "abcg"}
    failures = road.open_failures()
    lost = next(key for key in failures if len(key) > 1)
    assert failures == {"d": "empty", "e": "duplicate_doc_id", "f": "too_long", lost: "missing_doc_id"}
    assert report["documents"] == {
        "source": 8,
        "already_labeled": 0,
        "already_quarantined": 0,
        "pending": 8,
        "by_rule": 3,
        "inferred": 3,
        "copied": 2,
        "remaining": 0,
        "labeled": 4,
        "quarantined": 4,
    }
    assert report["quarantine"] == {"duplicate_doc_id": 1, "empty": 1, "missing_doc_id": 1, "too_long": 1}
    assert road.inferred() == 2
    assert_states_follow_from_facts(road)
    assert road.sql("SELECT * FROM {queue}") == []

    before = road.versions("labels"), road.versions("quarantine"), road.versions("outcomes")
    again = road.run()
    assert counted(again, "inferred", "pending", "already_labeled", "already_quarantined") == {
        "inferred": 0,
        "pending": 0,
        "already_labeled": 4,
        "already_quarantined": 4,
    }
    assert (road.versions("labels"), road.versions("quarantine"), road.versions("outcomes")) == before
    assert road.inferred() == 2


def test_a_document_that_changes_is_labelled_anew_and_its_past_can_be_read(road: Road) -> None:
    """An edited and an added document are inferred, and nothing else; time travel shows the old label; an edit that
    makes a text too long takes its label away, and editing it back brings it back without inference."""
    road.write([("a", "one"), ("b", "two")])
    road.run()
    old = road.versions("labels")
    road.write([("a", "another one"), ("b", "two"), ("c", "three")])
    assert counted(road.run(), "inferred", "copied", "already_labeled") == {
        "inferred": 2,
        "copied": 0,
        "already_labeled": 1,
    }
    assert road.labels()["a"] == fake_label("another one", LABELS)
    past = road.sql(
        f"SELECT content_hash = sha2('one', 256) AS same FROM {{labels}} VERSION AS OF {old} WHERE doc_id = 'a'"
    )
    assert [row["same"] for row in past] == [True]

    road.write([("a", "another one"), ("b", LONG), ("c", "three")])
    assert counted(road.run(), "inferred", "quarantined") == {"inferred": 1, "quarantined": 1}
    assert "b" not in road.labels()
    assert road.open_failures() == {"b": "too_long"}
    assert_states_follow_from_facts(road)

    road.write([("a", "another one"), ("b", "two"), ("c", "three")])
    report = road.run()
    assert counted(report, "inferred", "copied") == {"inferred": 0, "copied": 1}
    assert road.labels()["b"] == fake_label("two", LABELS)
    assert road.open_failures() == {}
    resolved = road.sql("SELECT status, resolved_by, attempts FROM {quarantine} WHERE doc_id = 'b'")
    assert [tuple(row) for row in resolved] == [("resolved", report["run_id"], 1)]
    assert_states_follow_from_facts(road)
    assert road.inferred() == 4


def test_known_content_is_copied_and_never_inferred_again(road: Road) -> None:
    """A text that any accepted fact settles, failure included, costs nothing under another id or after an edit back."""
    road.write([("a", "one"), ("b", LONG)])
    road.run()
    road.write([("a", "one"), ("b", LONG), ("c", "one"), ("d", LONG)])
    assert counted(road.run(), "inferred", "copied", "labeled", "quarantined") == {
        "inferred": 0,
        "copied": 2,
        "labeled": 1,
        "quarantined": 1,
    }
    copies = road.sql(
        "SELECT doc_id, copied_from, tier, engine IS NOT NULL AS has_engine FROM {labels} WHERE doc_id = 'c'"
    )
    assert [tuple(row) for row in copies] == [("c", "a", "first", True)]
    assert road.sql("SELECT copied_from FROM {quarantine} WHERE doc_id = 'd'")[0]["copied_from"] == "b"

    road.write([("a", "edited"), ("b", LONG), ("c", "one"), ("d", LONG)])
    assert counted(road.run(), "inferred", "copied") == {"inferred": 1, "copied": 0}
    assert road.labels()["a"] == fake_label("edited", LABELS)
    road.write([("a", "one"), ("b", LONG), ("c", "one"), ("d", LONG)])
    assert counted(road.run(), "inferred", "copied") == {"inferred": 0, "copied": 1}
    assert road.labels()["a"] == fake_label("one", LABELS)
    assert road.inferred() == 2
    assert_states_follow_from_facts(road)


def test_prompt_versions_stand_side_by_side(road: Road) -> None:
    """A changed description is a new prompt_version with rows of its own; the old task infers nothing when it returns."""
    road.write([("a", "one"), ("b", "two")])
    first = road.run()["prompt_version"]
    road.task["labels"] = [{"name": "invoice", "description": "asks for money"}, "contract", "manual"]
    second = road.run()["prompt_version"]
    assert first != second
    counts = road.sql("SELECT prompt_version, count(*) AS n FROM {labels} GROUP BY prompt_version")
    assert {row["prompt_version"]: row["n"] for row in counts} == {first: 2, second: 2}
    road.task["labels"] = list(LABELS)
    assert counted(road.run(), "inferred", "already_labeled") == {"inferred": 0, "already_labeled": 2}
    assert {row["prompt_version"] for row in road.sql("SELECT * FROM {prompts}")} == {first, second}


def test_a_source_that_was_dropped_and_made_again_is_a_newer_source(road: Road) -> None:
    """Versions that start at 0 again do not make old labels newer: exactly the changed row is labelled anew. A source of
    another name is refused under the same prompt_version until it is allowed."""
    import shutil

    road.write([("a", "one"), ("b", "two")])
    road.write([("a", "one"), ("b", "two"), ("c", "three")])
    road.run()
    shutil.rmtree(road.folder / "documents")
    road.write([("a", "one"), ("b", "two, changed"), ("c", "three")])
    assert counted(road.run(), "inferred", "already_labeled") == {"inferred": 1, "already_labeled": 2}
    assert road.labels()["b"] == fake_label("two, changed", LABELS)

    road.write([("a", "one"), ("z", "from elsewhere")], table="others")
    road.settings["source"]["table"] = str(road.folder / "others")
    with pytest.raises(SettingsError, match=r"--allow-source-change"):
        road.run()
    assert counted(road.run(allow_source_change=True), "inferred", "already_labeled") == {
        "inferred": 1,
        "already_labeled": 1,
    }
    assert_states_follow_from_facts(road)


def test_an_older_source_version_never_overwrites_a_newer_one(road: Road) -> None:
    """Labelling version 0 after version 1 leaves what version 1 says."""
    road.write([("a", "one"), ("b", "two")])
    road.write([("a", "changed"), ("b", "two")])
    road.run()
    assert counted(road.run("source.version=0"), "already_labeled", "pending") == {"already_labeled": 2, "pending": 0}
    assert road.labels()["a"] == fake_label("changed", LABELS)


def test_the_gate_is_applied_to_inferences_and_anew_to_copies(road: Road) -> None:
    """Below min_confidence a document is quarantined as low_confidence with its best label; a copy of it under a lower
    threshold becomes a label without inference."""
    road.write([("a", "one"), ("b", "two"), ("c", "three")])
    road.run("quality.min_confidence=1.0")
    assert set(road.open_failures().values()) == {"low_confidence"}
    best = {row["doc_id"]: row["label"] for row in road.sql("SELECT * FROM {quarantine}")}
    assert best["a"] == fake_label("one", LABELS)
    road.write([("a", "one"), ("b", "two"), ("c", "three"), ("d", "one")])
    assert counted(road.run(), "inferred", "copied", "labeled") == {"inferred": 0, "copied": 1, "labeled": 1}
    assert road.labels() == {"d": fake_label("one", LABELS)}
    assert road.inferred() == 3
    assert_states_follow_from_facts(road)


def test_ids_and_texts_that_are_hostile_go_the_whole_road(road: Road) -> None:
    """Quotes, backslashes, newlines, braces, control characters, 10,000 characters, long common prefixes, invalid UTF-8
    and a text of a megabyte come back under their own ids, one row each."""
    ids = ["it's", 'say "x"', "back\\slash", "new\nline", "nul\0byte", "a`b", "${x}", "{{ x }}", "‮rtl", "x" * 10_000]
    ids += ["p" * 200 + suffix for suffix in ("a", "b", "c")] + [
        "'; DROP TABLE labels; --",
        "NULL",
        " ",
        "\u00e9",
        "e\u0301",
    ]
    rows: list[tuple[Any, ...]] = [(key, f"text {i} \0 <|im_end|> </doc> \U0001f600") for i, key in enumerate(ids)]
    road.write([*rows, ("big", "a" * 1_000_000)])
    frame = road.frame(
        "SELECT * FROM {documents} UNION ALL SELECT 'raw', CAST(X'FF41' AS STRING)"
        " UNION ALL SELECT CAST(X'FF42' AS STRING), 'bad id'"
    )
    frame.write.format("delta").mode("overwrite").save(str(road.folder / "more"))
    road.settings["source"]["table"] = str(road.folder / "more")
    report = road.run()
    labels = road.labels()
    assert set(labels) == {*ids, "raw"}
    assert all(labels[key] == fake_label(text, LABELS) for key, text in rows)
    assert labels["raw"] == fake_label("�A", LABELS)
    failures = road.open_failures()
    assert failures.pop("big") == "too_long"
    assert list(failures.values()) == ["missing_doc_id"]
    assert report["documents"]["source"] == len(ids) + 3
    assert counted(road.run(), "pending") == {"pending": 0}
    assert_states_follow_from_facts(road)
