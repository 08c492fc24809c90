"""Whether every document of the source stands in exactly one state, with the content that the source has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakelabel.answers import Answer, Invariant
from lakelabel.checking import validated
from lakelabel.errors import SettingsError
from lakelabel.sections import Source as SourceSettings
from lakelabel.snapshot import View
from lakelabel.source import FINGERPRINT, Source, documents
from lakelabel.tables import current_version, first_line, in_list, sql_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

COMPLETE = Invariant(
    "complete",
    "every document of the source is in exactly one state, with the source's content",
    "documents of the source",
    "start classify with the settings of that run again; where a row is there twice or has other content, delete it first",
)

Fingerprint = list[tuple[int, int, int]]


class _Unreadable(Exception):
    """The scope of a run cannot be read any more; the text says why."""


def complete(view: View) -> Answer:
    """Compare the states with the scope of the newest finished run: with the source itself at the version that the run
    pinned, or with the run's fingerprint of it where that version is gone."""
    unfinished = view.rows(
        "SELECT run_id, state FROM "
        f"(SELECT * FROM {view.runs_before} UNION ALL SELECT * FROM {view.runs}) WHERE state IN ('planning', 'ready') LIMIT 1"
    )
    if unfinished:
        run_id, state = unfinished[0]
        return _unknown(view, f"run {run_id} is {state}: wait, or start it again to finish it")
    newest = view.rows(
        # A retry is about a part of the documents.
        f"SELECT * FROM {view.runs_before} WHERE state = 'finished' AND get_json_object(settings, '$.retry') IS NULL"
        " ORDER BY seq DESC, created_at DESC LIMIT 1"
    )
    if not newest:
        return _unknown(view, "no run has finished: start classify")
    run = newest[0]
    try:
        with _scope(view, run) as (found, of):
            return COMPLETE.judge(
                view.prompt_version, _settled(view, run, found), f" at version {run['source_version']}{of}"
            )
    except _Unreadable as error:
        return _by_fingerprint(view, run, str(error))


@contextmanager
def _scope(view: View, run: Row) -> Iterator[tuple[DataFrame, str]]:
    """The run's documents read anew (doc_id, doc_hash, content_hash), and a word on ``--limit``. Raises _Unreadable."""
    from pyspark import StorageLevel

    with _readable():
        given = json.loads(run["settings"])
        settings = validated(SourceSettings, given["source"])
        name, limit = sql_name(run["source_table"]), given.get("limit")
        if current_version(view.spark, name).table_id != run["source_table_id"]:
            raise _Unreadable("the source was dropped and made again since")
        source = Source(run["source_table"], name, run["source_table_id"], run["source_version"])
        columns = ("doc_id", "doc_hash", "content_hash")
        found = documents(view.spark, source, settings, limit).select(*columns).persist(StorageLevel.DISK_ONLY)
    try:
        with _readable():
            read = _fingerprint(found)
        if read != _fingerprint_of(run):
            raise _Unreadable(
                "version and settings of that run give other documents now: does source.where change with time?"
            )
        yield found, "" if limit is None else f", --limit {limit}"
    finally:
        found.unpersist()


@contextmanager
def _readable() -> Iterator[None]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise _Unreadable(f"the source cannot be read at the run's version ({_condition(error)})") from error
    except (SettingsError, KeyError, TypeError, ValueError) as error:
        raise _Unreadable(f"the settings of the run do not lead to its source ({first_line(error)})") from error


def _condition(error: Exception) -> str:
    # Where reading failed, Spark's own words may quote what was read.
    condition = getattr(error, "getCondition", lambda: None)()
    return condition or type(error).__name__


def _settled(view: View, run: Row, found: DataFrame) -> DataFrame:
    """Each document of the source beside its rows in the states; a newer fact may be of other content."""
    from pyspark.sql.functions import expr

    columns = "doc_hash, doc_id, content_hash AS has, seq, source_table_id, source_version"
    states = view.frame(
        f"SELECT {columns} FROM {view.labels} UNION ALL SELECT {columns} FROM {view.quarantine} WHERE status = 'open'"
    )
    fits = (
        f"has = content_hash OR seq > {run['seq']} OR (source_version > {run['source_version']}"
        f" AND source_table_id = {in_list([run['source_table_id']])})"
    )
    return (
        found.join(states, ["doc_hash", "doc_id"], "left")
        .groupBy("doc_hash", "doc_id")
        .agg(expr("count(has) AS n"), expr(f"bool_and({fits}) AS fits"))
        .selectExpr(
            "doc_id AS key",
            "doc_hash AS at",
            "CASE WHEN n = 0 THEN 'in neither state' WHEN n > 1 THEN concat('there ', n, ' times')"
            " WHEN NOT fits THEN 'there with other content' END AS what",
        )
    )


def _by_fingerprint(view: View, run: Row, reason: str) -> Answer:
    columns = "doc_id, doc_hash, content_hash"
    states = view.frame(
        f"SELECT {columns} FROM {view.labels} UNION ALL SELECT {columns} FROM {view.quarantine} WHERE status = 'open'"
    )
    planned = _fingerprint_of(run)
    if _fingerprint(states) != planned:
        return _unknown(
            view,
            f"{reason}, and the fingerprint that run {run['run_id']} took of it is not that of the states: they may also "
            "hold documents that have left the source; start classify over the source as it is",
        )
    looked_at = f"{sum(n for _, n, _ in planned)} documents by the fingerprint of run {run['run_id']}: {reason}"
    return Answer(COMPLETE.name, view.prompt_version, "holds", COMPLETE.states, looked_at)


def _unknown(view: View, reason: str) -> Answer:
    return Answer(COMPLETE.name, view.prompt_version, "not checkable", COMPLETE.states, "nothing", reason=reason)


def _fingerprint_of(run: Row) -> Fingerprint:
    return sorted((one["bucket"], one["documents"], int(one["hash"])) for one in run["fingerprint"] or [])


def _fingerprint(rows: DataFrame) -> Fingerprint:
    """Per 1/256 of the range of doc_hash, documents and the sum of their hashes, as a plan takes it."""
    from pyspark.sql.functions import expr

    bucket, hashes = FINGERPRINT
    found = (
        rows.groupBy(expr(f"{bucket} AS bucket"))
        .agg(expr("count(*) AS documents"), expr(f"{hashes} AS hash"))
        .collect()
    )
    return sorted((row["bucket"], row["documents"], int(row["hash"])) for row in found)
