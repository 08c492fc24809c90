"""Bringing a planned run to its end: label, accept, commit, copy, verify, record."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lakelabel import facts
from lakelabel.commit import SHARDS_AT_ONCE, Committer
from lakelabel.errors import RunFailed
from lakelabel.facts import Stamp
from lakelabel.failures import spark_errors
from lakelabel.label import Labeller
from lakelabel.ledger import Run, Shard
from lakelabel.report import DOCUMENTS, Tally, tally
from lakelabel.tables import in_list
from lakelabel.work import Work, sql_map
from lakelabel_udfs.schema import LABELS, OUTCOMES, QUARANTINE


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
    pending = [shard for shard in shards if shard.state == "pending"]
    if pending and run.seq != work.lease.epoch:
        # What a former start appended and had no time to accept is adopted: it has been paid for.
        with work.timed("commit"):
            shards = _accept(work, run, pending, {}, all_of_them=False)
    _label(work, run, [s for s in shards if s.state == "pending" and s.kind == "infer"], committer)
    with work.timed("commit"):
        for shard in shards:
            if shard.kind == "copy" and shard.state == "pending":
                _copy(work, run, shard)
        if shards:
            committer.commit(run, work.ledger.shards(run.run_id))
            shards = _verified(work, run)
            work.drop_queue(run)
    counted = tally(work.spark, work.tables, run, shards)
    _record(work, run, counted, shards, Measured.now(work).since(before))
    return counted


def close_run(work: Work, run: Run) -> None:
    """End a ready run whose settings are not this job's: commit what it accepted, and close the rest for good."""
    work.ledger.close_shards(run, "pending")
    committer = Committer(work.spark, work.tables, work.ledger, work.lease)
    committer.commit(run, work.ledger.shards(run.run_id))
    # The queue holds text, and nobody looks at a closed run again.
    work.drop_queue(run)
    work.ledger.move_run(run.run_id, "ready", "closed")


def _label(work: Work, run: Run, shards: Sequence[Shard], committer: Committer) -> None:
    """Label shard after shard; accept and commit as time goes by, and accept what is left at the end."""
    if not shards:
        return
    job = work.job
    labeller = Labeller(
        *(work.spark, work.tables, job.engine_spec, job.prompt_spec, job.gate, work.telemetry),
        metadata=run.metadata,
    )
    documents = sum(shard.documents for shard in shards)
    work.reporter.say(f"labelling {documents} documents in {len(shards)} shards; the first one loads the engine")
    work.reporter.begin(documents)
    done: list[Shard] = []
    seconds: dict[str, float] = {}
    committed_at = time.monotonic()
    for shard in shards:
        with work.timed("label"), spark_errors(f"shard {shard.shard_id} of run {run.run_id}"):
            attempt, took = labeller.label(run, shard)
        done.append(shard)
        seconds[attempt] = took
        work.reporter.advance(shard.documents)
        is_last = shard is shards[-1]
        if is_last or time.monotonic() - committed_at >= job.settings.queue.commit_every_seconds:
            with work.timed("commit"):
                accepted = _accept(work, run, done, seconds)
                if not is_last:
                    committer.commit(run, accepted)
            done, seconds, committed_at = [], {}, time.monotonic()
    work.clock.engine = work.telemetry["engine_seconds"]
    work.clock.loading = work.telemetry["load_seconds"]
    work.clock.loads = int(work.telemetry["loads"])
    work.clock.labelled = int(work.telemetry["documents"])
    work.clock.prompt_tokens = int(work.telemetry["prompt_tokens"])


def _copy(work: Work, run: Run, shard: Shard) -> None:
    began = time.monotonic()
    stamp = Stamp(run, shard.shard_id, str(uuid.uuid4()))
    rows = facts.copied(work.spark, work.tables, stamp, work.job.gate)
    work.tables.append(rows, OUTCOMES, run.metadata)
    _accept(work, run, [shard], {stamp.attempt: time.monotonic() - began})


def _accept(
    work: Work, run: Run, shards: Sequence[Shard], seconds: dict[str, float], all_of_them: bool = True
) -> list[Shard]:
    """Accept attempts whose rows are all there; the run's shards as the ledger then has them."""
    complete = work.ledger.complete(run, shards)
    short = sorted({shard.shard_id for shard in shards} - {found.shard_id for found in complete})
    if all_of_them and short:
        raise RunFailed(
            f"shards {short[:10]} of run {run.run_id} wrote fewer or other rows than they have documents; "
            "start again to resume"
        )
    for start in range(0, len(complete), SHARDS_AT_ONCE):
        work.ledger.accept(run, complete[start : start + SHARDS_AT_ONCE], seconds)
    return work.ledger.shards(run.run_id)


def _verified(work: Work, run: Run) -> list[Shard]:
    """The shards of a run, once all are committed and every document of theirs stands in one of the states."""
    shards = work.ledger.shards(run.run_id)
    left = [shard.shard_id for shard in shards if shard.state != "committed"]
    if left:
        raise RunFailed(f"shards {left[:10]} of run {run.run_id} are not committed; start again to resume")
    where = f"prompt_version = {in_list([run.prompt_version])} AND run_id = {in_list([run.run_id])}"
    labels = work.tables.read(work.spark, LABELS).where(where).select("doc_id")
    failures = work.tables.read(work.spark, QUARANTINE).where(f"{where} AND status = 'open'").select("doc_id")
    settled, found = sum(shard.documents for shard in shards), labels.unionAll(failures).count()
    if settled != found:
        raise RunFailed(f"run {run.run_id} settled {settled} documents, and the states hold {found} of them")
    return shards


def _record(work: Work, run: Run, counted: Tally, shards: Sequence[Shard], spent: Measured) -> None:
    """Finish the run's row: counts of the whole run; seconds and rate of what this start did; cost of every start."""
    price = work.job.settings.cost.price_per_slot_hour
    held = sum(shard.seconds or 0.0 for shard in shards if shard.kind == "infer")
    documents = {name: counted.documents[name] for name in DOCUMENTS}
    work.ledger.move_run(
        *(run.run_id, "ready", "finished"),
        {
            "documents": sql_map(documents, "L"),
            "tokens": sql_map(dict(counted.tokens), "L"),
            "seconds": sql_map(spent.seconds, "D"),
            "tokens_per_second": f"{spent.uncached / spent.engine!r}D" if spent.engine and spent.uncached else "NULL",
            "cost": "NULL" if price is None else f"{price * held / 3600!r}D",
        },
    )
