"""The ledger: which runs there are, which shards they have, and which attempt of each counts.

Every step that two drivers could both take is a conditional update, and who won is read back from the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelabel.canonical import canonical_json
from lakelabel.delta import retried
from lakelabel.errors import RunFailed
from lakelabel.tables import Tables, in_list, values_sql
from lakelabel_udfs.schema import OUTCOMES, RUNS, SHARDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

RULE_SHARD = 0
_TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens")


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


@dataclass(frozen=True)
class Shard:
    """One row of ``shards``: a range of doc_hash (inclusive), how much lies in it, and how far it has come."""

    shard_id: int
    kind: str
    lo: int
    hi: int
    documents: int
    tokens: int
    state: str = "pending"
    attempt: str | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Complete:
    """An attempt whose rows are all in ``outcomes``: the shard, the UUID that the rows carry, and their tokens
    (prompt, cached, completion)."""

    shard_id: int
    attempt: str
    tokens: tuple[int | None, ...]


class Ledger:
    """Reads and conditional updates of ``runs`` and ``shards``."""

    def __init__(self, spark: SparkSession, tables: Tables) -> None:
        self._spark = spark
        self._tables = tables

    # Runs.

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
        self._tables.append(row.selectExpr("*", *rest), RUNS, run.metadata)

    def move_run(self, run_id: str, before: str, after: str, also: dict[str, str] | None = None) -> None:
        """Take a run from one state to the next; ``also`` are further columns and their SQL values. Raises RunFailed."""
        values = {"state": f"'{after}'", "updated_at": "current_timestamp()", **(also or {})}
        assignments = ", ".join(f"{column} = {value}" for column, value in values.items())
        name = self._tables.name(RUNS)
        retried(
            lambda: self._spark.sql(
                f"UPDATE {name} SET {assignments} WHERE run_id = {in_list([run_id])} AND state = '{before}'"
            ).collect()
        )
        now = self._tables.read(self._spark, RUNS).where(f"run_id = {in_list([run_id])}").select("state").collect()
        if [row["state"] for row in now] != [after]:
            raise RunFailed(
                f"run {run_id} is {now[0]['state'] if now else 'gone'}, not {after}: another driver moved it"
            )

    # Shards.

    def add_shards(self, run: Run, shards: Iterable[Shard]) -> None:
        """Write the shards of a run that is being planned."""
        columns = [column for column in SHARDS.columns if column.name != "updated_at"]
        rows = [
            (
                *(run.run_id, shard.shard_id, run.prompt_version, shard.kind, shard.lo, shard.hi),
                *(shard.documents, shard.tokens, shard.state, shard.attempt, 0, *[None] * 4),
            )
            for shard in shards
        ]
        schema = ", ".join(f"{column.name} {column.type}" for column in columns)
        frame = self._spark.createDataFrame(rows, schema).selectExpr("*", "current_timestamp() AS updated_at")
        self._tables.append(frame, SHARDS, run.metadata)

    def shards(self, run_id: str) -> list[Shard]:
        """The shards of a run, by id. Their number is bounded by the plan, not by the table."""
        rows = self._of_run(run_id).select(*Shard.__dataclass_fields__).orderBy("shard_id").collect()
        return [Shard(**row.asDict()) for row in rows]

    def complete(self, run: Run, shards: Sequence[Shard]) -> list[Complete]:
        """For each of these shards an attempt whose rows in the table, counted and distinct, are the shard's documents."""
        expected = {shard.shard_id: shard.documents for shard in shards}
        counts = [f"sum({kind}) AS {kind}" for kind in _TOKENS]
        rows = (
            self._outcomes(run)
            .where(f"shard_id IN ({_numbers(list(expected))})")
            .groupBy("shard_id", "attempt")
            .agg(*_exprs("count(*) AS n", "count(DISTINCT doc_hash, doc_id) AS n_distinct", *counts))
            .collect()
        )
        found: dict[int, Complete] = {}
        for row in sorted(rows, key=lambda row: str(row["attempt"])):
            if row["n"] == row["n_distinct"] == expected[row["shard_id"]]:
                tokens = tuple(row[kind] for kind in _TOKENS)
                found.setdefault(row["shard_id"], Complete(row["shard_id"], row["attempt"], tokens))
        return list(found.values())

    def accept(self, run: Run, complete: Sequence[Complete], seconds: dict[str, float]) -> None:
        """Accept complete attempts of pending shards in one update. Which attempt won is for ``shards`` to say.

        ``seconds`` are the wall seconds of the attempts' jobs, by attempt, where they are known.
        """
        columns = ("shard_id", "attempt", *_TOKENS, "seconds")
        source = values_sql(columns, [(c.shard_id, c.attempt, *c.tokens, seconds.get(c.attempt)) for c in complete])
        ids = _numbers([c.shard_id for c in complete])
        retried(
            lambda: self._spark.sql(
                f"MERGE INTO {self._tables.name(SHARDS)} t USING {source} s "
                f"ON t.run_id = {in_list([run.run_id])} AND t.shard_id IN ({ids}) AND t.shard_id = s.shard_id "
                "WHEN MATCHED AND t.state = 'pending' THEN UPDATE SET t.state = 'accepted', t.attempt = s.attempt, "
                "t.tries = t.tries + 1, t.seconds = s.seconds, t.updated_at = current_timestamp(), "
                + ", ".join(f"t.{kind} = s.{kind}" for kind in _TOKENS)
            ).collect()
        )

    def mark_committed(self, run: Run, shards: Sequence[Shard]) -> None:
        """Mark accepted shards whose facts are in both states."""
        ids = _numbers([shard.shard_id for shard in shards])
        self._move_shards(run.run_id, f"shard_id IN ({ids}) AND state = 'accepted'", "committed")

    def close_shards(self, run: Run, *states: str) -> None:
        """Close all shards of a run in these states, in one update: no attempt of a closed one counts or ever will."""
        self._move_shards(run.run_id, f"state IN ({in_list(states)})", "closed")

    def is_closing(self, run: Run) -> bool:
        """Whether an earlier start began to close this run: it must not be gone on with, whatever its settings."""
        return not self._of_run(run.run_id).where("state = 'closed'").isEmpty()

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

    def _move_shards(self, run_id: str, which: str, after: str) -> None:
        retried(
            lambda: self._spark.sql(
                f"UPDATE {self._tables.name(SHARDS)} SET state = '{after}', updated_at = current_timestamp() "
                f"WHERE run_id = {in_list([run_id])} AND {which}"
            ).collect()
        )

    def _of_run(self, run_id: str) -> DataFrame:
        return self._tables.read(self._spark, SHARDS).where(f"run_id = {in_list([run_id])}")

    def _outcomes(self, run: Run) -> DataFrame:
        return self._tables.read(self._spark, OUTCOMES).where(
            f"prompt_version = {in_list([run.prompt_version])} AND run_id = {in_list([run.run_id])}"
        )


def accepted_facts(spark: SparkSession, tables: Tables, prompt_version: str) -> DataFrame:
    """Every fact that counts: the rows of ``outcomes`` whose attempt is the accepted one of its shard."""
    accepted = (
        tables.read(spark, SHARDS)
        .where(f"prompt_version = {in_list([prompt_version])} AND state IN ('accepted', 'committed')")
        .select("run_id", "shard_id", "attempt")
    )
    facts = tables.read(spark, OUTCOMES).where(f"prompt_version = {in_list([prompt_version])}")
    return facts.join(accepted, ["run_id", "shard_id", "attempt"], "left_semi")


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(str(int(value)) for value in values)


def _exprs(*texts: str) -> list[Column]:
    from pyspark.sql.functions import expr

    return [expr(text) for text in texts]
