"""Bringing a planned run to its end: rules, labels, copies, commits, the check that all is there, and the record."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelabel import facts
from lakelabel.commit import Committer
from lakelabel.errors import Interrupted, RunFailed
from lakelabel.facts import Stamp
from lakelabel.job import may_stand_beside
from lakelabel.label import Attempt, Labeller
from lakelabel.labelling import Labelling
from lakelabel.ledger import Run, accepted_facts
from lakelabel.points import around
from lakelabel.report import Tally, tally
from lakelabel.sanity import ANSWER, IS_ANSWERED, Answer, Sanity
from lakelabel.settling import adopt, settle
from lakelabel.shards import Shard
from lakelabel.spending import Spending
from lakelabel.tables import in_list
from lakelabel.work import Work, sql_map
from lakelabel_udfs.schema import LABELS, OUTCOMES, QUARANTINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Measured:
    """What a start has spent up to a moment: wall seconds by step, seconds in the engine, tokens that it computed."""

    seconds: dict[str, float]
    engine: float
    uncached: float

    @classmethod
    def now(cls, work: Work) -> Measured:
        """The sums as they stand."""
        seconds = {"total": time.monotonic() - work.began}
        seconds |= {step: getattr(work.clock, step) for step in ("plan", "label", "commit")}
        return cls(seconds, work.telemetry["engine_seconds"], work.telemetry["uncached_tokens"])

    def since(self, before: Measured) -> Measured:
        """What came after an earlier moment."""
        seconds = {step: round(self.seconds[step] - before.seconds[step], 3) for step in self.seconds}
        return Measured(seconds, self.engine - before.engine, self.uncached - before.uncached)


def finish_run(work: Work, run: Run) -> Tally:
    """Settle every document of a ready run, from wherever an earlier start left it."""
    committer = Committer(work.spark, work.tables, work.ledger, work.lease)
    before = Measured.now(work)
    shards = work.ledger.shards(run.run_id)
    is_resumed = run.seq != work.lease.epoch
    if is_resumed:
        with work.timed("commit"):
            # What a former start appended and had no time to accept is adopted: it has been paid for. It is committed
            # before the loop begins, which then tells of what it commits itself.
            committer.commit(run, adopt(work, run, _pending(shards), {}))
            shards = work.ledger.shards(run.run_id)
    spending = _spending(work, run)
    rules = [_append(work, run, shard) for shard in _pending(shards, "rule")]
    while labelled := _pending(shards, "infer"):
        _label(work, run, labelled, committer, spending, is_resumed)
        # Where two drivers work without a lease, the other may have split what this one had in flight.
        shards = work.ledger.shards(run.run_id)
    with work.timed("commit"):
        if rules and not _pending(shards, "copy"):
            settle(work, run, rules)
        elif copies := _pending(shards, "copy"):
            # A copy's source is a fact that counts.
            settle(work, run, [*rules, *(_append(work, run, shard) for shard in copies)])
        if shards:
            committer.commit(run, work.ledger.shards(run.run_id))
            shards = _verified(work, run)
            work.drop_queue(run)
    counted = tally(work.spark, work.tables, run, shards)
    _record(work, run, counted, spending, Measured.now(work).since(before))
    return counted


def close_run(work: Work, run: Run) -> None:
    """End a ready run whose settings are not this job's: commit what it paid for, and close the rest for good."""
    if may_stand_beside(work.job, run):
        adopt(work, run, _pending(work.ledger.shards(run.run_id)), {})
    work.ledger.close_shards(run)
    committer = Committer(work.spark, work.tables, work.ledger, work.lease)
    committer.commit(run, work.ledger.shards(run.run_id))
    # The queue holds text, and nobody looks at a closed run again.
    work.drop_queue(run)
    work.ledger.move_run(run.run_id, "ready", "closed")


def _pending(shards: Sequence[Shard], *kinds: str) -> list[Shard]:
    return [shard for shard in shards if shard.state == "pending" and (not kinds or shard.kind in kinds)]


