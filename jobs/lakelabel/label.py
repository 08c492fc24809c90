"""Label: one Spark job a shard, from its range of the queue through the engine to one append."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelabel.facts import Gate, Stamp, inferred, queued
from lakelabel.ledger import Run, Shard
from lakelabel.tables import Tables, in_range
from lakelabel_udfs.classify import classify_batches
from lakelabel_udfs.schema import INPUT_COLUMNS, OUTCOMES, OUTPUT_SCHEMA
from lakelabel_udfs.specs import EngineSpec, PromptSpec
from lakelabel_udfs.telemetry import Telemetry

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Labeller:
    """What every label job of a run shares."""

    spark: SparkSession
    tables: Tables
    engine: EngineSpec
    prompt: PromptSpec
    gate: Gate
    telemetry: Telemetry
    metadata: str

    def label(self, run: Run, shard: Shard) -> tuple[str, float]:
        """Infer one pending shard; the fresh attempt that its rows carry, which count only once it is accepted, and the
        job's wall seconds."""
        began = time.monotonic()
        stamp = Stamp(run, shard.shard_id, str(uuid.uuid4()))
        rows = (
            queued(self.spark, self.tables, run.run_id, "infer")
            .where(in_range("doc_hash", shard.lo, shard.hi))
            .select(*INPUT_COLUMNS)
            # One engine works on a shard, so it is one task; a coalesce reads no more than the range and shuffles nothing.
            .coalesce(1)
            .mapInPandas(self._function(), OUTPUT_SCHEMA)
        )
        self.tables.append(inferred(rows, stamp, self.gate), OUTCOMES, self.metadata)
        return stamp.attempt, time.monotonic() - began

    def _function(self) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
        return classify_batches(self.engine, self.prompt, self.telemetry.accumulator)
