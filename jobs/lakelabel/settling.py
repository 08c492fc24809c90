"""Settling shards in the ledger: accepting attempts, and splitting what killed its worker."""

from __future__ import annotations

from collections.abc import Sequence

from lakelabel.commit import SHARDS_AT_ONCE
from lakelabel.errors import RunFailed
from lakelabel.facts import queued
from lakelabel.label import Attempt
from lakelabel.ledger import Run
from lakelabel.shards import MOST_PARTS, Shard, parts_of
from lakelabel.tables import in_range
from lakelabel.verdict import ways
from lakelabel.work import Work


def adopt(work: Work, run: Run, shards: Sequence[Shard], seconds: dict[str, float]) -> list[Shard]:
    """Accept whatever complete attempts these pending shards have; the run's shards as the ledger then has them."""
    complete = work.ledger.complete(run, shards) if shards else []
    for start in range(0, len(complete), SHARDS_AT_ONCE):
        work.ledger.accept(run, complete[start : start + SHARDS_AT_ONCE], seconds)
    return work.ledger.shards(run.run_id)


def settle(work: Work, run: Run, done: Sequence[Attempt]) -> list[Shard]:
    """Accept attempts that were just written. Raises RunFailed for one that is not whole, unless another driver's attempt
    of its shard was."""
    seconds = {attempt.attempt: attempt.seconds for attempt in done}
    shards = adopt(work, run, [attempt.shard for attempt in done], seconds)
    written = {attempt.shard.shard_id for attempt in done}
    closed = [shard.name for shard in shards if shard.state == "closed" and shard.shard_id in written]
    if closed:
        raise RunFailed(f"shards {', '.join(closed[:10])} of run {run.run_id} were closed meanwhile; start again")
    short = [shard.name for shard in shards if shard.state == "pending" and shard.shard_id in written]
    if short:
        raise RunFailed(
            f"shards {', '.join(short[:10])} of run {run.run_id} wrote fewer or other rows than they have documents; "
            "start again to resume"
        )
    return shards


def split(work: Work, run: Run, shard: Shard) -> list[Shard]:
    """Split a pending shard by its documents in the queue; its parts, none where an attempt of it was accepted first."""
    from pyspark.sql.functions import expr

    rows = (
        queued(work.spark, work.tables, run.run_id, "infer")
        .where(in_range("doc_hash", shard.lo, shard.hi))
        .groupBy("doc_hash")
        .agg(expr("count(*) AS documents"), expr("sum(tokens) AS tokens"))
        .selectExpr("*", f"ntile({ways(shard.documents, MOST_PARTS)}) OVER (ORDER BY doc_hash) AS part")
        .groupBy("part")
        .agg(*map(expr, ("min(doc_hash) AS lo", "sum(documents) AS documents", "sum(tokens) AS tokens")))
        .orderBy("part")
        .collect()
    )
    try:
        parts = parts_of(shard, [(row["lo"], row["documents"], row["tokens"]) for row in rows])
    except ValueError as error:
        raise RunFailed(f"the queue of run {run.run_id} is not what was planned: {error}") from error
    work.ledger.split(run, shard, parts)
    ids = {part.shard_id for part in parts}
    return [found for found in work.ledger.shards(run.run_id) if found.shard_id in ids]
