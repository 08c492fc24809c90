"""The ledger: which runs there are, which shards they have, and which attempt of each counts.

Every step that two drivers could both take is a conditional update, and who won is read back from the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakelabel.canonical import canonical_json
from lakelabel.errors import RunFailed
from lakelabel.points import around
from lakelabel.shards import Shards
from lakelabel.tables import Tables, in_list, values_sql
from lakelabel_udfs.schema import OUTCOMES, QUEUE, RUNS, SHARDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


@dataclass(frozen=True)
class Run:
    """One row of ``runs``: what a run is bound to."""

    run_id: str
    prompt_version: str
    seq: int
    state: str
    settings_digest: str
    source_table: str
    source_table_id: str
    source_version: int
    tier: str
    model_id: str
    model_revision: str | None
    documents: dict[str, int]

    @property
    def metadata(self) -> str:
        """What the appends of a run leave in the history of their table."""
        return canonical_json({"run_id": self.run_id, "settings_digest": self.settings_digest})

    @classmethod
    def of(cls, row: Row) -> Run:
        """The run of a row of the table."""
        values = {name: row[name] for name in cls.__dataclass_fields__}
        return cls(**{**values, "documents": dict(row["documents"] or {})})


class Ledger(Shards):
    """Reads and conditional updates of ``runs`` and ``shards``."""

    def runs(self, prompt_version: str) -> list[Run]:
        """The runs of one prompt_version, oldest first."""
        rows = (
            self._tables.read(self._spark, RUNS)
            .where(f"prompt_version = {in_list([prompt_version])}")
            .select(*Run.__dataclass_fields__)
            .orderBy("seq", "created_at")
            .collect()
        )
        return [Run.of(row) for row in rows]

    def add_run(self, run: Run, settings: str, also: dict[str, str] | None = None) -> None:
        """Write the row of a run; ``settings`` is JSON without secrets, ``also`` further columns and their SQL values."""
        given = {name: getattr(run, name) for name in Run.__dataclass_fields__ if name != "documents"}
        given["settings"] = settings
        row = self._spark.sql(f"SELECT * FROM {values_sql(tuple(given), [tuple(given.values())])}")
        values = {"created_at": "current_timestamp()", "updated_at": "current_timestamp()", **(also or {})}
        rest = [
            f"CAST({values.get(column.name, 'NULL')} AS {column.type}) AS {column.name}"
            for column in RUNS.columns
            if column.name not in given
        ]
        self._guard()
        with around("runs.add"):
            self._tables.append(row.selectExpr("*", *rest), RUNS, run.metadata)

    def move_run(self, run_id: str, before: str, after: str, also: dict[str, str] | None = None) -> None:
        """Take a run from one state to the next; ``also`` are further columns and their SQL values. Raises RunFailed."""
        values = {"state": f"'{after}'", "updated_at": "current_timestamp()", **(also or {})}
        assignments = ", ".join(f"{column} = {value}" for column, value in values.items())
        point = {"ready": "runs.ready", "finished": "runs.finish", "closed": "runs.close"}[after]
        self._write(
            point,
            f"UPDATE {self._tables.name(RUNS)} SET {assignments} "
            f"WHERE run_id = {in_list([run_id])} AND state = '{before}'",
        )
        now = self._tables.read(self._spark, RUNS).where(f"run_id = {in_list([run_id])}").select("state").collect()
        if [row["state"] for row in now] != [after]:
            raise RunFailed(
                f"run {run_id} is {now[0]['state'] if now else 'gone'}, not {after}: another driver moved it"
            )

    def unfinished_elsewhere(self, task: str, prompt_version: str) -> list[str]:
        """Unfinished runs under other prompt_versions of the same task, newest last, as `run_id (prompt_version)`."""
        rows = (
            self._tables.read(self._spark, RUNS)
            .where(f"state IN ('planning', 'ready') AND prompt_version <> {in_list([prompt_version])}")
            .where(f"regexp_replace(prompt_version, '-[0-9a-f]{{12}}$', '') = {in_list([task])}")
            .orderBy("created_at")
            .select("run_id", "prompt_version")
            .collect()
        )
        return [f"{row['run_id']} ({row['prompt_version']})" for row in rows]

    def left_behind(self, prompt_version: str) -> list[Run]:
        """Ended runs that have pending shards or a queue: of a driver that woke in the middle of a plan that another one
        had closed meanwhile."""
        read = partial(self._tables.read, self._spark)
        left = (
            read(SHARDS).where("state = 'pending'").select("run_id").unionAll(read(QUEUE).select("run_id").distinct())
        )
        rows = (
            read(RUNS)
            .where(f"prompt_version = {in_list([prompt_version])} AND state IN ('closed', 'finished')")
            .join(left, "run_id", "left_semi")
            .select(*Run.__dataclass_fields__)
            .collect()
        )
        return [Run.of(row) for row in rows]

    def newest_writer(self, prompt_version: str) -> Run | None:
        """The newest run whose facts count under this prompt_version: its model and source are what the rows carry."""
        wrote = self._tables.read(self._spark, SHARDS).where("state IN ('accepted', 'committed')").select("run_id")
        rows = (
            self._tables.read(self._spark, RUNS)
            .where(f"prompt_version = {in_list([prompt_version])}")
            .join(wrote, "run_id", "left_semi")
            .select(*Run.__dataclass_fields__)
            .orderBy("seq", "created_at", ascending=False)
            .limit(1)
            .collect()
        )
        return Run.of(rows[0]) if rows else None


def accepted_facts(spark: SparkSession, tables: Tables, prompt_version: str) -> DataFrame:
    """Every fact that counts: the rows of ``outcomes`` whose attempt is the accepted one of its shard."""
    accepted = (
        tables.read(spark, SHARDS)
        .where(f"prompt_version = {in_list([prompt_version])} AND state IN ('accepted', 'committed')")
        .select("run_id", "shard_id", "attempt")
    )
    facts = tables.read(spark, OUTCOMES).where(f"prompt_version = {in_list([prompt_version])}")
    return facts.join(accepted, ["run_id", "shard_id", "attempt"], "left_semi")
