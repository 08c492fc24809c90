"""``lakelabel audit``: who said what, and whether the tables are sound."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lakelabel.arguments import Conf, Json, Set
from lakelabel.errors import escaped
from lakelabel.settings import load_tables

app = typer.Typer(no_args_is_help=True, help="Who said what, and whether the tables are sound.")


@app.callback()
def _root() -> None:
    """Who said what, and whether the tables are sound."""


@app.command()
def verify(
    conf: Conf,
    set_: Set = None,
    only: Annotated[str | None, typer.Option("--prompt-version", help="Check this one alone.")] = None,
    as_json: Json = False,
) -> None:
    """Check every invariant of the tables; reads alone, and needs of the settings only tables.root. Exit 1: one is broken."""
    section = load_tables(conf, set_ or [])

    from lakelabel.answers import Answer, summary
    from lakelabel.session import reading
    from lakelabel.tables import Tables
    from lakelabel.verify import verify as ask

    answers: list[Answer] = []
    with reading() as spark:
        for answer in ask(spark, Tables(section.root), only):
            if not as_json:
                version = answer.prompt_version
                heading = (
                    "" if answers and answers[-1].prompt_version == version else f"prompt_version {escaped(version)}\n"
                )
                print(f"{heading}{answer}", flush=True)
            answers.append(answer)
    counts = summary(answers)
    total = f"{counts['holds']} hold, {counts['broken']} broken, {counts['not_checkable']} not checkable"
    total = total if answers else "the tables have no prompt_version: nothing was checked"
    print(json.dumps(counts) if as_json else total, flush=True)
    if counts["broken"]:
        raise typer.Exit(1)
