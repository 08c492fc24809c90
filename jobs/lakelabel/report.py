"""The report of a run: counts from the tables, rates from the clock, in the shape that ``--json`` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from lakelabel.ledger import Run, accepted_facts
from lakelabel.sanity import ANSWER
from lakelabel.shards import Shard
from lakelabel.tables import Tables, in_list

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

DOCUMENTS = (
    *("source", "already_labeled", "already_quarantined", "pending"),
    *("by_rule", "inferred", "copied", "remaining", "labeled", "quarantined"),
)
TOKENS = ("prompt", "cached", "completion")
SECONDS = ("plan", "label", "commit", "total")


@dataclass
class Clock:
    """What one start spent: wall seconds by step, and what its tasks told of the engine. Counts of a whole run, which an
    earlier start may have begun, are none of its business."""

    plan: float = 0.0
    label: float = 0.0
    commit: float = 0.0
    total: float = 0.0
    engine: float = 0.0
    loading: float = 0.0
    loads: int = 0
    slots: int = 1
    labelled: int = 0
    prompt_tokens: int = 0


@dataclass(frozen=True)
class Report:
    """One start of the command: the run or runs that it worked on, added up."""

    run_id: str
    prompt_version: str
    source_version: int
    documents: dict[str, int]
    tokens: dict[str, int]
    seconds: dict[str, float]
    engine: dict[str, float]
    quarantine: dict[str, int]
    cost: dict[str, float | None]
    runs: tuple[str, ...] = ()
    labels: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return asdict(self)


def settled(shards: Sequence[Shard], kind: str) -> int:
    """Documents of one kind whose attempt has been accepted."""
    return sum(s.documents for s in shards if s.kind == kind and s.state in ("accepted", "committed"))


@dataclass(frozen=True)
class Tally:
    """What one or several runs have settled so far, counted in the tables."""

    documents: Counter[str]
    tokens: Counter[str]
    quarantine: Counter[str]
    labels: Counter[str]

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(_plus(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)))


def tally(spark: SparkSession, tables: Tables, run: Run, shards: Sequence[Shard]) -> Tally:
    """Count one run: its scope as planned (of a retry also the documents that were ``gone``), its accepted shards, and
    what their facts say."""
    documents: Counter[str] = Counter({name: run.documents.get(name, 0) for name in DOCUMENTS})
    tokens: Counter[str] = Counter(dict.fromkeys(TOKENS, 0))
    codes: Counter[str] = Counter()
    labels: Counter[str] = Counter()
    for name, kind in (("by_rule", "rule"), ("inferred", "infer"), ("copied", "copy")):
        documents[name] = settled(shards, kind)
    if "gone" in run.documents:
        documents["gone"] = run.documents["gone"]
    documents["remaining"] = documents["pending"] - sum(documents[name] for name in ("by_rule", "inferred", "copied"))
    for row in _answers(spark, tables, run) if shards else ():
        code, label = row["failure_code"], row["label"]
        documents["labeled" if code is None else "quarantined"] += row["n"]
        (labels if code is None else codes)[label if code is None else code] += row["n"]
        for kind in TOKENS:
            tokens[kind] += row[kind] or 0
    return Tally(documents, tokens, codes, labels)


def report(runs: Sequence[Run], counted: Tally, clock: Clock, price: float | None) -> Report:
    """The report of the runs that one start worked on; of several, ``counted`` is their sum."""
    hours = clock.label * clock.slots / 3600
    total = None if price is None else price * hours
    return Report(
        run_id=runs[-1].run_id,
        prompt_version=runs[-1].prompt_version,
        source_version=runs[-1].source_version,
        documents=dict(counted.documents),
        tokens={name: counted.tokens[name] for name in TOKENS},
        seconds={name: round(getattr(clock, name), 3) for name in SECONDS},
        engine={
            "slots": clock.slots,
            "loads": clock.loads,
            "load_seconds": round(clock.loading, 3),
            "busy_ratio": _share(clock.engine, clock.slots * clock.label),
            "tokens_per_second": _share(clock.prompt_tokens, clock.label),
            "documents_per_second": _share(clock.labelled, clock.label),
        },
        quarantine=dict(sorted(counted.quarantine.items())),
        cost={
            "total": total,
            "per_million_documents": None if total is None or not clock.labelled else total / clock.labelled * 1e6,
        },
        runs=tuple(run.run_id for run in runs),
        labels=dict(counted.labels.most_common()),
    )


def _answers(spark: SparkSession, tables: Tables, run: Run) -> list[Row]:
    """Documents and tokens by failure code and label."""
    from pyspark.sql.functions import expr

    sums = [f"sum({kind}_tokens) AS {kind}" for kind in TOKENS]
    return (
        accepted_facts(spark, tables, run.prompt_version)
        .where(f"run_id = {in_list([run.run_id])}")
        .groupBy("failure_code", expr(f"{ANSWER} AS label"))
        .agg(*(expr(text) for text in ("count(*) AS n", *sums)))
        .collect()
    )


def _plus(left: Counter[str], right: Counter[str]) -> Counter[str]:
    # Counter's own + drops what is 0, and the report names every count.
    total = Counter(left)
    total.update(right)
    return total


def _share(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole > 0 else 0.0
