"""The texts of the MERGEs that bring the states up to the facts.

Every text carries literals for its partition and its doc_hash ranges, so that Delta reads and locks no more than that;
every matched clause says ``s.seq > t.seq``, so that repeating a commit, or committing late, changes nothing.
No string of a user or of a document stands in them: versions, runs and attempts are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakelabel.tables import Tables, in_list, in_range
from lakelabel_udfs.schema import KEY, LABELS, OUTCOMES, QUARANTINE, Table

Range = tuple[int, int]
_MATCHED = " AND ".join(f"t.{column} = s.{column}" for column in ("doc_hash", *KEY))


def contiguous(ranges: Sequence[Range]) -> list[Range]:
    """The same inclusive ranges, sorted, with those that touch or overlap joined."""
    joined: list[Range] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return joined


@dataclass(frozen=True)
class Facts:
    """Accepted facts of one run that are to be committed together: their attempts and the ranges they lie in."""

    prompt_version: str
    run_id: str
    attempts: tuple[str, ...]
    ranges: tuple[Range, ...]

    def source(self, tables: Tables, where: str) -> str:
        """The facts as a MERGE source, one a document: an insert-only MERGE would insert a double key twice."""
        columns = ", ".join(OUTCOMES.names)
        return (
            f"(SELECT * FROM (SELECT {columns}, row_number() OVER (PARTITION BY doc_hash, doc_id ORDER BY shard_id) AS nth"
            f" FROM {tables.name(OUTCOMES)} WHERE prompt_version = {in_list([self.prompt_version])}"
            f" AND run_id = {in_list([self.run_id])} AND attempt IN ({in_list(self.attempts)})) WHERE nth = 1 AND {where})"
        )

    def on(self) -> str:
        """The condition that pairs facts with rows of a state."""
        return f"t.prompt_version = {in_list([self.prompt_version])}{self._in_ranges()} AND {_MATCHED}"

    def _in_ranges(self) -> str:
        ranges = " OR ".join(in_range("t.doc_hash", low, high) for low, high in contiguous(self.ranges))
        return "" if ranges == "true" else f" AND ({ranges})"


_IS_LABEL = "failure_code IS NULL"
_IS_FAILURE = "failure_code IS NOT NULL"
_SET_LABEL = ", ".join(f"t.{column} = s.{column}" for column in LABELS.names)
_SET_FAILURE = ", ".join(
    [f"t.{column} = s.{column}" for column in QUARANTINE.names if column not in ("status", "resolved_by")]
    + ["t.status = 'open'", "t.resolved_by = NULL"]
)


def _insert(table: Table) -> str:
    own = {"status": "'open'", "resolved_by": "NULL"}
    values = ", ".join(own.get(column, f"s.{column}") for column in table.names)
    return f"WHEN NOT MATCHED THEN INSERT ({', '.join(table.names)}) VALUES ({values})"


def _merge(tables: Tables, table: Table, facts: Facts, where: str, clauses: str) -> str:
    return f"MERGE INTO {tables.name(table)} t USING {facts.source(tables, where)} s ON {facts.on()} {clauses}"


def insert_labels(tables: Tables, facts: Facts) -> str:
    """Insert-only: one scan and no rewrite. Its count of inserted rows says whether an update is needed."""
    return _merge(tables, LABELS, facts, _IS_LABEL, _insert(LABELS))


def insert_quarantine(tables: Tables, facts: Facts) -> str:
    """Insert-only, for failures of documents that never failed before."""
    return _merge(tables, QUARANTINE, facts, _IS_FAILURE, _insert(QUARANTINE))


def older_labels(tables: Tables, facts: Facts) -> str:
    """A row where a label is older than these facts: without one, ``update_labels`` need not run."""
    return _any_older(tables, LABELS, facts, "s.seq > t.seq")


def older_quarantine(tables: Tables, facts: Facts) -> str:
    """A row where ``update_quarantine`` would change something."""
    return _any_older(tables, QUARANTINE, facts, f"s.seq > t.seq AND (s.{_IS_FAILURE} OR t.status = 'open')")


def _any_older(tables: Tables, table: Table, facts: Facts, older: str) -> str:
    source = facts.source(tables, "true")
    return f"SELECT 1 FROM {tables.name(table)} t JOIN {source} s ON {facts.on()} WHERE {older} LIMIT 1"


def update_labels(tables: Tables, facts: Facts) -> str:
    """Matched-only: a newer label takes the row over, a newer failure takes it away."""
    return _merge(
        tables,
        LABELS,
        facts,
        "true",
        f"WHEN MATCHED AND s.seq > t.seq AND s.{_IS_FAILURE} THEN DELETE "
        f"WHEN MATCHED AND s.seq > t.seq THEN UPDATE SET {_SET_LABEL}",
    )


def update_quarantine(tables: Tables, facts: Facts) -> str:
    """Matched-only: a newer failure takes the row over and opens it, a newer label resolves an open one."""
    return _merge(
        tables,
        QUARANTINE,
        facts,
        "true",
        f"WHEN MATCHED AND s.seq > t.seq AND s.{_IS_FAILURE} THEN UPDATE SET {_SET_FAILURE} "
        "WHEN MATCHED AND s.seq > t.seq AND t.status = 'open' THEN UPDATE SET "
        "t.status = 'resolved', t.resolved_by = s.run_id",
    )
