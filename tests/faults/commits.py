"""Every Delta commit that a run can make: each has a point before it and one after it."""

from __future__ import annotations

from lakelabel_udfs.schema import TABLES

CREATING = tuple(f"{table.name}.create" for table in TABLES)
TAKING = ("prompts.register", "leases.take", "labels.fence", "quarantine.fence", "leases.beat", "leases.release")
PLANNING = ("runs.add", "queue.add", "shards.add", "runs.ready")
LABELLING = ("outcomes.rule", "outcomes.infer", "outcomes.copy", "outcomes.condemn", "shards.fail", "shards.split")
COMMITTING = (
    *("shards.accept", "labels.insert", "labels.update", "quarantine.insert", "quarantine.update", "shards.commit"),
)
ENDING = ("shards.close", "runs.close", "runs.finish", "queue.drop")
COMMITS = (*CREATING, *TAKING, *PLANNING, *LABELLING, *COMMITTING, *ENDING)


def both(*commits: str) -> tuple[str, ...]:
    """The points before and after these commits, in order."""
    return tuple(f"{side} {commit}" for commit in commits for side in ("before", "after"))
