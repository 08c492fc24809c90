"""What must hold once a site has come to its end, whatever was done to it; and the table of all that was checked."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from dataclasses import astuple, dataclass, fields
from typing import Any

from typer.testing import CliRunner

from lakelabel.cli import app
from lakelabel.completeness import COMPLETE
from lakelabel.ledger_invariants import LEDGER
from lakelabel.state_invariants import STATES
from tests.faults.documents import verdict
from tests.faults.harness import Site


@dataclass(frozen=True)
class Result:
    """One line of the table: what a scenario cost."""

    scenario: str
    documents: int
    shards: int
    faults: int
    inferred: int
    repeated: int
    lost: int
    doubled: int
    seconds: float


RESULTS: list[Result] = []
INVARIANTS = {*(invariant.name for invariant, _ in STATES + LEDGER), COMPLETE.name}
KILLED_AT: set[str] = set()
"""Points at which a scenario has killed a start."""


def holds(
    site: Site,
    scenario: str,
    faults: int,
    recovering: float,
    expected: dict[str, str] | None = None,
    at_most: int | None = None,
) -> Result:
    """Check a site whose last start has ended with 0, and put it into the table.

    ``recovering`` is the moment of its last fault; ``expected`` gives verdicts of documents that do not follow from
    their texts alone; ``at_most`` is how many inferences may be repeated, by default those of one shard a fault.
    """
    seconds = time.monotonic() - recovering
    wanted = {doc_id: verdict(text) for doc_id, text in site.documents.items()} | (expected or {})
    states, shards, inferred = site.states(), site.infer_shards(), site.inferred
    found = Counter(doc_id for doc_id, _ in states.elements())
    result = Result(
        scenario,
        len(site.documents),
        len(shards),
        faults,
        len(inferred),
        len(inferred) - len(set(inferred)),
        len(wanted.keys() - found.keys()),
        sum(n - 1 for n in found.values()) + _doubled_keys(site),
        seconds,
    )
    RESULTS.append(result)
    assert (result.lost, result.doubled) == (0, 0), result
    assert dict(states.keys()) == wanted
    assert set(inferred) == site.sent
    assert result.repeated <= (faults * max(shards, default=0) if at_most is None else at_most), result
    assert faults != 1 or result.repeated <= 0.1 * len(site.documents), result
    is_verified(site)
    return result


def _doubled_keys(site: Site) -> int:
    """Rows of `quarantine` beyond one a key, resolved ones included."""
    keys = Counter(
        (row["doc_id"], row["prompt_version"]) for row in site.rows("quarantine", "doc_id", "prompt_version")
    )
    return sum(n - 1 for n in keys.values())


def is_verified(site: Site) -> None:
    """`lakelabel audit verify` finds nothing broken, and nothing that it cannot answer."""
    found = invoked(site, "audit", "verify")
    assert [answer for answer in found["answers"] if answer["verdict"] != "holds"] == []
    assert {answer["invariant"] for answer in found["answers"]} == INVARIANTS


def invoked(site: Site, *command: str) -> dict[str, Any]:
    """Run a command here, in the tests' own session, since a JVM takes 10 s to start; its report."""
    # A command takes signals over for the rest of its process; here they are pytest's.
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        result = CliRunner().invoke(app, [*command, *site.arguments()], catch_exceptions=False)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout.splitlines()[-1]))


def table() -> list[str]:
    """The results as lines of text."""
    names = [field.name for field in fields(Result)]
    rows = [[f"{value:.1f}" if isinstance(value, float) else str(value) for value in astuple(one)] for one in RESULTS]
    widths = [max(len(row[i]) for row in [names, *rows]) for i in range(len(names))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in [names, *rows]
    ]
