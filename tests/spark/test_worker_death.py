"""What the driver learns of a Python worker that died, from Spark's own exception."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lakelabel_udfs.classify import classify_batches
from lakelabel_udfs.schema import OUTPUT_SCHEMA
from lakelabel_udfs.specs import EngineSpec, LabelSpec, PromptSpec
from lakelabel_udfs.telemetry import Telemetry
from lakelabel_udfs.watchdog import HANG

INPUT = (
    "doc_id STRING, doc_hash BIGINT, content_hash STRING, text STRING, prior_attempts INT, first_failed_at TIMESTAMP"
)
PROMPT = PromptSpec("v", "i", (LabelSpec("a"), LabelSpec("b")))
SPEC = EngineSpec("fake", None, "fake", None, stall_seconds=1.0, extra='{"poison": "@@"}')


def label(spark: SparkSession, text: str) -> Telemetry:
    telemetry = Telemetry(spark)
    rows = spark.createDataFrame([("d", 1, "h", text, 0, None)], INPUT).coalesce(1)
    rows.mapInPandas(classify_batches(SPEC, PROMPT, telemetry.accumulator), OUTPUT_SCHEMA).collect()
    return telemetry


@pytest.mark.parametrize(
    ("way", "said", "hung"),
    [
        ("hang", "the engine did not return from a step for 1 s", True),
        ("segfault", r"Segmentation fault[\s\S]*in _segfault", False),
        ("abort", r"Aborted[\s\S]*in step", False),
        ("kill", r"exited unexpectedly \(crashed\)", False),
        ("exit", r"exited unexpectedly \(crashed\)", False),
        ("raise", "EngineDied: the fake engine was told to die", False),
    ],
)
def test_the_way_of_a_death_reaches_the_driver(spark: SparkSession, way: str, said: str, hung: bool) -> None:
    """A hang is told from a crash, and a crash comes with its stack; no text of the document is among it."""
    with pytest.raises(Exception, match=said) as died:
        label(spark, f"the secret of the document @@{way}")
    assert bool(HANG.search(str(died.value))) is hung
    assert "secret" not in str(died.value)


def test_the_slot_of_a_task_is_the_one_that_sparks_message_names(spark: SparkSession) -> None:
    """By the id of the executor; a local one, whose host Spark may call by another name, is the driver."""
    telemetry = label(spark, "fine")
    (name,) = [name for name in telemetry.accumulator.value if name.startswith("slot ")]
    assert name.endswith(" executor driver")
    assert telemetry[name] == 1

    with pytest.raises(Exception, match=r"\(TID \d+\) \(\S+ executor driver\)"):
        label(spark, "@@kill")
