"""Facts: the rows that rules, engines and copies append to ``outcomes``, built in one place and gated by one rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelabel.ledger import Run
from lakelabel.plan import model_facts
from lakelabel.shards import TOKENS
from lakelabel.tables import Tables, in_list
from lakelabel_udfs.outcome import CONTENT_FAILURES
from lakelabel_udfs.schema import OUTCOMES, QUEUE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_CARRIED = ("doc_id", "doc_hash", "content_hash", "prior_attempts", "first_failed_at")
"""What a fact takes over from its document's row of the queue."""

_JUDGEMENT = ("label", "confidence", "confidence_source", "margin", "label_mass", "scores")


@dataclass(frozen=True)
class Gate:
    """What is taken for an answer: what is good enough for ``labels`` (None asks for nothing), and which failures a
    retry takes for one no more."""

    min_confidence: float | None = None
    min_label_mass: float | None = None
    asked: tuple[str, ...] = ()

    def code(self) -> str:
        """SQL: the failure code that a judged row ends with, NULL for a label.

        ``low_confidence`` is decided anew each time, so that a copy is held to today's threshold. What a CHECK of the
        states would refuse becomes ``rejected`` here: NaN is greater than every number in Spark, and would pass a gate.
        """
        bad = "label IS NULL OR confidence IS NULL OR isnan(confidence) OR confidence < 0 OR confidence > 1"
        low = [
            f"coalesce({column}, 0) < {float(least)!r}D"
            for column, least in (("confidence", self.min_confidence), ("label_mass", self.min_label_mass))
            if least is not None
        ]
        weak = f" WHEN {' OR '.join(low)} THEN 'low_confidence'" if low else ""
        return (
            "CASE WHEN failure_code IS NOT NULL AND failure_code <> 'low_confidence' THEN failure_code"
            f" WHEN {bad} THEN 'rejected'{weak} END"
        )

    def settles(self) -> str:
        """SQL: whether a model's own fact answers for every document that has its content.

        Labels do, and failures of the content that no retry asks for. What was ``low_confidence`` and passes today's
        gate does in any case: it is a label that nobody pays for.
        """
        codes = [code for code in CONTENT_FAILURES if code not in self.asked]
        answers = ["failure_code IS NULL", f"(failure_code = 'low_confidence' AND ({self.code()}) IS NULL)"]
        return " OR ".join(answers + ([f"failure_code IN ({in_list(codes)})"] if codes else []))

    def message(self) -> str:
        """SQL: the message that goes with ``code``, given the code as column ``code``."""
        asked = [
            f"{column} {least:g}"
            for column, least in (("confidence", self.min_confidence), ("label_mass", self.min_label_mass))
            if least is not None
        ]
        return (
            f"CASE WHEN code = 'low_confidence' THEN 'below the asked {' or '.join(asked)}'"
            " WHEN code = 'rejected' THEN coalesce(failure_message, 'the scores are not finite')"
            " WHEN code IS NOT NULL THEN failure_message END"
        )


@dataclass(frozen=True)
class Stamp:
    """Provenance that all the rows of one attempt share."""

    run: Run
    shard_id: int
    attempt: str


def inferred(rows: DataFrame, stamp: Stamp, gate: Gate) -> DataFrame:
    """Facts of what the executor function said (schema: OUTPUT_SCHEMA)."""
    own = _by_model(rows, stamp.run).selectExpr(
        "*",
        "CAST(NULL AS STRING) AS copied_from",
        "CAST(NULL AS STRING) AS calibration_id",
    )
    return _stamped(_judged(own, gate), stamp)


def ruled(spark: SparkSession, tables: Tables, stamp: Stamp) -> DataFrame:
    """Facts of the documents that plan decided by a rule."""
    rows = queued(spark, tables, stamp.run.run_id, "rule")
    own = _failed(rows, "failure_code", "failure_message")
    return _stamped(own.selectExpr("*", "'rule' AS tier", *_nulls("model_id", "model_revision")), stamp)


def condemned(rows: DataFrame, stamp: Stamp, code: str, message: str) -> DataFrame:
    """Facts of queued documents that no engine survived: the code is the driver's word, under the run's model."""
    return _stamped(_by_model(_failed(rows, in_list([code]), in_list([message])), stamp.run), stamp)


