"""Label jobs on real Spark: what one submission is made of."""

from __future__ import annotations

from lakelabel.label import Labeller
from lakelabel.ledger import Ledger
from lakelabel_udfs.telemetry import Telemetry
from tests.road import Road


def test_a_job_of_several_shards_is_a_task_each_and_one_append(road: Road) -> None:
    """Two shards in one submission: two tasks, one commit of outcomes, and a complete attempt of each."""
    road.write([(f"d{i}", f"text {i}") for i in range(12)])
    run_id = road.run("queue.shard_tokens=8", plan_only=True)["run_id"]
    job, spark = road.job("queue.shard_tokens=8"), road.spark
    ledger = Ledger(spark, road.tables)
    run = next(run for run in ledger.runs(job.prompt_version) if run.run_id == run_id)
    shards = [shard for shard in ledger.shards(run_id) if shard.kind == "infer"][:2]
    labeller = Labeller(
        *(spark, road.tables, job.engine_spec, job.prompt_spec, job.gate, telemetry := Telemetry(spark)), run=run
    )
    before = road.versions("outcomes")
    spark.sparkContext.setJobGroup("two shards", "")
    try:
        attempts = labeller.label(shards)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    tracker = spark.sparkContext.statusTracker()
    stages = [
        tracker.getStageInfo(stage)
        for job_id in tracker.getJobIdsForGroup("two shards")
        for stage in (tracker.getJobInfo(job_id) or ()).stageIds
    ]
    assert max(stage.numTasks for stage in stages if stage is not None) == 2
    assert road.versions("outcomes") == before + 1
    complete = {(found.shard_id, found.attempt) for found in ledger.complete(run, shards)}
    assert complete == {(attempt.shard.shard_id, attempt.attempt) for attempt in attempts}
    assert telemetry.by_executor() == {"driver": sum(shard.documents for shard in shards)}
