"""The tables, declared once: DDL, MERGE texts, executor output and tests derive from what stands here.

Times are UTC timestamps; ``doc_hash`` is ``xxhash64(doc_id)``; token counts are the engine's own unless a comment says
that they are estimated.
"""

from __future__ import annotations

from dataclasses import dataclass

FORMAT = 1
"""Value of the table property ``lakelabel.format``; a table with a higher one is refused."""

KEY = ("doc_id", "prompt_version")
"""Key of both states, ``labels`` and ``quarantine``."""


@dataclass(frozen=True)
class Column:
    """One column: its name, its Spark SQL type, whether NULL is allowed, and what it says."""

    name: str
    type: str
    comment: str
    nullable: bool = True

    @property
    def ddl(self) -> str:
        """The column's line in a CREATE TABLE."""
        null = "" if self.nullable else " NOT NULL"
        comment = self.comment.replace("\\", "\\\\").replace("'", "\\'")
        return f"{self.name} {self.type}{null} COMMENT '{comment}'"


@dataclass(frozen=True)
class Table:
    """One table: columns, partition columns, CHECK constraints, and the columns whose statistics skip files."""

    name: str
    columns: tuple[Column, ...]
    partitioned_by: tuple[str, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    stats: tuple[str, ...] = ()
    change_data_feed: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(column.name for column in self.columns)


def _required(name: str, type_: str, comment: str) -> Column:
    return Column(name, type_, comment, nullable=False)


_IDENTITY = (
    _required("doc_id", "STRING", "id of the document: the source column, or a JSON array of several, as a string"),
    _required("prompt_version", "STRING", "task name and digest of everything that decides the prompt"),
    _required("doc_hash", "BIGINT", "xxhash64(doc_id): shards are ranges of it, files are sorted by it"),
)
_JUDGEMENT = (
    Column("label", "STRING", "the label; beside a failure, the best label there was"),
    Column("confidence", "DOUBLE", "softmax over the labels' scores, 0 to 1; no probability of being right"),
    Column("confidence_source", "STRING", "how the scores were got: label_token, trie, fake"),
    Column("margin", "DOUBLE", "confidence of the first label less that of the second"),
    Column("label_mass", "DOUBLE", "share of the whole vocabulary's probability that the labels hold together"),
    Column("calibration_id", "STRING", "the calibration that was applied, NULL for none"),
)
_PROVENANCE = (
    _required("content_hash", "STRING", "sha2-256 of the rendered text"),
    Column("tier", "STRING", "who decided: rule, or the model's tier"),
    Column("model_id", "STRING", "the model, NULL where a rule decided"),
    Column("model_revision", "STRING", "revision or digest of the model"),
    Column("engine", "STRING", "engine and version"),
    Column("copied_from", "STRING", "doc_id of the fact that this one copies, NULL where it is its own"),
    _required("run_id", "STRING", "the run that decided"),
    _required("shard_id", "BIGINT", "the shard of that run: low 32 bits as planned, 10 bits more a split"),
    _required("seq", "BIGINT", "order of the facts: the lease's epoch at which the run was planned"),
    Column("source_table_id", "STRING", "Delta id of the source table"),
    Column("source_version", "BIGINT", "version of the source table"),
)
_FAILURE = (
    Column("failure_code", "STRING", "why there is no label"),
    Column("failure_message", "STRING", "the same for people; no text of the document"),
    Column("attempts", "INT", "how often this document has failed under this prompt_version, this time included"),
    Column("first_failed_at", "TIMESTAMP", "when it failed first"),
    Column("last_failed_at", "TIMESTAMP", "when it failed last"),
)
_LABELED_AT = Column("labeled_at", "TIMESTAMP", "when the label was decided")

_CHECK_CONFIDENCE = (
    "confidence_is_a_share",
    # NaN compares greater than every number in Spark, so `<= 1` refuses it as well.
    "confidence IS NULL OR (confidence >= 0 AND confidence <= 1)",
)

LABELS = Table(
    name="labels",
    columns=(*_IDENTITY, *_JUDGEMENT, *_PROVENANCE, _LABELED_AT),
    partitioned_by=("prompt_version",),
    checks=(("label_is_there", "label IS NOT NULL"), _CHECK_CONFIDENCE),
    stats=("doc_hash", "content_hash", "label", "seq", "run_id"),
    change_data_feed=True,
)

QUARANTINE = Table(
    name="quarantine",
    columns=(
        *_IDENTITY,
        *_FAILURE[:2],
        *_JUDGEMENT,
        *_FAILURE[2:],
        *_PROVENANCE,
        _required("status", "STRING", "open, or resolved once the document got a label"),
        Column("resolved_by", "STRING", "run_id of the first label after the failure, NULL while open"),
    ),
    partitioned_by=("prompt_version",),
    checks=(
        ("failure_is_named", "failure_code IS NOT NULL"),
        ("status_is_known", "status IN ('open', 'resolved')"),
        _CHECK_CONFIDENCE,
    ),
    stats=("doc_hash", "content_hash", "failure_code", "status", "seq", "run_id"),
    change_data_feed=True,
)

OUTCOMES = Table(
    name="outcomes",
    columns=(
        *_IDENTITY,
        _required("attempt", "STRING", "UUID of the submission that wrote this row; counts only when accepted"),
        *_JUDGEMENT,
        Column("scores", "ARRAY<DOUBLE>", "log-probabilities of the labels, in the order of the prompt's labels"),
        *_FAILURE,
        *_PROVENANCE,
        _LABELED_AT,
        Column("prompt_tokens", "BIGINT", "tokens of the prompt, over every pass that the document cost"),
        Column("cached_tokens", "BIGINT", "those of them that the prefix cache held"),
        Column("completion_tokens", "BIGINT", "tokens generated: one for each pass"),
    ),
    partitioned_by=("prompt_version", "run_id"),
    stats=("doc_hash", "content_hash", "shard_id", "attempt", "seq"),
)

SHARDS = Table(
    name="shards",
    columns=(
        _required("run_id", "STRING", "the run"),
        _required(
            "shard_id", "BIGINT", "the shard: low 32 bits as planned, 10 bits more a split; 0 holds the rules' facts"
        ),
        _required("prompt_version", "STRING", "prompt_version of the run"),
        _required("kind", "STRING", "infer, copy, rule or import"),
        _required("lo", "BIGINT", "lowest doc_hash of the range, inclusive"),
        _required("hi", "BIGINT", "highest doc_hash of the range, inclusive"),
        _required("documents", "BIGINT", "documents of the shard"),
        _required("tokens", "BIGINT", "document tokens, estimated at plan"),
        _required("state", "STRING", "pending, accepted, committed; split, closed"),
        Column("attempt", "STRING", "the accepted attempt"),
        _required("tries", "INT", "attempts that ended by the death of their worker"),
        Column("prompt_tokens", "BIGINT", "prompt tokens of the accepted attempt"),
        Column("cached_tokens", "BIGINT", "those of them that the prefix cache held"),
        Column("completion_tokens", "BIGINT", "completion tokens of the accepted attempt"),
        Column("seconds", "DOUBLE", "wall seconds of the accepted attempt's job"),
        _required("updated_at", "TIMESTAMP", "when the row last changed"),
    ),
    stats=("run_id", "shard_id"),
)

QUEUE = Table(
    name="queue",
    columns=(
        _required("run_id", "STRING", "the run"),
        _required("kind", "STRING", "infer, copy or rule"),
        _required("doc_id", "STRING", "the document"),
        _required("doc_hash", "BIGINT", "xxhash64(doc_id)"),
        _required("content_hash", "STRING", "sha2-256 of the rendered text; of a copy, the content it waits for"),
        Column("text", "STRING", "the rendered text of a document to infer, NULL otherwise"),
        _required("tokens", "BIGINT", "document tokens, estimated; 0 where nothing is inferred"),
        Column("failure_code", "STRING", "the rule that decided"),
        Column("failure_message", "STRING", "the same for people"),
        _required("prior_attempts", "INT", "failures of this document before this run"),
        Column("first_failed_at", "TIMESTAMP", "when it failed first, NULL if never"),
    ),
    partitioned_by=("run_id", "kind"),
    stats=("doc_hash", "content_hash"),
)

RUNS = Table(
    name="runs",
    columns=(
        _required("run_id", "STRING", "the run"),
        _required("prompt_version", "STRING", "what it labels under"),
        _required("seq", "BIGINT", "epoch of the lease at which it was planned"),
        _required("state", "STRING", "planning, ready, finished or closed"),
        _required("settings", "STRING", "the settings as JSON, secrets masked"),
        _required("settings_digest", "STRING", "sha2-256 of all that can change a result"),
        _required("source_table", "STRING", "name of the source, as set"),
        _required("source_table_id", "STRING", "Delta id of the source table"),
        _required("source_version", "BIGINT", "its pinned version"),
        _required("tier", "STRING", "tier of the run"),
        Column("model_id", "STRING", "the run's model"),
        Column("model_revision", "STRING", "revision or digest of the model"),
        Column(
            "documents",
            "MAP<STRING, BIGINT>",
            "as planned (infer, copies); once finished, the report's section documents",
        ),
        Column("tokens", "MAP<STRING, BIGINT>", "counts of the report's section tokens"),
        Column("seconds", "MAP<STRING, DOUBLE>", "the report's section seconds"),
        Column("tokens_per_second", "DOUBLE", "uncached prompt tokens per second and slot while labelling"),
        Column("cost", "DOUBLE", "slot hours held times their price, NULL without a price"),
        Column(
            "fingerprint",
            "ARRAY<STRUCT<bucket: INT, documents: BIGINT, hash: DECIMAL(38, 0)>>",
            "of the scope: per 1/256 of the doc_hash range, documents and the sum of xxhash64(doc_id, content_hash)",
        ),
        _required("created_at", "TIMESTAMP", "when planning began"),
        _required("updated_at", "TIMESTAMP", "when the row last changed"),
    ),
    stats=("run_id", "prompt_version", "state", "seq"),
)

PROMPTS = Table(
    name="prompts",
    columns=(
        _required("prompt_version", "STRING", "task name and the first 12 digits of the digest"),
        _required("digest", "STRING", "sha2-256 of the definition"),
        _required("definition", "STRING", "the whole definition, canonical JSON"),
        _required("created_at", "TIMESTAMP", "when it was first used"),
    ),
)

LEASES = Table(
    name="leases",
    columns=(
        _required("prompt_version", "STRING", "what the lease is for"),
        _required("epoch", "BIGINT", "grows by one with every owner; seq of the runs planned under it"),
        _required("owner", "STRING", "UUID of the driver"),
        _required("event", "STRING", "taken, beat or released"),
        Column("host", "STRING", "host of the driver"),
        Column("boot_id", "STRING", "boot id and pid namespace of that host: within it a pid names a process"),
        Column("pid", "BIGINT", "pid of the driver"),
        Column("pid_started", "BIGINT", "start time of that pid, in clock ticks since boot"),
        Column("lease_seconds", "INT", "how long the owner's lease lasts without a beat"),
        Column("run_id", "STRING", "the run that engines are held for, NULL for none"),
        Column("slot_seconds", "DOUBLE", "how long this owner has held them for it so far: wall seconds times slots"),
        _required("at", "TIMESTAMP", "when, by the owner's clock"),
    ),
    partitioned_by=("prompt_version",),
    stats=("epoch",),
)

TABLES = (LABELS, QUARANTINE, OUTCOMES, SHARDS, QUEUE, RUNS, PROMPTS, LEASES)

INPUT_COLUMNS = ("doc_id", "doc_hash", "content_hash", "text", "prior_attempts", "first_failed_at")
"""Columns of the queue that the executor function reads."""

OUTPUT_SCHEMA = (
    "doc_id STRING, doc_hash BIGINT, content_hash STRING, prior_attempts INT, first_failed_at TIMESTAMP, "
    "label STRING, confidence DOUBLE, confidence_source STRING, margin DOUBLE, label_mass DOUBLE, "
    "scores ARRAY<DOUBLE>, failure_code STRING, failure_message STRING, "
    "prompt_tokens BIGINT, cached_tokens BIGINT, completion_tokens BIGINT, decided_at TIMESTAMP, engine STRING"
)
"""What the executor function yields, one row a row of its input; provenance and the quality gate are added in SQL."""