def copied(spark: SparkSession, tables: Tables, stamp: Stamp, gate: Gate) -> DataFrame:
    """Facts of the documents whose content another fact settles: one join, the newest such fact each, gated anew.

    What this run itself says of a content is such a fact whatever it says: a document that is refused or timed out is
    no answer for later runs, and the only one that its copies in this run can have.
    """
    run = stamp.run
    waiting = queued(spark, tables, run.run_id, "copy").select(*_CARRIED)
    known = model_facts(spark, tables, run.prompt_version, run.model_id, run.model_revision)
    source = (
        known.where(f"{gate.settles()} OR run_id = {in_list([run.run_id])}")
        .join(waiting.select("content_hash"), "content_hash", "left_semi")
        .selectExpr(
            "content_hash",
            *_JUDGEMENT,
            *("calibration_id", "failure_code", "failure_message", "tier", "model_id", "model_revision", "engine"),
            "doc_id AS copied_from",
            "row_number() OVER (PARTITION BY content_hash ORDER BY seq DESC, doc_hash, doc_id) AS nth",
        )
        .where("nth = 1")
        .drop("nth")
    )
    rows = waiting.join(source, "content_hash").selectExpr("*", "current_timestamp() AS decided_at", *_nulls(*TOKENS))
    return _stamped(_judged(rows, gate), stamp)


def queued(spark: SparkSession, tables: Tables, run_id: str, kind: str) -> DataFrame:
    """The rows of the queue of one run and kind."""
    return tables.read(spark, QUEUE).where(f"run_id = {in_list([run_id])} AND kind = {in_list([kind])}")


def _failed(rows: DataFrame, code: str, message: str) -> DataFrame:
    """Failures of queued documents that no engine spoke of; code and message are SQL."""
    return rows.selectExpr(
        *_CARRIED,
        "current_timestamp() AS decided_at",
        *_nulls(*_JUDGEMENT, "calibration_id", "engine", "copied_from", *TOKENS),
        f"{code} AS code",
        f"{message} AS message",
    )


def _by_model(rows: DataFrame, run: Run) -> DataFrame:
    from pyspark.sql.functions import lit

    return rows.withColumns(
        {"tier": lit(run.tier), "model_id": lit(run.model_id), "model_revision": lit(run.model_revision)}
    )


def _judged(rows: DataFrame, gate: Gate) -> DataFrame:
    finite = {"confidence": "CASE WHEN NOT isnan(confidence) AND confidence BETWEEN 0 AND 1 THEN confidence END"}
    coded = rows.selectExpr("*", f"{gate.code()} AS code").selectExpr("*", f"{gate.message()} AS message")
    return coded.withColumns({column: _expr(text) for column, text in finite.items()})


def _stamped(rows: DataFrame, stamp: Stamp) -> DataFrame:
    """The rows as ``outcomes`` has them: times and counts by whether it is a failure, provenance of run and source."""
    from pyspark.sql.functions import lit

    run = stamp.run
    return (
        rows.drop("failure_code", "failure_message")
        .withColumnsRenamed({"code": "failure_code", "message": "failure_message"})
        .withColumns(
            {
                "attempts": _expr("CASE WHEN failure_code IS NOT NULL THEN prior_attempts + 1 END"),
                "first_failed_at": _expr(
                    "CASE WHEN failure_code IS NOT NULL THEN coalesce(first_failed_at, decided_at) END"
                ),
                "last_failed_at": _expr("CASE WHEN failure_code IS NOT NULL THEN decided_at END"),
                "labeled_at": _expr("CASE WHEN failure_code IS NULL THEN decided_at END"),
                "prompt_version": lit(run.prompt_version),
                "run_id": lit(run.run_id),
                "shard_id": lit(stamp.shard_id),
                "attempt": lit(stamp.attempt),
                "seq": lit(run.seq).cast("bigint"),
                "source_table_id": lit(run.source_table_id),
                "source_version": lit(run.source_version).cast("bigint"),
            }
        )
        .select(*OUTCOMES.names)
    )


def _nulls(*columns: str) -> list[str]:
    types = {column.name: column.type for column in OUTCOMES.columns}
    return [f"CAST(NULL AS {types[column]}) AS {column}" for column in columns]


def _expr(text: str) -> Column:
    from pyspark.sql.functions import expr

    return expr(text)
