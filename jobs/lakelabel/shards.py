"""Shards in the ledger: what each holds, how far it has come, and which attempt of it counts.

A shard that killed its worker is split. Its parts are known by their ids, and one counts only while its parent is
``split``: so one conditional commit, in which the parent changes and the parts appear, can never count a document twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelabel.delta import retried
from lakelabel.points import around
from lakelabel.tables import Tables, in_list, values_sql
from lakelabel_udfs.schema import OUTCOMES, SHARDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from lakelabel.ledger import Run

RULE_SHARD = 0
TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens")
"""What an engine counts of each document, and the ledger of each accepted attempt."""

LEVELS = (32, 42, 52)
"""From which bit on an id says the part: of a planned shard, of a part, of a part of a part."""

MOST_PARTS = 2**10 - 1
"""Parts of one split at most: an id has ten bits for each level, above the 32 of the planned id."""


def part_id(parent: int, index: int) -> int:
    """Id of the part of a shard with this index, from 0. Raises ValueError for a shard of the last level."""
    for shift in LEVELS:
        if parent >> shift == 0:
            return parent | (index + 1) << shift
    raise ValueError(f"shard {parent} has been split {len(LEVELS)} times, and no part of it can be split again")


def can_be_split(shard: int) -> bool:
    """Whether there are ids for parts of this shard. What was split three times is one document, or documents whose
    hashes are equal."""
    return shard >> LEVELS[-1] == 0


def parent_id(shard: int) -> int | None:
    """Id of the shard that this one is a part of, None for a planned one."""
    for shift in reversed(LEVELS):
        if shard >> shift:
            return shard & ((1 << shift) - 1)
    return None


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
    tries: int = 0

    @property
    def name(self) -> str:
        """The id for people: ``12`` as planned, ``12.3.7`` the seventh part of its third."""
        parts = [self.shard_id >> shift & MOST_PARTS for shift in LEVELS]
        return ".".join(map(str, [self.shard_id & ((1 << LEVELS[0]) - 1), *filter(None, parts)]))


@dataclass(frozen=True)
class Complete:
    """An attempt whose rows are all in ``outcomes``: the shard, the UUID that the rows carry, and their tokens
    (prompt, cached, completion)."""

    shard_id: int
    attempt: str
    tokens: tuple[int | None, ...]


def parts_of(shard: Shard, pieces: Sequence[tuple[int, int, int]]) -> list[Shard]:
    """The parts of a shard, which together are its range. ``pieces``: of each its lowest doc_hash, documents and tokens, in
    the order of the hashes. Raises ValueError where they are not the shard's documents, or no part of it can be split."""
    if sum(documents for _, documents, _ in pieces) != shard.documents:
        raise ValueError(f"the parts of shard {shard.name} do not hold its {shard.documents} documents")
    starts = [shard.lo, *(lo for lo, _, _ in pieces[1:])]
    ends = [*(lo - 1 for lo in starts[1:]), shard.hi]
    return [
        Shard(part_id(shard.shard_id, index), shard.kind, lo, hi, documents, tokens)
        for index, (lo, hi, (_, documents, tokens)) in enumerate(zip(starts, ends, pieces, strict=True))
    ]


def counting(shards: Iterable[Shard]) -> list[Shard]:
    """Those that count, by id: planned ones, and parts of one that counts and is split."""
    counted: dict[int, Shard] = {}
    # The id of a part is greater than that of its parent.
    for shard in sorted(shards, key=lambda shard: shard.shard_id):
        parent = parent_id(shard.shard_id)
        if parent is None or (parent in counted and counted[parent].state == "split"):
            counted[shard.shard_id] = shard
    return list(counted.values())