def _label(
    work: Work, run: Run, shards: list[Shard], committer: Committer, spending: Spending, is_resumed: bool
) -> None:
    documents = sum(shard.documents for shard in shards)
    work.reporter.say(f"labelling {documents} documents in {len(shards)} shards; the first one loads the engine")
    work.reporter.begin(documents)
    sanity = Sanity(work.job.settings.quality.stop, _answers(work, run) if is_resumed else Counter())
    job = work.job
    labeller = Labeller(work.spark, work.tables, job.engine_spec, job.prompt_spec, job.gate, work.telemetry, run)
    loop = Labelling(work, run, labeller, committer, spending, sanity)
    try:
        with work.timed("label"):
            loop.run(shards)
    finally:
        work.clock.slots = work.slots
        work.clock.engine = work.telemetry["engine_seconds"]
        work.clock.loading = work.telemetry["load_seconds"]
        work.clock.loads = int(work.telemetry["loads"])
        work.clock.labelled = int(work.telemetry["documents"])
        work.clock.prompt_tokens = int(work.telemetry["prompt_tokens"])


def _spending(work: Work, run: Run) -> Spending:
    """What the run has cost, told with every beat from now on, so that the next start knows it."""
    cost = work.job.settings.cost
    spending = Spending(cost.price_per_slot_hour, cost.budget, work.lease.held_before(run.run_id))
    work.lease.holding = lambda: (run.run_id, spending.held)
    return spending


def _answers(work: Work, run: Run) -> Counter[Answer]:
    """What the engine has answered in the run's accepted shards."""
    rows = (
        accepted_facts(work.spark, work.tables, run.prompt_version)
        .where(f"run_id = {in_list([run.run_id])} AND {IS_ANSWERED}")
        .selectExpr("failure_code", f"{ANSWER} AS answer")
        .groupBy("failure_code", "answer")
        .count()
        .collect()
    )
    return Counter({(row["failure_code"], row["answer"]): row["count"] for row in rows})


def _append(work: Work, run: Run, shard: Shard) -> Attempt:
    """Append the facts of a shard that needs no engine: those of rules, and copies."""
    if work.interrupt.asked:
        raise Interrupted
    began = time.monotonic()
    stamp = Stamp(run, shard.shard_id, str(uuid.uuid4()))
    rows: DataFrame
    if shard.kind == "rule":
        rows = facts.ruled(work.spark, work.tables, stamp)
    else:
        rows = facts.copied(work.spark, work.tables, stamp, work.job.gate)
    work.lease.check()
    with around(f"outcomes.{shard.kind}"):
        work.tables.append(rows, OUTCOMES, run.metadata)
    return Attempt(shard, stamp.attempt, time.monotonic() - began)


def _verified(work: Work, run: Run) -> list[Shard]:
    """The shards of a run, once all are committed and every document of theirs stands in one of the states."""
    shards = work.ledger.shards(run.run_id)
    left = [shard.name for shard in shards if shard.state not in ("committed", "split")]
    if left:
        raise RunFailed(f"shards {', '.join(left[:10])} of run {run.run_id} are not committed; start again to resume")
    where = f"prompt_version = {in_list([run.prompt_version])} AND run_id = {in_list([run.run_id])}"
    labels = work.tables.read(work.spark, LABELS).where(where).select("doc_id")
    failures = work.tables.read(work.spark, QUARANTINE).where(f"{where} AND status = 'open'").select("doc_id")
    settled = sum(shard.documents for shard in shards if shard.state == "committed")
    found = labels.unionAll(failures).count()
    if found < settled:
        # Somebody has taken rows away since they were committed. The next plan finds what is missing, and its facts.
        work.drop_queue(run)
        work.ledger.move_run(run.run_id, "ready", "closed")
    if found != settled:
        raise RunFailed(
            f"run {run.run_id} settled {settled} documents, and labels and quarantine hold {found} of them: another writer "
            "changed these tables; see what `lakelabel audit verify` finds, and start again"
        )
    return shards


def _record(work: Work, run: Run, counted: Tally, spending: Spending, spent: Measured) -> None:
    """Finish the run's row: counts of the whole run; seconds and rate of what this start did; cost of every start."""
    work.ledger.move_run(
        *(run.run_id, "ready", "finished"),
        {
            "documents": sql_map(dict(counted.documents), "L"),
            "tokens": sql_map(dict(counted.tokens), "L"),
            "seconds": sql_map(spent.seconds, "D"),
            "tokens_per_second": f"{spent.uncached / spent.engine!r}D" if spent.engine and spent.uncached else "NULL",
            "cost": "NULL" if spending.cost is None else f"{spending.cost!r}D",
        },
    )
