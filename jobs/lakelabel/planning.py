"""Planning a run: the rows that make a plan, written in an order in which a broken-off plan is never taken for one."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from lakelabel.errors import RunFailed
from lakelabel.failures import spark_errors
from lakelabel.job import TIER, Job
from lakelabel.ledger import Run
from lakelabel.plan import Counts, Plan, planned, write_queue
from lakelabel.session import slots
from lakelabel.sizing import cut, tokens_a_shard
from lakelabel.tables import in_list
from lakelabel.work import Work, sql_map
from lakelabel_udfs.schema import QUEUE, RUNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIRST_RATE = 1000.0
"""Tokens per second and slot that shards are sized by until a run of the model has been measured."""


@dataclass(frozen=True)
class Preview:
    """What ``--dry-run`` says: documents, tokens (estimated) and shards; hours and cost where rate and price are known."""

    prompt_version: str
    source_version: int
    documents: dict[str, int]
    tokens: int
    shards: int
    hours: float | None
    cost: float | None


def preview(spark: SparkSession, job: Job) -> Preview:
    """Plan without writing anything."""
    with planned(spark, job.tables, job.scope, job.have_tables) as plan:
        counts = plan.counts
    rate = _measured_rate(spark, job) if job.have_tables else None
    hours = None if rate is None else counts.tokens / rate / 3600
    price = job.settings.cost.price_per_slot_hour
    return Preview(
        job.prompt_version,
        job.source.version,
        _documents(job, counts),
        counts.tokens,
        len(cut(counts, _shard_tokens(job, counts, rate, slots(spark)))),
        hours,
        None if hours is None or price is None else hours * price,
    )


def plan_run(work: Work) -> Run:
    """Plan a new run: its row, queue, rule facts and shards, and ``ready`` last. Without pending documents the row alone."""
    job = work.job
    run = Run(
        run_id=f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}",
        prompt_version=job.prompt_version,
        seq=work.lease.epoch,
        state="planning",
        settings_digest=job.settings_digest,
        source_table=job.source.table,
        source_table_id=job.source.table_id,
        source_version=job.source.version,
        tier=TIER,
        model_id=job.model.model_id,
        model_revision=job.model.model_revision,
        documents={},
    )
    settings = job.public_json
    with (
        work.cancellable(),
        spark_errors("the plan (see source.where and the source's columns)"),
        work.timed("plan"),
        planned(work.spark, work.tables, job.scope, have_tables=True) as plan,
    ):
        counts = plan.counts
        documents = _documents(job, counts)
        found = {"documents": sql_map(documents, "L"), "fingerprint": _fingerprint(counts)}
        if counts.pending:
            work.ledger.add_run(run, settings)
            _write(work, run, plan)
            work.ledger.move_run(run.run_id, "planning", "ready", found)
        else:
            work.ledger.add_run(replace(run, state="ready"), settings, found)
    work.reporter.say(
        f"planned {run.run_id}: {counts.source} documents in version {run.source_version}, {counts.pending} pending: "
        f"{counts.infer} to infer (about {counts.tokens} tokens), {counts.copies} copies, {counts.by_rule} by rule"
    )
    if counts.gone:
        work.reporter.say(f"{counts.gone} quarantined documents are gone from the source; their rows stay as they are")
    return replace(run, state="ready", documents=documents)


def _write(work: Work, run: Run, plan: Plan) -> None:
    counts = plan.counts
    work.lease.check()
    write_queue(work.tables, run, plan)
    rows = work.tables.read(work.spark, QUEUE).where(f"run_id = {in_list([run.run_id])}").groupBy("kind").count()
    queued = {row["kind"]: row["count"] for row in rows.collect()}
    expected = {"rule": counts.by_rule, "infer": counts.infer, "copy": counts.copies}
    if queued != {kind: n for kind, n in expected.items() if n} or sum(expected.values()) != counts.pending:
        raise RunFailed(
            f"plan {run.run_id} counted {expected} of {counts.pending} and queued {queued}: "
            "does source.where give the same rows each time?"
        )
    rate = _measured_rate(work.spark, work.job)
    work.ledger.add_shards(run, cut(counts, _shard_tokens(work.job, counts, rate, work.slots)))


def _documents(job: Job, counts: Counts) -> dict[str, int]:
    names = ("source", "already_labeled", "already_quarantined", "pending", "by_rule", "infer", "copies")
    return {name: getattr(counts, name) for name in (*names, *(["gone"] if job.options.retry else []))}


def _fingerprint(counts: Counts) -> str:
    buckets = ", ".join(
        f"named_struct('bucket', {bucket}, 'documents', {n}L, 'hash', CAST('{total}' AS DECIMAL(38, 0)))"
        for bucket, n, total in counts.fingerprint
    )
    return f"array({buckets})" if buckets else "NULL"


def _shard_tokens(job: Job, counts: Counts, rate: float | None, slots: int) -> int:
    return job.settings.queue.shard_tokens or tokens_a_shard(counts, rate or _FIRST_RATE, slots)


def _measured_rate(spark: SparkSession, job: Job) -> float | None:
    """Uncached tokens per second and slot of the newest run of this model, whatever its prompt."""
    from pyspark.sql.functions import col, lit

    rows = (
        job.tables.read(spark, RUNS)
        .where((col("model_id") == lit(job.model.model_id)) & col("tokens_per_second").isNotNull())
        .where(col("model_revision").eqNullSafe(lit(job.model.model_revision)))
        .orderBy(col("created_at").desc())
        .limit(1)
        .select("tokens_per_second")
        .collect()
    )
    return float(rows[0]["tokens_per_second"]) if rows else None
