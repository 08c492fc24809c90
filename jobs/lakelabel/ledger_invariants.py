"""What must be true of the ledger, the facts and the prompts, each as one relation in SQL."""

from __future__ import annotations

from collections.abc import Callable

from lakelabel.answers import Invariant
from lakelabel.snapshot import View, parent
from lakelabel.tables import in_list

Relation = Callable[[View], str]

_RESTORE = "DESCRIBE HISTORY of {0} says what else wrote to it: RESTORE it to the version before"


def _attempts(view: View) -> str:
    return (
        "SELECT concat(s.run_id, '/', s.shard_id) AS key, CAST(NULL AS BIGINT) AS at, CASE"
        " WHEN coalesce(o.n, 0) <> s.documents THEN 'with another number of facts than documents'"
        " WHEN coalesce(o.n_distinct, 0) <> s.documents THEN 'with several facts of one document'"
        " WHEN o.lowest < s.lo OR o.highest > s.hi THEN 'with facts outside its range' END AS what"
        f" FROM {view.shards} s LEFT JOIN (SELECT run_id, shard_id, attempt, count(*) AS n,"
        " count(DISTINCT doc_hash, doc_id) AS n_distinct, min(doc_hash) AS lowest, max(doc_hash) AS highest"
        f" FROM {view.outcomes} GROUP BY run_id, shard_id, attempt) o"
        " ON o.run_id = s.run_id AND o.shard_id = s.shard_id AND o.attempt = s.attempt"
        " WHERE s.state IN ('accepted', 'committed')"
    )


def _ranges(view: View) -> str:
    return (
        "SELECT concat(run_id, '/', shard_id) AS key, CAST(NULL AS BIGINT) AS at, CASE WHEN lo > hi THEN 'empty'"
        " WHEN lo <= max(hi) OVER (PARTITION BY run_id ORDER BY lo, shard_id ROWS BETWEEN UNBOUNDED PRECEDING AND"
        f" 1 PRECEDING) THEN 'overlapping one before it' END AS what FROM {view.shards}"
        " WHERE kind = 'infer' AND state <> 'split'"
    )


def _settled(view: View) -> str:
    return (
        "SELECT concat(s.run_id, '/', s.shard_id) AS key, CAST(NULL AS BIGINT) AS at, CASE"
        " WHEN r.run_id IS NULL THEN 'of no run'"
        " WHEN b.state = 'finished' AND s.state NOT IN ('committed', 'split')"
        " THEN concat(s.state, ' in a finished run')"
        " WHEN b.state = 'closed' AND s.state NOT IN ('committed', 'split', 'closed')"
        " THEN concat(s.state, ' in a closed run') END AS what"
        f" FROM {view.shards} s LEFT JOIN (SELECT DISTINCT run_id FROM {view.runs}) r ON r.run_id = s.run_id"
        f" LEFT JOIN (SELECT run_id, max(state) AS state FROM {view.runs_before} GROUP BY run_id) b"
        " ON b.run_id = s.run_id"
    )


def _sums(view: View) -> str:
    return (
        "SELECT concat(p.run_id, '/', p.shard_id) AS key, CAST(NULL AS BIGINT) AS at,"
        " CASE WHEN coalesce(sum(c.documents), 0) <> p.documents"
        " THEN 'whose parts have other documents in sum' END AS what"
        f" FROM {view.shards} p LEFT JOIN {view.shards} c ON c.run_id = p.run_id AND {parent('c.shard_id')} = p.shard_id"
        " WHERE p.state = 'split' GROUP BY p.run_id, p.shard_id, p.documents UNION ALL"
        " SELECT r.run_id, NULL, CASE WHEN coalesce(s.documents, 0) <> r.documents['pending']"
        f" THEN 'whose shards have other documents in sum than were planned' END FROM {view.runs_before} r"
        f" LEFT JOIN (SELECT run_id, sum(documents) AS documents FROM {view.all_shards}"
        f" WHERE {parent('shard_id')} IS NULL GROUP BY run_id) s"
        " ON s.run_id = r.run_id WHERE r.documents['pending'] IS NOT NULL"
    )


def _definition(view: View) -> str:
    return (
        "SELECT v.key, CAST(NULL AS BIGINT) AS at, CASE WHEN count(p.digest) <> 1"
        " THEN concat('with ', count(p.digest), ' definitions')"
        " WHEN max(sha2(p.definition, 256)) <> max(p.digest) THEN 'whose definition has another digest'"
        " WHEN max(left(p.digest, 12)) <> substring_index(v.key, '-', -1)"
        " THEN 'that does not end in its digest' END AS what"
        f" FROM (SELECT {in_list([view.prompt_version])} AS key) v LEFT JOIN {view.prompts} p ON true GROUP BY v.key"
    )


def _unfinished(view: View) -> str:
    return (
        "SELECT run_id AS key, CAST(NULL AS BIGINT) AS at, CASE WHEN state IN ('planning', 'ready') AND"
        " count_if(state IN ('planning', 'ready')) OVER () > 1 THEN 'unfinished beside another' END AS what"
        f" FROM {view.runs}"
    )


LEDGER: tuple[tuple[Invariant, Relation], ...] = (
    (
        Invariant(
            "complete_attempts",
            "an accepted attempt has one fact a document of its shard",
            "accepted shards",
            f"{_RESTORE.format('outcomes')}; where that is gone, set the state of these shards and of their run to closed, "
            "delete the rows of the states that name them, and start classify again",
        ),
        _attempts,
    ),
    (
        Invariant(
            "disjoint_shards",
            "the shards that a run infers do not overlap",
            "shards to infer",
            _RESTORE.format("shards"),
        ),
        _ranges,
    ),
    (
        Invariant(
            "settled_shards",
            "a shard has a run, and one that has ended has none left to settle",
            "shards",
            f"{_RESTORE.format('shards')}, and of runs alike; then start classify again",
        ),
        _settled,
    ),
    (
        Invariant(
            "sums_of_shards",
            "parts of a split shard, and shards of a run, add up",
            "runs and split shards",
            _RESTORE.format("shards"),
        ),
        _sums,
    ),
    (
        Invariant(
            "defined_prompt",
            "a prompt_version has one definition, whose digest it ends in",
            "prompt_versions",
            _RESTORE.format("prompts"),
        ),
        _definition,
    ),
    (
        Invariant(
            "one_unfinished_run",
            "at most one run is unfinished",
            "runs",
            "start classify again: it goes on with one, and closes those of other settings",
        ),
        _unfinished,
    ),
)
