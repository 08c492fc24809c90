"""The tables as they stood at one moment, for reading alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelabel.failures import spark_errors
from lakelabel.shards import LEVELS
from lakelabel.tables import Tables, in_list, newest_version
from lakelabel_udfs.schema import LABELS, OUTCOMES, PROMPTS, QUARANTINE, RUNS, SHARDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# Tables have no common clock, and a run may be writing. It accepts in the ledger, then writes the states, then marks the
# shards committed, then finishes: so whatever the ledger called committed before the states were looked at is in them,
# and whatever is in them the ledger had accepted afterwards. What lies between the two looks is in flight.
_LOOKS = (
    ("runs_before", RUNS),
    ("shards_before", SHARDS),
    ("labels", LABELS),
    ("quarantine", QUARANTINE),
    ("shards", SHARDS),
    ("outcomes", OUTCOMES),
    ("runs", RUNS),
    ("prompts", PROMPTS),
)


def parent(shard_id: str) -> str:
    """SQL: the id of the shard that this one is a part of, NULL of a planned one."""
    levels = " ".join(f"WHEN {shard_id} >= {2**bit} THEN {shard_id} % {2**bit}" for bit in reversed(LEVELS))
    return f"CASE {levels} END"


def counting(shards: str) -> str:
    """SQL: of a relation of shards those that count, which are planned ones, and parts of what counts and is split."""
    ancestors = " AND ".join(
        f"(c.shard_id < {2**bit} OR EXISTS (SELECT 1 FROM {shards} p"
        f" WHERE p.run_id = c.run_id AND p.shard_id = c.shard_id % {2**bit} AND p.state = 'split'))"
        for bit in LEVELS
    )
    return f"(SELECT c.* FROM {shards} c WHERE {ancestors})"


@dataclass(frozen=True)
class View:
    """One prompt_version in a snapshot: each attribute is a relation in SQL, to stand after FROM."""

    spark: SparkSession
    prompt_version: str
    runs_before: str
    shards_before: str
    labels: str
    quarantine: str
    all_shards: str
    outcomes: str
    runs: str
    prompts: str

    @property
    def shards(self) -> str:
        """The shards that count."""
        return counting(self.all_shards)

    @property
    def facts(self) -> str:
        """The accepted facts; ``waits`` where their shard was not yet committed when the states were looked at."""
        same = "s.run_id = {0}.run_id AND s.shard_id = {0}.shard_id AND s.attempt = {0}.attempt"
        return (
            "(SELECT o.*, b.run_id IS NULL AS waits"
            f" FROM {self.outcomes} o JOIN {self.shards} s ON {same.format('o')} AND s.state IN ('accepted', 'committed')"
            f" LEFT JOIN {self.shards_before} b ON {same.format('b')} AND b.state = 'committed')"
        )

    def frame(self, query: str) -> DataFrame:
        """The result of a query, not yet asked for."""
        return self.spark.sql(query)

    def rows(self, query: str) -> list[Row]:
        """The few rows of a query."""
        return self.frame(query).collect()


class Snapshot:
    """A pinned version of every table that a check reads."""

    def __init__(self, spark: SparkSession, tables: Tables) -> None:
        self._spark = spark
        self._relations = {look: _pinned(spark, tables.name(table)) for look, table in _LOOKS}

    def prompt_versions(self) -> list[str]:
        """Every prompt_version that any of the tables has. Raises RunFailed where one of them cannot be read."""
        found: set[str] = set()
        for look, name in self._relations.items():
            with spark_errors(f"reading {look}", "see whether its files are all there"):
                rows = self._spark.sql(f"SELECT DISTINCT prompt_version FROM {name}").collect()
            found.update(row["prompt_version"] for row in rows)
        return sorted(found)

    def of(self, prompt_version: str) -> View:
        """What the tables hold of one prompt_version."""
        where = f"WHERE prompt_version = {in_list([prompt_version])}"
        found = {look: f"(SELECT * FROM {name} {where})" for look, name in self._relations.items()}
        found["all_shards"] = found.pop("shards")
        return View(self._spark, prompt_version, **found)


def _pinned(spark: SparkSession, name: str) -> str:
    return f"{name} VERSION AS OF {newest_version(spark, name)}"
