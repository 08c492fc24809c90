"""The main job on real input: write a Delta table, label it, look at what came out, and run again for nothing.

Run from the repository's root: `.venv/bin/python demo [--source bundled|debian]`. Exit codes: 0 all is as it should be;
1 something is not, and the last lines say what; 2 the corpus is not there or the settings are wrong; 3 as lakelabel's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import findings
from corpora import Corpus, NoCorpusError, bundled, debian
from rich.console import Console

from lakelabel.errors import LakelabelError
from lakelabel.session import open_session
from lakelabel.settings import load

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

CORPORA = {"bundled": bundled, "debian": debian}


class RunEndedError(Exception):
    """`lakelabel classify` ended with an exit code other than 0, and has said why on stderr."""

    def __init__(self, code: int) -> None:
        super().__init__(f"lakelabel classify ended with exit code {code}")
        self.code = code


def main() -> int:
    """Tell the whole story; return the exit code."""
    parser = argparse.ArgumentParser(prog="demo", description="Label a small corpus with a small model, twice.")
    parser.add_argument(
        "--source", choices=sorted(CORPORA), default="bundled", help="bundled documents, or Debian's packages"
    )
    source = parser.parse_args().source
    console = Console()
    try:
        corpus = CORPORA[source]()
        wrong = tell(console, corpus)
    except NoCorpusError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except RunEndedError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except LakelabelError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for sentence in wrong:
        print(f"wrong: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


def tell(console: Console, corpus: Corpus) -> list[str]:
    """Write the source, classify it twice and show both; return what is wrong, one sentence each."""
    began = time.monotonic()
    settings = load(corpus.conf)
    table = settings.source.table
    with open_session() as spark:
        console.rule(f"1. The source: {table}", align="left")
        written = write_if_changed(spark, corpus, table)
        console.print(f"{len(corpus.documents)} rows, {'written' if written else 'as they are there already'}")

        console.rule(f"2. lakelabel classify --conf {corpus.conf} --json", align="left")
        first = classify(corpus.conf)
        findings.show_run(console, first)
        if not first["documents"]["inferred"]:
            console.print("An earlier run has labelled everything; delete the folder data/ to see the work done again.")

        console.rule("3. What came out", align="left")
        found = findings.ask(spark, settings, first)
        findings.show_findings(console, found)
        wrong = findings.wrong_with_first(first, found, corpus)

        console.rule("4. The same command again", align="left")
        second = classify(corpus.conf)
        findings.show_run(console, second)
        after = findings.ask(spark, settings, second).labels_version
        repeated = findings.wrong_with_second(second, found.labels_version, after)
        if not repeated:
            console.print(f"Nothing was inferred again, and the table labels is still at version {after}.")
    findings.show_next(console, corpus, settings)
    console.print(f"{time.monotonic() - began:.0f} s in all.")
    return wrong + repeated


def write_if_changed(spark: SparkSession, corpus: Corpus, path: str) -> bool:
    """Make the Delta table at `path` hold exactly the corpus; return whether it had to be written.

    A table that holds the same rows already is left as it is: a new version would only be planned again for nothing.
    """
    from delta.tables import DeltaTable

    rows = spark.createDataFrame(list(corpus.documents), ", ".join(f"{column} STRING" for column in corpus.columns))
    if DeltaTable.isDeltaTable(spark, path):
        there = spark.read.format("delta").load(path)
        if there.columns == rows.columns and fingerprint(there) == fingerprint(rows):
            return False
    writer = rows.coalesce(1).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.save(path)
    return True


def fingerprint(rows: DataFrame) -> tuple[int, object]:
    """Return the number of rows and the sum of their hashes: equal for the same rows in any order."""
    from pyspark.sql.functions import col, count, lit, struct, to_json, xxhash64
    from pyspark.sql.functions import sum as sum_

    # As JSON, a NULL in one column differs from a NULL in the next. As decimals, since a sum of longs may overflow.
    hashes = xxhash64(to_json(struct(*(col(column) for column in rows.columns)))).cast("decimal(38,0)")
    (row,) = rows.select(count(lit(1)), sum_(hashes)).collect()
    return row[0], row[1]


def classify(conf: Path) -> findings.Report:
    """Run the real command in a process of its own, its progress on our stderr; return the report it prints.

    Raises RunEndedError where it ends with another exit code than 0.
    """
    command = [sys.executable, "-m", "lakelabel.cli", "classify", "--conf", str(conf), "--json"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False)
    if ended.returncode != 0:
        raise RunEndedError(ended.returncode)
    report: findings.Report = json.loads(ended.stdout.splitlines()[-1])
    return report


if __name__ == "__main__":
    sys.exit(main())
