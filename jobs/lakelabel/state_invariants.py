"""What must be true of the two states, whatever has happened to the runs that wrote them, each as one relation in SQL."""

from __future__ import annotations

from collections.abc import Callable

from lakelabel.answers import UNKNOWN, Invariant
from lakelabel.snapshot import View
from lakelabel_udfs.schema import KEY, LABELS, QUARANTINE, Table

Relation = Callable[[View], str]

_WAITS = f"'{UNKNOWN}in shards that are accepted and not yet committed: wait, or start again'"
_DELETE = (
    "delete these rows of {0}, or RESTORE it to the version before what wrote them, then start classify again: what the "
    "states lack is copied from the facts, without inference"
)


def _unique(table: str) -> Relation:
    return lambda view: (
        "SELECT doc_id AS key, min(doc_hash) AS at,"
        f" CASE WHEN count(*) > 1 THEN concat('stands ', count(*), ' times') END AS what"
        f" FROM {getattr(view, table)} GROUP BY doc_id"
    )


def _label_or_failure(view: View) -> str:
    return (
        "SELECT doc_id AS key, doc_hash AS at,"
        f" CASE WHEN count(DISTINCT state) < 2 THEN NULL WHEN bool_or(waits) THEN {_WAITS}"
        " ELSE 'has a label and an open failure' END AS what FROM ("
        f"SELECT doc_id, doc_hash, 'label' AS state, false AS waits FROM {view.labels} UNION ALL "
        f"SELECT doc_id, doc_hash, 'failure', false FROM {view.quarantine} WHERE status = 'open' UNION ALL "
        f"SELECT doc_id, doc_hash, NULL, true FROM {view.facts} WHERE waits"
        ") GROUP BY doc_id, doc_hash HAVING count(state) > 0"
    )


def _follows(table: Table, counts: str, first: str, own: dict[str, str]) -> Relation:
    """A state beside the fact that each of its rows must equal: of a document's facts the newest that ``first`` puts first.

    counts: whether that fact is one for this state. own: the columns of the state that no fact has, over a window ``w``
    of the document's facts.
    """
    columns = [column for column in table.names if column not in KEY]
    expected = ", ".join(f"{own.get(column, column)} AS {column}" for column in columns)
    differs = ", ".join(f"CASE WHEN NOT (t.{column} <=> e.{column}) THEN '{column}' END" for column in columns)

    def relation(view: View) -> str:
        facts = (
            "SELECT *, max(CASE WHEN failure_code IS NOT NULL THEN seq END) OVER w AS failed_at"
            f" FROM {view.facts} WINDOW w AS (PARTITION BY doc_hash, doc_id)"
        )
        newest = (
            f"SELECT doc_id, {expected}, {counts} AS counts, bool_or(waits) OVER w AS waits,"
            f" row_number() OVER (PARTITION BY doc_hash, doc_id ORDER BY {first}seq DESC) AS nth"
            f" FROM ({facts}) WINDOW w AS (PARTITION BY doc_hash, doc_id)"
        )
        return (
            "SELECT coalesce(t.doc_id, e.doc_id) AS key, coalesce(t.doc_hash, e.doc_hash) AS at,"
            f" CASE WHEN e.waits THEN {_WAITS}"
            " WHEN t.doc_id IS NULL THEN CASE WHEN e.counts THEN 'missing' END"
            " WHEN e.doc_id IS NULL OR NOT e.counts THEN 'extra, without an accepted fact'"
            f" WHEN concat_ws(', ', {differs}) <> '' THEN concat('differing in ', concat_ws(', ', {differs})) END AS what"
            f" FROM {getattr(view, table.name)} t FULL OUTER JOIN (SELECT * FROM ({newest}) WHERE nth = 1) e"
            " ON e.doc_hash = t.doc_hash AND e.doc_id = t.doc_id"
        )

    return relation


_LATER_LABEL = "failure_code IS NULL AND seq > failed_at"
_QUARANTINE_OWN = {
    "status": f"CASE WHEN bool_or({_LATER_LABEL}) OVER w THEN 'resolved' ELSE 'open' END",
    "resolved_by": f"min_by(run_id, CASE WHEN {_LATER_LABEL} THEN seq END) OVER w",
}


def _known_labels(view: View) -> str:
    names = "from_json(definition, 'labels ARRAY<STRUCT<name: STRING>>').labels.name"
    return (
        f"SELECT doc_id AS key, doc_hash AS at, CASE WHEN p.n IS NULL THEN '{UNKNOWN}of a prompt without a definition'"
        " WHEN NOT array_contains(p.names, t.label) THEN 'with a label that the prompt does not have' END AS what"
        f" FROM {view.labels} t LEFT JOIN (SELECT count(*) AS n, first({names}) AS names FROM {view.prompts}"
        " HAVING count(*) = 1) p ON true"
    )


def _sound(view: View) -> str:
    columns = "doc_id, doc_hash, confidence, run_id, seq"
    return (
        "SELECT t.doc_id AS key, t.doc_hash AS at, CASE"
        # NaN is greater than every number.
        " WHEN t.confidence < 0 OR t.confidence > 1 THEN 'with a confidence that is no share'"
        " WHEN r.run_id IS NULL THEN 'whose run and seq are those of no run'"
        " WHEN t.doc_hash <> xxhash64(t.doc_id) THEN 'with the doc_hash of another id' END AS what"
        f" FROM (SELECT {columns} FROM {view.labels} UNION ALL SELECT {columns} FROM {view.quarantine}) t"
        f" LEFT JOIN (SELECT DISTINCT run_id, seq FROM {view.runs}) r ON r.run_id = t.run_id AND r.seq = t.seq"
    )


STATES: tuple[tuple[Invariant, Relation], ...] = (
    (
        Invariant("unique_labels", "labels has no duplicate key", "documents of labels", _DELETE.format("labels")),
        _unique("labels"),
    ),
    (
        Invariant(
            "unique_quarantine",
            "quarantine has no duplicate key",
            "documents of quarantine",
            _DELETE.format("quarantine"),
        ),
        _unique("quarantine"),
    ),
    (
        Invariant(
            "label_or_failure",
            "no document has a label and an open failure",
            "documents of the states",
            _DELETE.format("labels and of quarantine"),
        ),
        _label_or_failure,
    ),
    (
        Invariant(
            "labels_follow",
            "labels equals the newest accepted facts, column for column",
            "documents with facts or a label",
            _DELETE.format("labels"),
        ),
        _follows(LABELS, "failure_code IS NULL", "", {}),
    ),
    (
        Invariant(
            "quarantine_follows",
            "quarantine equals the newest accepted failures, column for column",
            "documents with facts or a failure",
            _DELETE.format("quarantine"),
        ),
        _follows(QUARANTINE, "failure_code IS NOT NULL", "failure_code IS NULL, ", _QUARANTINE_OWN),
    ),
    (
        Invariant("known_labels", "every label is one of its prompt's", "rows of labels", _DELETE.format("labels")),
        _known_labels,
    ),
    (
        Invariant(
            "sound_rows",
            "rows of the states have a confidence of 0 to 1, a run, and the hash of their id",
            "rows of the states",
            _DELETE.format("labels and of quarantine"),
        ),
        _sound,
    ),
)
