"""The tables themselves: roots of both kinds, constraints, formats, and an independent reader."""

from __future__ import annotations

import uuid

import pytest
from deltalake import DeltaTable

from lakelabel.errors import SettingsError
from lakelabel.tables import Tables
from lakelabel_udfs.engines.fake import fake_label
from lakelabel_udfs.schema import LABELS as LABELS_TABLE
from lakelabel_udfs.schema import TABLES
from tests.road import TASK, Road

LABELS = tuple(TASK["labels"])


def test_a_catalog_and_schema_can_be_the_root(road: Road) -> None:
    """`catalog.schema` holds the same tables as a folder does, and the same road leads through them."""
    root = f"spark_catalog.lakelabel_{uuid.uuid4().hex[:8]}"
    road.settings["tables"]["root"] = root
    road.write([("a", "one"), ("b", "one"), ("c", "")])
    try:
        road.run()
        assert road.labels() == {"a": fake_label("one", LABELS), "b": fake_label("one", LABELS)}
        assert road.run()["documents"]["pending"] == 0
        assert {row["tableName"] for row in road.spark.sql(f"SHOW TABLES IN {root}").collect()} == {
            t.name for t in TABLES
        }
    finally:
        road.spark.sql(f"DROP SCHEMA {root} CASCADE")


def test_another_reader_sees_the_same_labels_and_what_wrote_them(road: Road) -> None:
    """delta-rs reads labels without Spark; the history of outcomes names run and settings, and states carry no such tag."""
    road.write([("a", "one"), ("b", "two")])
    report = road.run()
    table = DeltaTable(f"{road.folder}/out/labels")
    rows = table.to_pyarrow_table(columns=["doc_id", "label"]).to_pylist()
    assert {row["doc_id"]: row["label"] for row in rows} == {
        "a": fake_label("one", LABELS),
        "b": fake_label("two", LABELS),
    }
    outcomes = DeltaTable(f"{road.folder}/out/outcomes").history()
    assert any(report["run_id"] in entry.get("userMetadata", "") for entry in outcomes)
    assert not any("userMetadata" in entry for entry in table.history())


def test_what_a_state_must_not_hold_is_refused_by_the_table(road: Road) -> None:
    """NULL keys, NaN or out-of-range confidence and a missing label break a constraint, and add no version."""
    road.write([("a", "one")])
    road.run()
    before = road.versions("labels")
    for column, value in (
        ("confidence", "CAST('NaN' AS DOUBLE)"),
        ("confidence", "1.5D"),
        ("label", "NULL"),
        ("doc_id", "NULL"),
    ):
        columns = ", ".join(f"{value} AS {name}" if name == column else name for name in LABELS_TABLE.names)
        with pytest.raises(Exception, match=r"(?i)constraint|null"):
            road.sql(f"INSERT INTO {{labels}} SELECT {columns} FROM {{labels}}")
    assert road.versions("labels") == before


def test_tables_of_a_newer_format_are_refused(road: Road) -> None:
    """A table that a newer version wrote is left alone, and the message says to upgrade."""
    road.write([("a", "one")])
    road.run()
    road.sql("ALTER TABLE {labels} SET TBLPROPERTIES ('lakelabel.format' = '2')")
    with pytest.raises(SettingsError, match=r"labels has lakelabel.format 2 .* upgrade"):
        road.run()


def test_names_and_paths_are_quoted() -> None:
    """A root is a path when it has a slash or begins with a dot; backquotes cannot end a name."""
    assert Tables("main.labels").name(LABELS_TABLE) == "`main`.`labels`.`labels`"
    assert Tables("/data/it`s").name(LABELS_TABLE) == "delta.`/data/it``s/labels`"
    assert Tables("s3://bucket/x/").name(LABELS_TABLE) == "delta.`s3://bucket/x/labels`"
