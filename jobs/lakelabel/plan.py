"""Plan: what is to be inferred, what is known already, and how it is cut into shards. Spark SQL alone, no Python on rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakelabel.ledger import Run, accepted_facts
from lakelabel.points import around
from lakelabel.sections import Source as SourceSettings
from lakelabel.source import FINGERPRINT, Source, documents, lowest, token_estimate
from lakelabel.tables import Tables, in_list
from lakelabel_udfs.schema import LABELS, QUARANTINE, QUEUE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BUCKET_BITS = 16
"""Shards are cut at multiples of 2^48 in doc_hash: 65,536 counts are all that the driver ever sees of a table."""

_FILE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Scope:
    """What a plan is about: a pinned source, the prompt and model it is for, how much of it, and which facts of the
    model settle their content (SQL).

    A retry is about the open rows of ``quarantine`` with the codes ``asked``, and its limit counts these.
    """

    source: Source
    settings: SourceSettings
    limit: int | None
    prompt_version: str
    model_id: str
    model_revision: str | None
    max_model_len: int
    settles: str
    asked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counts:
    """Documents of a plan, as in the report, and what the shards are cut by; ``gone`` are those of a retry that the
    source has no more."""

    source: int = 0
    gone: int = 0
    already_labeled: int = 0
    already_quarantined: int = 0
    by_rule: int = 0
    infer: int = 0
    copies: int = 0
    tokens: int = 0
    text_bytes: int = 0
    fingerprint: list[tuple[int, int, int]] = field(default_factory=list)
    buckets: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def pending(self) -> int:
        """Documents that this plan is to settle."""
        return self.source - self.already_labeled - self.already_quarantined


@dataclass(frozen=True)
class Plan:
    """A plan that has been counted and not written: its counts, and the rows for the queue while the session holds them."""

    counts: Counts
    pending: DataFrame


@contextmanager
def planned(spark: SparkSession, tables: Tables, scope: Scope, have_tables: bool) -> Iterator[Plan]:
    """Count the documents in scope and decide for each what becomes of it. Writes nothing.

    The source is read once: what is pending is kept on the executors' disks until the block ends.
    """
    from pyspark import StorageLevel

    found = _asked(spark, tables, scope) if scope.asked else documents(spark, scope.source, scope.settings, scope.limit)
    compared = (_compare(spark, tables, scope, found) if have_tables else _nothing_known(found)).persist(
        StorageLevel.DISK_ONLY
    )
    try:
        pending = _decide(spark, tables, scope, compared, have_tables).persist(StorageLevel.DISK_ONLY)
        try:
            yield Plan(_count(compared, pending), pending)
        finally:
            pending.unpersist()
    finally:
        compared.unpersist()


def write_queue(tables: Tables, run: Run, plan: Plan) -> None:
    """Append the pending documents to the queue, sorted by doc_hash, so that a shard's range reads one file or two."""
    from pyspark.sql.functions import lit

    files = max(1, math.ceil(plan.counts.text_bytes / _FILE_BYTES))
    rows = plan.pending.withColumn("run_id", lit(run.run_id)).repartitionByRange(files, "kind", "doc_hash")
    with around("queue.add"):
        tables.append(rows.sortWithinPartitions("kind", "doc_hash"), QUEUE, run.metadata)


def _asked(spark: SparkSession, tables: Tables, scope: Scope) -> DataFrame:
    """The documents of a retry: each asked row beside what the source has of it, which is NULL where it is gone."""
    rows = tables.read(spark, QUARANTINE).where(
        f"prompt_version = {in_list([scope.prompt_version])} AND status = 'open'"
        f" AND failure_code IN ({in_list(scope.asked)})"
    )
    asked = rows.select("doc_hash", "doc_id")
    if scope.limit is not None:
        asked = lowest(asked, scope.limit)
    found = documents(spark, scope.source, scope.settings, None, asked)
    return asked.join(found, ["doc_hash", "doc_id"], "left")


def _compare(spark: SparkSession, tables: Tables, scope: Scope, found: DataFrame) -> DataFrame:
    """Each document beside what the states say of it: already settled where they have the same content or a newer fact.

    To have failed with the same content settles a document too, but not for a retry, which is about just these.
    """
    version = f"prompt_version = {in_list([scope.prompt_version])}"
    newer = f"(source_table_id = {in_list([scope.source.table_id])} AND source_version > {scope.source.version})"
    columns = ("doc_hash", "doc_id", "content_hash AS {0}_content", f"{newer} AS {{0}}_newer")
    labels = tables.read(spark, LABELS).where(version)
    labels = labels.selectExpr(*(column.format("label") for column in columns))
    quarantine = tables.read(spark, QUARANTINE).where(version)
    quarantine = quarantine.selectExpr(
        *(column.format("failure") for column in columns), "status", "attempts AS prior_attempts", "first_failed_at"
    )
    joined = found.join(labels, ["doc_hash", "doc_id"], "left").join(quarantine, ["doc_hash", "doc_id"], "left")
    failed = "failure_newer" if scope.asked else "(failure_content = content_hash OR failure_newer)"
    already = (
        "CASE WHEN content_hash IS NULL THEN 'gone'"
        " WHEN label_content = content_hash OR label_newer THEN 'labeled'"
        f" WHEN status = 'open' AND {failed} THEN 'quarantined' END"
    )
    others = [column for column in found.columns if column != "text"]
    return joined.selectExpr("*", f"{already} AS already").selectExpr(
        *others,
        # Kept on disk while the plan is made: only texts that are still to be read.
        "CASE WHEN already IS NULL THEN text END AS text",
        *("already", "coalesce(prior_attempts, 0) AS prior_attempts", "first_failed_at"),
    )


