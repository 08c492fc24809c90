"""``audit verify``: every invariant asked of every prompt_version in the tables; reads alone, at any time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from lakelabel.answers import Answer
from lakelabel.completeness import complete
from lakelabel.errors import SettingsError
from lakelabel.failures import spark_errors
from lakelabel.ledger_invariants import LEDGER
from lakelabel.snapshot import Snapshot
from lakelabel.state_invariants import STATES
from lakelabel.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify(spark: SparkSession, tables: Tables, prompt_version: str | None = None) -> Iterator[Answer]:
    """The answers, as they are found: of one prompt_version, or of all that the tables have.

    Raises SettingsError where there are no tables, or none of this version can read, or nothing of that prompt_version.
    """
    tables.check_there(spark)
    snapshot = Snapshot(spark, tables)
    versions = snapshot.prompt_versions()
    if prompt_version is not None:
        if prompt_version not in versions:
            there = ", ".join(versions[-10:]) or "none"
            raise SettingsError("--prompt-version", prompt_version, f"the tables have {there}; name one of them")
        versions = [prompt_version]
    for version in versions:
        view = snapshot.of(version)
        for invariant, relation in STATES + LEDGER:
            with _failing(invariant.name, version):
                answer = invariant.judge(version, view.frame(relation(view)))
            yield answer
        with _failing("complete", version):
            answer = complete(view)
        yield answer


def _failing(invariant: str, version: str) -> AbstractContextManager[None]:
    return spark_errors(f"the check {invariant} of {version}", "see whether all files of the tables are there")
