"""Label: a Spark job from ranges of the queue through the engines to one append, one task a shard."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from lakelabel.facts import Gate, Stamp, condemned, inferred, queued
from lakelabel.ledger import Run
from lakelabel.points import around
from lakelabel.shards import Shard
from lakelabel.tables import Tables, in_range
from lakelabel_udfs.classify import classify_batches
from lakelabel_udfs.schema import INPUT_COLUMNS, OUTCOMES, OUTPUT_SCHEMA
from lakelabel_udfs.specs import EngineSpec, PromptSpec
from lakelabel_udfs.telemetry import Telemetry

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

PROBE = "Is this engine well?"
"""A text that no engine may die of."""


@dataclass(frozen=True)
class Attempt:
    """One submission of a shard: the UUID that its rows carry, which count only once it is accepted, and the wall seconds
    of its job."""

    shard: Shard
    attempt: str
    seconds: float


@dataclass(frozen=True)
class Labeller:
    """What every label job of a run shares."""

    spark: SparkSession
    tables: Tables
    engine: EngineSpec
    prompt: PromptSpec
    gate: Gate
    telemetry: Telemetry
    run: Run

    def label(self, shards: Sequence[Shard]) -> list[Attempt]:
        """Infer pending shards in one job and one append: none of them has an attempt unless all have."""
        began = time.monotonic()
        stamps = [Stamp(self.run, shard.shard_id, str(uuid.uuid4())) for shard in shards]
        parts = [self._rows(shard, stamp) for shard, stamp in zip(shards, stamps, strict=True)]
        with around("outcomes.infer"):
            self.tables.append(reduce(_union, parts), OUTCOMES, self.run.metadata)
        seconds = time.monotonic() - began
        return [Attempt(shard, stamp.attempt, seconds) for shard, stamp in zip(shards, stamps, strict=True)]

    def condemn(self, shard: Shard, code: str) -> Attempt:
        """Write the documents of a shard down as failures, since each try to infer them killed its worker."""
        began = time.monotonic()
        stamp = Stamp(self.run, shard.shard_id, str(uuid.uuid4()))
        message = {
            "crashed": "the worker died each time that this document was in its engine",
            "timed_out": "the engine did not return each time that this document was in it",
        }[code]
        rows = queued(self.spark, self.tables, self.run.run_id, "infer").where(_in(shard))
        with around("outcomes.condemn"):
            self.tables.append(condemned(rows, stamp, code, message), OUTCOMES, self.run.metadata)
        return Attempt(shard, stamp.attempt, time.monotonic() - began)

    def probe(self) -> None:
        """Label one harmless text, wherever a slot is free, and keep nothing of it."""
        row = self.spark.sql(
            f"SELECT 'probe' AS doc_id, 0L AS doc_hash, '' AS content_hash, '{PROBE}' AS text, 0 AS prior_attempts, "
            "CAST(NULL AS TIMESTAMP) AS first_failed_at"
        )
        row.coalesce(1).mapInPandas(self._function(), OUTPUT_SCHEMA).count()

    def _rows(self, shard: Shard, stamp: Stamp) -> DataFrame:
        rows = (
            queued(self.spark, self.tables, self.run.run_id, "infer")
            .where(_in(shard))
            .select(*INPUT_COLUMNS)
            # One engine works on a shard, so it is one task; a coalesce reads no more than the range and shuffles nothing.
            .coalesce(1)
            .mapInPandas(self._function(), OUTPUT_SCHEMA)
        )
        return inferred(rows, stamp, self.gate)

    def _function(self) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
        return classify_batches(self.engine, self.prompt, self.telemetry.accumulator)


def _in(shard: Shard) -> str:
    return in_range("doc_hash", shard.lo, shard.hi)


def _union(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.unionAll(right)
