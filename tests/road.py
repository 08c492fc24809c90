"""A road for tests: a source table, settings and the real command below one folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import DataFrame, Row, SparkSession

from lakelabel.job import Job, Options, open_job
from lakelabel.run import classify
from lakelabel.settings import load
from lakelabel.tables import Tables
from lakelabel.task import load_task

TASK = {"name": "kind", "instruction": "What is it?", "labels": ["invoice", "contract", "manual"]}


class Silent:
    """A reporter that keeps what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def begin(self, documents: int) -> None:
        self.lines.append(f"begin {documents}")

    def advance(self, documents: int) -> None:
        self.lines.append(f"advance {documents}")


@dataclass
class Road:
    """A folder with a source table and settings for it, labelled by the fake engine."""

    spark: SparkSession
    folder: Path
    inferences: Path
    settings: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=lambda: dict(TASK))
    reporter: Silent = field(default_factory=Silent)

    def __post_init__(self) -> None:
        self.settings = {
            "source": {"table": str(self.folder / "documents"), "id": "id", "text": "{{ text }}"},
            "task": "task.yml",
            "tables": {"root": str(self.folder / "out")},
            "engine": {"kind": "fake"},
        }

    def write(
        self, rows: Sequence[tuple[Any, ...]], schema: str = "id STRING, text STRING", table: str = "documents"
    ) -> None:
        """Overwrite the source with rows."""
        frame = self.spark.createDataFrame(list(rows), schema)
        frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(self.folder / table))

    def sql(self, text: str) -> list[Row]:
        """Run SQL in which {name} stands for a table of the output, {documents} for the source."""
        return self.frame(text).collect()

    def frame(self, text: str) -> DataFrame:
        """The same, not collected."""
        names = ("labels", "quarantine", "outcomes", "shards", "queue", "runs", "prompts", "leases")
        root = self.settings["tables"]["root"]
        tables = {name: f"delta.`{root}/{name}`" if "/" in root else f"{root}.{name}" for name in names}
        return self.spark.sql(text.format(**tables, documents=f"delta.`{self.folder}/documents`"))

    def job(self, *overrides: str, **options: Any) -> Job:
        """Settings and task as they stand now, bound and checked."""
        (self.folder / "task.yml").write_text(yaml.safe_dump(self.task))
        (self.folder / "conf.yml").write_text(yaml.safe_dump(self.settings))
        settings = load(self.folder / "conf.yml", overrides)
        return open_job(self.spark, settings, load_task(settings.task), Options(**options))

    def run(self, *overrides: str, plan_only: bool = False, **options: Any) -> dict[str, Any]:
        """Run classify; the report, after checking that its sums hold."""
        report = classify(self.spark, self.job(*overrides, **options), self.reporter, plan_only).as_dict()
        d = report["documents"]
        assert d["source"] == d["already_labeled"] + d["already_quarantined"] + d["pending"], d
        assert d["pending"] == d["by_rule"] + d["inferred"] + d["copied"] + d["remaining"], d
        assert d["by_rule"] + d["inferred"] + d["copied"] == d["labeled"] + d["quarantined"], d
        if not plan_only:
            assert d["remaining"] == 0, d
        json.dumps(report, allow_nan=False)
        return report

    def inferred(self) -> int:
        """Inferences that the fake engine has made so far, counted outside the tables."""
        return len(self.inferences.read_text().splitlines()) if self.inferences.exists() else 0

    def versions(self, table: str) -> int:
        """Newest version of one of the output tables."""
        return int(self.sql(f"DESCRIBE HISTORY {{{table}}} LIMIT 1")[0]["version"])

    def labels(self) -> dict[str, str]:
        """doc_id to label, of the current prompt_version."""
        version = self.job().prompt_version
        return {
            row["doc_id"]: row["label"]
            for row in self.sql(f"SELECT * FROM {{labels}} WHERE prompt_version = '{version}'")
        }

    def open_failures(self) -> dict[str, str]:
        """doc_id to failure code, of the current prompt_version."""
        version = self.job().prompt_version
        where = f"prompt_version = '{version}' AND status = 'open'"
        return {row["doc_id"]: row["failure_code"] for row in self.sql(f"SELECT * FROM {{quarantine}} WHERE {where}")}

    @property
    def tables(self) -> Tables:
        return Tables(self.settings["tables"]["root"])
