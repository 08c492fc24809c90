"""What the demo asks of the tables and of the reports, how it shows the answers, and what it takes for wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from lakelabel.tables import Tables, current_version, in_list, sql_name
from lakelabel.template import quote_identifier
from lakelabel_udfs.schema import LABELS, QUARANTINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corpora import Corpus
    from pyspark.sql import SparkSession
    from rich.console import Console

    from lakelabel.settings import Settings

Report = dict[str, Any]
"""The JSON object that `lakelabel classify --json` prints."""


@dataclass(frozen=True)
class Findings:
    """What stands in the tables after a run, under that run's prompt_version.

    labels: (label, documents, mean confidence), most frequent first.
    quarantine: (failure code, documents, one message) of the open rows.
    answers: (gold, label, documents) for every document with a gold label; the label is None where there is none.
    labels_version: newest version of the table `labels`.
    """

    labels: tuple[tuple[str, int, float], ...]
    quarantine: tuple[tuple[str, int, str], ...]
    answers: tuple[tuple[str, str | None, int], ...]
    labels_version: int

    @property
    def asked(self) -> int:
        """Documents with a gold label."""
        return sum(n for _, _, n in self.answers)

    @property
    def right(self) -> int:
        """Those of them whose label is the gold one."""
        return sum(n for gold, label, n in self.answers if gold == label)

    @property
    def largest_class(self) -> int:
        """How many would be right if the most frequent gold label were always the answer."""
        by_gold: dict[str, int] = {}
        for gold, _, n in self.answers:
            by_gold[gold] = by_gold.get(gold, 0) + n
        return max(by_gold.values(), default=0)


def ask(spark: SparkSession, settings: Settings, report: Report) -> Findings:
    """Ask the tables; only counts come back, the documents stay where they are."""
    tables = Tables(settings.tables.root)
    labels, quarantine = tables.name(LABELS), tables.name(QUARANTINE)
    source = f"{sql_name(settings.source.table)} VERSION AS OF {int(report['source_version'])}"
    (column,) = settings.source.id
    key = quote_identifier(column)
    # Literals, not parameters: with Delta 4.4.0 on Spark 4.2.0 every `:name` counts as unbound.
    here = f"prompt_version = {in_list([report['prompt_version']])}"

    def rows(query: str) -> tuple[Any, ...]:
        return tuple(tuple(row) for row in spark.sql(query).collect())

    return Findings(
        labels=rows(
            f"SELECT label, count(*) AS n, avg(confidence) FROM {labels} WHERE {here} "
            "GROUP BY label ORDER BY n DESC, label"
        ),
        quarantine=rows(
            f"SELECT failure_code, count(*), min_by(failure_message, doc_hash) FROM {quarantine} "
            f"WHERE {here} AND status = 'open' GROUP BY failure_code ORDER BY failure_code"
        ),
        answers=rows(
            f"SELECT d.gold, l.label, count(*) FROM (SELECT {key} AS doc_id, gold FROM {source} WHERE gold IS NOT NULL) d "
            f"LEFT JOIN {labels} l ON l.doc_id = d.doc_id AND l.{here} "
            "GROUP BY d.gold, l.label ORDER BY d.gold, l.label"
        ),
        labels_version=current_version(spark, labels).version,
    )


def wrong_with_first(report: Report, findings: Findings, corpus: Corpus) -> list[str]:
    """Return what is wrong after the first run, one sentence each; an empty list is a pass."""
    wrong = wrong_sums(report)
    if corpus.failures is not None:
        found = {code: n for code, n, _ in findings.quarantine}
        if found != corpus.failures:
            wrong.append(f"quarantine holds {found}, and the corpus was made to give {corpus.failures}")
        unlabelled = sum(n for _, label, n in findings.answers if label is None)
        if unlabelled:
            wrong.append(f"{unlabelled} documents that have a gold label got no label")
        if findings.right <= findings.largest_class:
            wrong.append(f"{findings.right} right is no better than always the same answer ({findings.largest_class})")
    return wrong


def wrong_with_second(report: Report, before: int, after: int) -> list[str]:
    """Return what is wrong after the second run; `before` and `after` are versions of the table `labels`."""
    wrong = wrong_sums(report)
    wrong += [
        f"the second run reports {name} {report['documents'][name]}, and there was nothing left to do"
        for name in ("pending", "inferred", "copied", "by_rule", "remaining")
        if report["documents"][name] != 0
    ]
    if after != before:
        wrong.append(f"the second run took the table labels from version {before} to {after}")
    return wrong


def wrong_sums(report: Report) -> list[str]:
    """Return which of the report's sums do not hold, or what a finished run has left over."""
    d = report["documents"]
    settled = d["by_rule"] + d["inferred"] + d["copied"]
    sums = {
        "source = already_labeled + already_quarantined + pending": d["source"]
        == d["already_labeled"] + d["already_quarantined"] + d["pending"],
        "pending = by_rule + inferred + copied + remaining": d["pending"] == settled + d["remaining"],
        "by_rule + inferred + copied = labeled + quarantined": settled == d["labeled"] + d["quarantined"],
        "remaining = 0": d["remaining"] == 0,
    }
    return [f"{name} does not hold in {d}" for name, holds in sums.items() if not holds]


