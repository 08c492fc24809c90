"""What the files of the tables say without Spark and without Lakelabel's own checks: delta-rs and plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

_SETTLED = ("accepted", "committed")


def problems(root: Path) -> list[str]:
    """Keys that stand twice, documents in both states, and accepted attempts without exactly their shard's documents.

    Reads whole columns into memory: for tests. Of a table that is not there it raises.
    """
    labels = _keys(root / "labels")
    failures = _keys(root / "quarantine", "status", "open")
    found = [f"labels: {key} stands {n} times" for key, n in labels.items() if n > 1]
    found += [f"quarantine: {key} stands {n} times" for key, n in _keys(root / "quarantine").items() if n > 1]
    found += [f"both: {key}" for key in labels if key in failures]
    facts = defaultdict(list)
    columns = ["run_id", "shard_id", "attempt", "doc_id"]
    for fact in _rows(root / "outcomes", columns):
        facts[fact["run_id"], fact["shard_id"], fact["attempt"]].append(fact["doc_id"])
    for shard in _counting(root / "shards"):
        ids = facts[shard["run_id"], shard["shard_id"], shard["attempt"]]
        if shard["state"] in _SETTLED and not len(ids) == len(set(ids)) == shard["documents"]:
            told = f"{len(ids)} facts of {len(set(ids))} documents, not {shard['documents']}"
            found.append(f"shard {shard['run_id']}/{shard['shard_id']}: {told}")
    return found


def _counting(path: Path) -> list[dict[str, Any]]:
    """Planned shards, and parts of split ones: the part's index stands in ten bits above the id of what it is part of."""
    rows = _rows(path, ["run_id", "shard_id", "state", "attempt", "documents"])
    states = {(row["run_id"], row["shard_id"]): row["state"] for row in rows}

    def counts(row: dict[str, Any]) -> bool:
        shifts = [shift for shift in (52, 42, 32) if row["shard_id"] >> shift]
        return not shifts or states.get((row["run_id"], row["shard_id"] % 2 ** shifts[0])) == "split"

    return [row for row in rows if counts(row)]


def _keys(path: Path, column: str | None = None, value: str | None = None) -> Counter[tuple[str, str]]:
    rows = _rows(path, ["prompt_version", "doc_id", *([column] if column else [])])
    return Counter((row["prompt_version"], row["doc_id"]) for row in rows if column is None or row[column] == value)


def _rows(path: Path, columns: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table(columns=columns).to_pylist()
    return found