class Shards:
    """Reads and conditional updates of ``shards``; ``guard`` raises where this driver must write no more."""

    def __init__(self, spark: SparkSession, tables: Tables, guard: Callable[[], None] = lambda: None) -> None:
        self._spark = spark
        self._tables = tables
        self._guard = guard

    def add_shards(self, run: Run, shards: Iterable[Shard]) -> None:
        """Write the shards of a run that is being planned."""
        self._guard()
        frame = self._spark.createDataFrame(_rows(run, shards), ", ".join(f"{c.name} {c.type}" for c in _WRITTEN))
        with around("shards.add"):
            self._tables.append(frame.selectExpr("*", "current_timestamp() AS updated_at"), SHARDS, run.metadata)

    def shards(self, run_id: str) -> list[Shard]:
        """The shards of a run that count, by id. Their number is bounded by the plan, not by the table."""
        rows = self._of_run(run_id).select(*Shard.__dataclass_fields__).collect()
        return counting(Shard(**row.asDict()) for row in rows)

    def complete(self, run: Run, shards: Sequence[Shard]) -> list[Complete]:
        """For each of these shards an attempt whose rows in the table, counted and distinct, are the shard's documents."""
        expected = {shard.shard_id: shard.documents for shard in shards}
        counts = [f"sum({kind}) AS {kind}" for kind in TOKENS]
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
                tokens = tuple(row[kind] for kind in TOKENS)
                found.setdefault(row["shard_id"], Complete(row["shard_id"], row["attempt"], tokens))
        return list(found.values())

    def accept(self, run: Run, complete: Sequence[Complete], seconds: dict[str, float]) -> None:
        """Accept complete attempts of pending shards in one update. Which attempt won is for ``shards`` to say.

        ``seconds`` are the wall seconds of the attempts' jobs, by attempt, where they are known.
        """
        columns = ("shard_id", "attempt", *TOKENS, "seconds")
        source = values_sql(columns, [(c.shard_id, c.attempt, *c.tokens, seconds.get(c.attempt)) for c in complete])
        ids = _numbers([c.shard_id for c in complete])
        self._write(
            "shards.accept",
            f"MERGE INTO {self._tables.name(SHARDS)} t USING {source} s "
            f"ON t.run_id = {in_list([run.run_id])} AND t.shard_id IN ({ids}) AND t.shard_id = s.shard_id "
            "WHEN MATCHED AND t.state = 'pending' THEN UPDATE SET t.state = 'accepted', t.attempt = s.attempt, "
            "t.seconds = s.seconds, t.updated_at = current_timestamp(), "
            + ", ".join(f"t.{kind} = s.{kind}" for kind in TOKENS),
        )

    def fail(self, run: Run, shard: Shard) -> None:
        """Count a try of a pending shard that killed its worker."""
        self._write(
            "shards.fail",
            f"UPDATE {self._tables.name(SHARDS)} SET tries = {shard.tries + 1}, updated_at = current_timestamp() "
            f"WHERE run_id = {in_list([run.run_id])} AND shard_id = {shard.shard_id} AND state = 'pending'",
        )

    def split(self, run: Run, shard: Shard, parts: Sequence[Shard]) -> None:
        """Split a pending shard in one commit. Whether it won against an accepted attempt is for ``shards`` to say."""
        name = self._tables.name(SHARDS)
        columns = tuple(column.name for column in _WRITTEN)
        rows = _rows(run, parts)
        source = values_sql(columns, [*rows, *_rows(run, [shard])])
        values = ", ".join(f"CAST(s.{column.name} AS {column.type})" for column in _WRITTEN)
        self._write(
            "shards.split",
            f"MERGE INTO {name} t USING {source} s ON t.run_id = {in_list([run.run_id])} AND t.shard_id = s.shard_id "
            f"WHEN MATCHED AND t.shard_id = {shard.shard_id} AND t.state = 'pending' THEN UPDATE SET "
            "t.state = 'split', t.tries = t.tries + 1, t.updated_at = current_timestamp() "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}, updated_at) VALUES ({values}, current_timestamp())",
        )

    def mark_committed(self, run: Run, shards: Sequence[Shard]) -> None:
        """Mark accepted shards whose facts are in both states."""
        ids = _numbers([shard.shard_id for shard in shards])
        self._move_shards("shards.commit", run.run_id, f"shard_id IN ({ids}) AND state = 'accepted'", "committed")

    def close_shards(self, run: Run) -> None:
        """Close all pending shards of a run, in one update: no attempt of a closed one counts or ever will."""
        self._move_shards("shards.close", run.run_id, "state = 'pending'", "closed")

    def is_closing(self, run: Run) -> bool:
        """Whether an earlier start began to close this run: it must not be gone on with, whatever its settings."""
        return not self._of_run(run.run_id).where("state = 'closed'").isEmpty()

    def _move_shards(self, point: str, run_id: str, which: str, after: str) -> None:
        self._write(
            point,
            f"UPDATE {self._tables.name(SHARDS)} SET state = '{after}', updated_at = current_timestamp() "
            f"WHERE run_id = {in_list([run_id])} AND {which}",
        )

    def _write(self, point: str, statement: str) -> list[Row]:
        """Run a conditional statement, again after a conflict: repeating it is harmless."""
        self._guard()
        with around(point):
            return retried(lambda: self._spark.sql(statement).collect())

    def _of_run(self, run_id: str) -> DataFrame:
        return self._tables.read(self._spark, SHARDS).where(f"run_id = {in_list([run_id])}")

    def _outcomes(self, run: Run) -> DataFrame:
        return self._tables.read(self._spark, OUTCOMES).where(
            f"prompt_version = {in_list([run.prompt_version])} AND run_id = {in_list([run.run_id])}"
        )


_WRITTEN = [column for column in SHARDS.columns if column.name != "updated_at"]


def _rows(run: Run, shards: Iterable[Shard]) -> list[tuple[str | int | float | None, ...]]:
    own = {"run_id": run.run_id, "prompt_version": run.prompt_version}
    return [
        tuple(own[column.name] if column.name in own else getattr(shard, column.name, None) for column in _WRITTEN)
        for shard in shards
    ]


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(str(int(value)) for value in values)


def _exprs(*texts: str) -> list[Column]:
    from pyspark.sql.functions import expr

    return [expr(text) for text in texts]