def show_run(console: Console, report: Report) -> None:
    """Print how a run went: documents, tokens, time, engine."""
    d, tokens, seconds, engine = (report[name] for name in ("documents", "tokens", "seconds", "engine"))
    console.print(
        f"{d['source']} documents: {d['already_labeled'] + d['already_quarantined']} settled before, "
        f"{d['by_rule']} by rule, [bold]{d['inferred']} inferred[/bold], {d['copied']} copied"
    )
    if d["inferred"]:
        console.print(
            f"{tokens['prompt']:,} prompt tokens, {tokens['cached']:,} of them from the prefix cache; "
            f"{seconds['label']:.0f} s with the engine's start: {engine['tokens_per_second']:,.0f} tokens/s, "
            f"{engine['documents_per_second']:.1f} documents/s; engine loads: {engine['loads']}"
        )
    console.print(f"{seconds['total']:.0f} s in all: plan {seconds['plan']:.0f} s, commit {seconds['commit']:.0f} s")


def show_findings(console: Console, findings: Findings) -> None:
    """Print labels, quarantine and accuracy."""
    total = sum(n for _, n, _ in findings.labels)
    labels = Table("label", "documents", "", "mean confidence", title="Labels", title_justify="left")
    for label, n, confidence in findings.labels:
        labels.add_row(label, str(n), "█" * round(40 * n / total), f"{confidence:.2f}")
    console.print(labels)
    if findings.quarantine:
        quarantine = Table("failure code", "documents", "message of one", title="Quarantine", title_justify="left")
        for code, n, message in findings.quarantine:
            quarantine.add_row(code, str(n), message)
        console.print(quarantine)
    console.print(confusion(findings.answers))
    console.print(
        f"[bold]{findings.right} of {findings.asked} right ({findings.right / findings.asked:.0%})[/bold]; always the "
        f"same answer would get {findings.largest_class}. The model has 135 million parameters: it shows the road, not "
        "what a model of useful size can do."
    )


def confusion(answers: Sequence[tuple[str, str | None, int]]) -> Table:
    """Return the table of gold labels (rows) against answers (columns), with the right ones set off."""
    given = sorted({label or "" for _, label, _ in answers})
    # Abbreviated, since ten labels beside each other must fit a terminal of 80 columns.
    heads = [label[:8] or "(none)" for label in given]
    table = Table("gold", *heads, title="Gold labels (rows) and answers (columns)", title_justify="left")
    counts = {(gold, label or ""): n for gold, label, n in answers}
    for gold in sorted({gold for gold, _, _ in answers}):
        cells = [str(counts.get((gold, label), "·")) for label in given]
        table.add_row(
            gold, *(f"[bold]{cell}[/bold]" if label == gold else cell for cell, label in zip(cells, given, strict=True))
        )
    return table


def show_next(console: Console, corpus: Corpus, settings: Settings) -> None:
    """Print where to look next."""
    root = Path(settings.tables.root)
    console.print("[bold]Where to look next[/bold]")
    console.print(
        f"  tables      {root}/labels, {root}/quarantine, {root}/outcomes (every fact), {root}/runs", soft_wrap=True
    )
    if corpus.failures is not None:
        example = next(document[0] for document in corpus.documents if document[-2] is not None)
        for file, parameter in (
            ("label_distribution", ""),
            ("least_certain", ""),
            ("document_history", f" asked_doc_id={example}"),
        ):
            console.print(
                f"  ask them    .venv/bin/python demo/ask.py sql/{file}.sql{parameter}", highlight=False, soft_wrap=True
            )
        console.print(
            "  change one  edit a text in demo/documents.jsonl, `make demo` again: that one is inferred, no other",
            soft_wrap=True,
        )
    console.print(
        f"  settings    {corpus.conf}, {Path('conf/tasks') / settings.task.name}; README.md explains them",
        soft_wrap=True,
    )
