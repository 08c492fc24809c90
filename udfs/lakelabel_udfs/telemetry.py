"""Sums that tasks report beside their rows. A retried task reports twice, so no count that matters is among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.accumulators import Accumulator, AccumulatorParam

from lakelabel_udfs.slot import executor_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sums(AccumulatorParam[dict[str, float]]):
    """Adds named amounts."""

    def zero(self, value: dict[str, float]) -> dict[str, float]:
        """Nothing yet, whatever the first value was."""
        return dict.fromkeys(value, 0.0)

    def addInPlace(self, value1: dict[str, float], value2: dict[str, float]) -> dict[str, float]:  # noqa: N802 - Spark's name
        """The sum of both, name by name."""
        for name, amount in value2.items():
            value1[name] = value1.get(name, 0.0) + amount
        return value1


class Telemetry:
    """The driver's end: engine loads, seconds in the engine, seconds of tasks, by name."""

    def __init__(self, spark: SparkSession) -> None:
        start: dict[str, float] = {}
        self.accumulator: Accumulator[dict[str, float]] = spark.sparkContext.accumulator(start, Sums())

    def __getitem__(self, name: str) -> float:
        return float(self.accumulator.value.get(name, 0.0))

    def by_executor(self) -> dict[str, float]:
        """Documents labelled so far by each executor, by its id (``driver`` is a local Spark's)."""
        labelled: dict[str, float] = {}
        for name, amount in list(self.accumulator.value.items()):
            executor = executor_of(name)
            if executor is not None:
                labelled[executor] = labelled.get(executor, 0.0) + amount
        return labelled