def _nothing_known(found: DataFrame) -> DataFrame:
    return found.selectExpr(
        *found.columns,
        "CAST(NULL AS STRING) AS already",
        "0 AS prior_attempts",
        "CAST(NULL AS TIMESTAMP) AS first_failed_at",
    )


def _decide(spark: SparkSession, tables: Tables, scope: Scope, compared: DataFrame, have_tables: bool) -> DataFrame:
    """Rows for the queue, but for run_id: decided by a rule, a copy of known or pending content, or to be inferred."""
    pending = compared.where("already IS NULL")
    ruled = pending.where("failure_code IS NOT NULL").selectExpr("'rule' AS kind", *_common(text="NULL", tokens="0"))
    open_ = pending.where("failure_code IS NULL")
    first = (
        open_.groupBy("content_hash")
        .agg(_min_struct("doc_hash", "doc_id"))
        .selectExpr("first.doc_hash AS doc_hash", "first.doc_id AS doc_id", "content_hash AS first_of")
    )
    if have_tables:
        first = first.join(_settled(spark, tables, scope), "first_of", "left_anti")
    # Joined by document and not by content: one text that half of the corpus shares would be one task.
    placed = open_.join(first, ["doc_hash", "doc_id"], "left")
    inferred = "first_of IS NOT NULL"
    estimate = f"least({token_estimate()}, {scope.max_model_len})"
    worked = placed.selectExpr(
        f"CASE WHEN {inferred} THEN 'infer' ELSE 'copy' END AS kind",
        *_common(text=f"CASE WHEN {inferred} THEN text END", tokens=f"CASE WHEN {inferred} THEN {estimate} ELSE 0 END"),
    )
    return ruled.unionByName(worked)


def _common(text: str, tokens: str) -> list[str]:
    return [
        *("doc_id", "doc_hash", "content_hash"),
        f"CAST({text} AS STRING) AS text",
        f"CAST({tokens} AS BIGINT) AS tokens",
        *("failure_code", "failure_message", "prior_attempts", "first_failed_at"),
    ]


def _settled(spark: SparkSession, tables: Tables, scope: Scope) -> DataFrame:
    known = model_facts(spark, tables, scope.prompt_version, scope.model_id, scope.model_revision)
    return known.where(scope.settles).selectExpr("content_hash AS first_of")


def model_facts(
    spark: SparkSession, tables: Tables, prompt_version: str, model_id: str, model_revision: str | None
) -> DataFrame:
    """Accepted facts that are a model's own word, and no copy: what may settle a content for every document that has it.
    They are facts and never state rows, so a label that was replaced still answers for its text."""
    from pyspark.sql.functions import col, lit

    return accepted_facts(spark, tables, prompt_version).where(
        (col("model_id") == lit(model_id))
        & col("model_revision").eqNullSafe(lit(model_revision))
        & col("copied_from").isNull()
    )


def _min_struct(*columns: str) -> Column:
    from pyspark.sql import functions as F

    return F.min(F.struct(*columns)).alias("first")


def _count(compared: DataFrame, pending: DataFrame) -> Counts:
    from pyspark.sql.functions import expr

    there = "content_hash IS NOT NULL"
    bucket, hashes = FINGERPRINT
    scope = (
        compared.groupBy(expr(f"{bucket} AS bucket"))
        .agg(
            expr(f"count_if({there}) AS documents"),
            expr("count_if(already = 'gone') AS gone"),
            expr(f"{hashes} FILTER (WHERE {there}) AS hash"),
            expr("count_if(already = 'labeled') AS labeled"),
            expr("count_if(already = 'quarantined') AS quarantined"),
        )
        .orderBy("bucket")
        .collect()
    )
    kinds = {
        row["kind"]: row
        for row in pending.groupBy("kind")
        .agg(expr("count(*) AS n"), expr("sum(tokens) AS tokens"), expr("sum(octet_length(text)) AS bytes"))
        .collect()
    }
    buckets = (
        pending.where("kind = 'infer'")
        .groupBy(expr(f"CAST(shiftright(doc_hash, {64 - BUCKET_BITS}) AS INT) AS bucket"))
        .agg(expr("count(*) AS n"), expr("sum(tokens) AS tokens"))
        .orderBy("bucket")
        .collect()
    )
    infer = kinds.get("infer")
    return Counts(
        source=sum(row["documents"] for row in scope),
        gone=sum(row["gone"] for row in scope),
        already_labeled=sum(row["labeled"] for row in scope),
        already_quarantined=sum(row["quarantined"] for row in scope),
        by_rule=kinds["rule"]["n"] if "rule" in kinds else 0,
        infer=infer["n"] if infer else 0,
        copies=kinds["copy"]["n"] if "copy" in kinds else 0,
        tokens=infer["tokens"] if infer else 0,
        text_bytes=(infer["bytes"] or 0) if infer else 0,
        fingerprint=[(row["bucket"], row["documents"], int(row["hash"])) for row in scope if row["documents"]],
        buckets=[(row["bucket"], row["n"], row["tokens"]) for row in buckets],
    )
