"""The two states rebuilt from the facts and the ledger alone, as anyone could in SQL."""

from __future__ import annotations

from lakelabel_udfs.schema import LABELS, QUARANTINE
from tests.road import Road

_ACCEPTED = """
  SELECT o.* FROM {outcomes} o JOIN {shards} s
  ON o.run_id = s.run_id AND o.shard_id = s.shard_id AND o.attempt = s.attempt
  WHERE s.state IN ('accepted', 'committed')
"""

_NEWEST = (
    """
WITH accepted AS ("""
    + _ACCEPTED
    + """),
ranked AS (SELECT *, row_number() OVER (PARTITION BY prompt_version, doc_id ORDER BY seq DESC) AS nth FROM accepted)
SELECT * FROM ranked WHERE nth = 1 AND failure_code IS NULL
"""
)

_FAILED = (
    """
WITH accepted AS ("""
    + _ACCEPTED
    + """),
failed AS (
  SELECT *, row_number() OVER (PARTITION BY prompt_version, doc_id ORDER BY seq DESC) AS nth
  FROM accepted WHERE failure_code IS NOT NULL
),
labelled AS (SELECT doc_id, prompt_version, seq, run_id FROM accepted WHERE failure_code IS NULL),
resolved AS (
  SELECT f.doc_id, f.prompt_version, min_by(l.run_id, l.seq) AS by_run
  FROM failed f JOIN labelled l ON f.doc_id = l.doc_id AND f.prompt_version = l.prompt_version AND l.seq > f.seq
  WHERE f.nth = 1 GROUP BY f.doc_id, f.prompt_version
)
SELECT f.*, CASE WHEN r.by_run IS NULL THEN 'open' ELSE 'resolved' END AS status, r.by_run AS resolved_by
FROM failed f LEFT JOIN resolved r ON f.doc_id = r.doc_id AND f.prompt_version = r.prompt_version WHERE f.nth = 1
"""
)


def assert_states_follow_from_facts(road: Road) -> None:
    """Both states equal, row for row and column for column, what the accepted facts say."""
    for table, query in ((LABELS, _NEWEST), (QUARANTINE, _FAILED)):
        columns = list(table.names)
        state = road.frame(f"SELECT * FROM {{{table.name}}}").select(*columns)
        rebuilt = road.frame(query).select(*columns)
        assert state.exceptAll(rebuilt).collect() == [], table.name
        assert rebuilt.exceptAll(state).collect() == [], table.name
