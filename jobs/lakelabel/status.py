"""Status: how far the runs of a prompt_version are, and who works on them, as the tables tell any other process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakelabel.errors import escaped
from lakelabel.host import Here
from lakelabel.snapshot import counting
from lakelabel.tables import Tables, in_list
from lakelabel_udfs.schema import LEASES, QUARANTINE, RUNS, SHARDS

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_RUNS = 5
"""How many runs are told of, the newest first."""

_RECENT_SECONDS = 3600


@dataclass(frozen=True)
class Holder:
    """Who holds or held the lease. state: ``beats``; ``released`` (given back); ``gone`` (its process has ended on this
    machine): the next start takes it over; ``silent`` (no beat for longer than the lease): it may. age: seconds since the last
    sign of it, by two clocks."""

    state: str
    epoch: int
    owner: str
    host: str
    pid: int
    age: float


@dataclass(frozen=True)
class Progress:
    """One run. documents: planned (what it was to settle), settled, remaining; empty before the plan is ready.

    shards: by state. documents_per_hour: what the run has settled of late, hours_left: what is left at that rate; both
    None unless somebody works on it.
    """

    run_id: str
    state: str
    created_at: str
    documents: dict[str, int]
    shards: dict[str, int]
    documents_per_hour: float | None
    hours_left: float | None


@dataclass(frozen=True)
class Status:
    """What the tables say of one prompt_version; quarantine: open rows by failure code."""

    prompt_version: str
    lease: Holder | None
    runs: tuple[Progress, ...]
    quarantine: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [self.prompt_version, f"  lease: {_held(self.lease)}"]
        for run in self.runs or ():
            lines.append(f"  run {run.run_id}: {run.state}, planned {run.created_at}")
            for name, counts in (("documents", run.documents), ("shards", run.shards)):
                lines += [f"    {name}: {_listed(counts)}"] if counts else []
            if run.documents_per_hour is not None:
                left = "" if run.hours_left is None else f", {run.hours_left:.2f} hours left"
                lines.append(f"    {run.documents_per_hour:.0f} documents an hour{left}")
        lines.append(f"  in quarantine: {_listed(self.quarantine) or 'nothing'}")
        return "\n".join(lines)


def prompt_versions(spark: SparkSession, tables: Tables) -> list[str]:
    """Those that have runs."""
    rows = tables.read(spark, RUNS).select("prompt_version").distinct().orderBy("prompt_version").collect()
    return [row["prompt_version"] for row in rows]


def status(spark: SparkSession, tables: Tables, prompt_version: str, lease_seconds: int) -> Status:
    """Read one prompt_version; ``lease_seconds`` is how long an owner may be silent."""
    where = f"prompt_version = {in_list([prompt_version])}"
    leases = tables.read(spark, LEASES).where(where).orderBy("epoch", "at", ascending=False).limit(1).collect()
    holder = _holder(leases[0], lease_seconds) if leases else None
    working = holder is not None and holder.state == "beats"
    runs = (
        tables.read(spark, RUNS)
        .where(where)
        .selectExpr("run_id", "state", "date_format(created_at, 'yyyy-MM-dd HH:mm:ss') AS created_at", "documents")
        .orderBy("seq", "created_at", ascending=False)
        .limit(_RUNS)
        .collect()
    )
    failures = tables.read(spark, QUARANTINE).where(f"{where} AND status = 'open'").groupBy("failure_code").count()
    return Status(
        prompt_version,
        holder,
        tuple(_progress(spark, tables, row, working) for row in runs),
        {row["failure_code"]: row["count"] for row in failures.orderBy("failure_code").collect()},
    )


def _holder(last: Row, lease_seconds: int) -> Holder:
    age = max(0.0, time.time() - last["at"].timestamp())
    if last["event"] == "released":
        state = "released"
    elif Here.read().is_gone(last):
        state = "gone"
    else:
        state = "beats" if age <= max(lease_seconds, last["lease_seconds"] or 0) else "silent"
    return Holder(state, last["epoch"], last["owner"], last["host"], last["pid"], round(age, 1))


def _progress(spark: SparkSession, tables: Tables, run: Row, working: bool) -> Progress:
    shards = spark.sql(
        "SELECT state, count(*) AS n, sum(documents) AS documents FROM "
        + counting(f"(SELECT * FROM {tables.name(SHARDS)} WHERE run_id = {in_list([run['run_id']])})")
        + " GROUP BY state ORDER BY state"
    ).collect()
    planned = (run["documents"] or {}).get("pending")
    settled = sum(row["documents"] for row in shards if row["state"] in ("accepted", "committed"))
    documents = {} if planned is None else {"planned": planned, "settled": settled, "remaining": planned - settled}
    rate = None
    if working and run["state"] == "ready":
        rate = documents_per_hour(_accepted(spark, tables, run["run_id"]))
    return Progress(
        *(run["run_id"], run["state"], run["created_at"], documents, {row["state"]: row["n"] for row in shards}, rate),
        documents["remaining"] / rate if rate and documents else None,
    )


def documents_per_hour(accepted: Sequence[tuple[datetime, int]]) -> float | None:
    """The rate of the last hour's steps, each a moment and the documents that were accepted or committed at it.

    Between the first moment and the last one, so that neither a restart's adopted shards nor the load of the engine
    count; None of fewer than two moments.
    """
    moments = sorted(accepted)
    recent = [one for one in moments if (moments[-1][0] - one[0]).total_seconds() <= _RECENT_SECONDS]
    if len(recent) < 2:
        return None
    return 3600 * sum(n for _, n in recent[1:]) / (recent[-1][0] - recent[0][0]).total_seconds()


def _accepted(spark: SparkSession, tables: Tables, run_id: str) -> list[tuple[datetime, int]]:
    from pyspark.sql.functions import expr

    rows = (
        tables.read(spark, SHARDS)
        .where(f"run_id = {in_list([run_id])} AND kind = 'infer' AND state IN ('accepted', 'committed')")
        .groupBy("updated_at")
        .agg(expr("sum(documents) AS documents"))
        .collect()
    )
    return [(row["updated_at"], row["documents"]) for row in rows]


def _held(holder: Holder | None) -> str:
    if holder is None:
        return "never taken"
    who = f"pid {holder.pid} on {escaped(holder.host or 'an unknown host')} (owner {holder.owner})"
    since = f"{holder.age:.0f} s ago"
    return {
        "released": f"free; {who} gave it back {since}",
        "gone": f"free; {who} has ended without giving it back: start again to go on",
        "silent": f"held by {who}, silent for {holder.age:.0f} s: the next start may take it over",
        "beats": f"held by {who}, last beat {since}",
    }[holder.state]


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in counts.items())
