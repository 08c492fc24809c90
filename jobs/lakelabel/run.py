"""A run: lease, plan, label, commit, finish. Starting again is resuming."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lakelabel.canonical import canonical_json
from lakelabel.delta import retried
from lakelabel.errors import Interrupted, RunFailed, SettingsError
from lakelabel.interrupt import Interrupt
from lakelabel.job import Job, check_ready_to_retry, check_unchanged
from lakelabel.lease import Lease
from lakelabel.ledger import Run
from lakelabel.planning import plan_run
from lakelabel.points import around
from lakelabel.progress import Reporter
from lakelabel.report import Report, Tally, report, tally
from lakelabel.session import slots
from lakelabel.tables import in_list, values_sql
from lakelabel.work import Work
from lakelabel.working import close_run, finish_run
from lakelabel_udfs.schema import PROMPTS
from lakelabel_udfs.telemetry import Telemetry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def classify(
    spark: SparkSession, job: Job, reporter: Reporter, plan_only: bool = False, interrupt: Interrupt | None = None
) -> Report:
    """Label what is pending, and bring an unfinished run to its end first. With ``plan_only`` stop once a plan is ready.

    A retry (``job.options.retry``) is the same road over the quarantined documents that it is about.
    Raises Interrupted where ``interrupt`` was asked for, Stopped and its kinds (exit 3), RunFailed.
    """
    interrupt = Interrupt() if interrupt is None else interrupt
    job.tables.create(spark)
    _register_prompt(spark, job)
    seconds = job.settings.queue.lease_seconds

    def pause(length: float) -> None:
        if interrupt.wait(length):
            raise Interrupted("interrupted while waiting for the lease; start again")

    with Lease.take(spark, job.tables, job.prompt_version, seconds, reporter.say, pause) as lease:
        work = Work(spark, job, lease, reporter, Telemetry(spark), interrupt, slots(spark))
        interrupt.on_stop = lease.on_lost = work.cancel_labels
        try:
            if interrupt.asked:
                # It came before there was anything to cancel.
                raise Interrupted("interrupted; start again")
            with work.timed("total"):
                runs, tallies = zip(*_go_on(work, plan_only), strict=True)
        except RunFailed:
            # With the lease goes what is in flight, and a plan that is cancelled fails in Spark's words.
            lease.check()
            raise
        finally:
            interrupt.on_stop = lambda: None
    counted: Tally = tallies[0]
    for another in tallies[1:]:
        counted += another
    return report(runs, counted, work.clock, job.settings.cost.price_per_slot_hour)


def _go_on(work: Work, plan_only: bool) -> Iterator[tuple[Run, Tally]]:
    """Every run that this start works on: an unfinished one first, then a new one unless the first is of the newest source."""
    job, newest = work.job, None
    # Both were checked before the lease as well, when nothing had been touched; another start may have come in between.
    check_unchanged(work.spark, job)
    if job.options.retry:
        check_ready_to_retry(work.spark, job)
    for run in work.ledger.left_behind(job.prompt_version):
        work.ledger.close_shards(run)
        work.drop_queue(run)
    for other in work.ledger.unfinished_elsewhere(job.task.name, job.prompt_version):
        work.reporter.say(f"run {other} of this task is unfinished; start it with its own settings to end it")
    for run in work.ledger.runs(job.prompt_version):
        if run.state == "planning":
            work.reporter.say(f"run {run.run_id} was never planned to its end: closed")
            work.ledger.close_shards(run)
            work.drop_queue(run)
            work.ledger.move_run(run.run_id, "planning", "closed")
        elif run.state == "ready" and (run.settings_digest != job.settings_digest or work.ledger.is_closing(run)):
            work.reporter.say(
                f"run {run.run_id} has other settings: what it has labelled is committed, the rest is closed"
            )
            close_run(work, run)
        elif run.state == "ready":
            work.reporter.say(f"run {run.run_id} goes on")
            newest = run
            yield run, _settle(work, run, plan_only)
    if newest is None or (not plan_only and not job.options.retry and _has_moved_on(job, newest)):
        run = plan_run(work)
        yield run, _settle(work, run, plan_only)


def _settle(work: Work, run: Run, plan_only: bool) -> Tally:
    if plan_only:
        return tally(work.spark, work.tables, run, work.ledger.shards(run.run_id))
    return finish_run(work, run)


def _has_moved_on(job: Job, run: Run) -> bool:
    return (run.source_table_id, run.source_version) != (job.source.table_id, job.source.version)


def _register_prompt(spark: SparkSession, job: Job) -> None:
    """Keep the prompt's definition, once; refuse a prompt_version that stands for another one."""
    name = job.tables.name(PROMPTS)
    known = f"SELECT digest FROM {name} WHERE prompt_version = {in_list([job.prompt_version])}"
    found = spark.sql(known).collect()
    if not found:
        columns = ("prompt_version", "digest", "definition")
        row = values_sql(columns, [(job.prompt_version, job.prompt_digest, canonical_json(job.prompt_definition))])
        statement = (
            f"MERGE INTO {name} t USING {row} s ON t.prompt_version = {in_list([job.prompt_version])} "
            "WHEN NOT MATCHED THEN INSERT (prompt_version, digest, definition, created_at) "
            "VALUES (s.prompt_version, s.digest, s.definition, current_timestamp())"
        )
        with around("prompts.register"):
            retried(lambda: spark.sql(statement).collect())
        found = spark.sql(known).collect()
    if [row["digest"] for row in found] != [job.prompt_digest]:
        raise SettingsError(
            "task.name", job.task.name, f"{job.prompt_version} stands for another prompt; rename the task"
        )
