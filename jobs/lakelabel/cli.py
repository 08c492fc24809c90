"""The command line. Progress goes to stderr, the report to stdout; exit codes: 0 done, 1 failed and can be resumed,
2 settings or arguments are wrong and nothing was touched, 3 stopped on purpose."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from lakelabel import __version__, audit
from lakelabel.arguments import Conf, Json, Set
from lakelabel.errors import Interrupted, LakelabelError, RunFailed, SettingsError
from lakelabel.settings import check_model, load
from lakelabel.task import load_task, prompt_version
from lakelabel_udfs.outcome import PASSING_FAILURES, FailureCode

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Label the rows of a Delta table."
)
app.add_typer(audit.app, name="audit")

Limit = Annotated[int | None, typer.Option("--limit", help="Only the N documents of the lowest doc_hash.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Plan, print what would be done, write nothing.")]
ModelChange = Annotated[
    bool, typer.Option("--allow-model-change", help="Let another model write under this prompt_version.")
]
SourceChange = Annotated[
    bool, typer.Option("--allow-source-change", help="Let another source table write under this prompt_version.")
]

_CODES = (
    f"Failure codes with commas between; without it those that may pass by themselves: {', '.join(PASSING_FAILURES)}."
)


@app.callback()
def _root() -> None:
    """Label the rows of a Delta table with a language model; never pay twice."""


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


@app.command()
def classify(
    conf: Conf,
    set_: Set = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    allow_model_change: ModelChange = False,
    allow_source_change: SourceChange = False,
    as_json: Json = False,
) -> None:
    """Label every document that has no label yet; start again to resume."""
    _work(conf, set_ or [], (limit, allow_model_change, allow_source_change), as_json, dry_run=dry_run)


@app.command()
def plan(
    conf: Conf,
    set_: Set = None,
    limit: Limit = None,
    allow_model_change: ModelChange = False,
    allow_source_change: SourceChange = False,
    as_json: Json = False,
) -> None:
    """The first half of classify alone, for a cheaper cluster; classify with the same settings goes on from it."""
    _work(conf, set_ or [], (limit, allow_model_change, allow_source_change), as_json, plan_only=True)


@app.command()
def retry(
    conf: Conf,
    set_: Set = None,
    code: Annotated[str | None, typer.Option("--code", help=_CODES)] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the N of the lowest doc_hash.")] = None,
    dry_run: DryRun = False,
    allow_model_change: ModelChange = False,
    allow_source_change: SourceChange = False,
    as_json: Json = False,
) -> None:
    """Try quarantined documents once more, by the text that they have now."""
    options = (limit, allow_model_change, allow_source_change)
    _work(conf, set_ or [], options, as_json, dry_run=dry_run, codes=_asked(code))


def _asked(code: str | None) -> tuple[str, ...]:
    """The failure codes of a retry, sorted, so that their order makes no other run."""
    if code is None:
        return tuple(sorted(PASSING_FAILURES))
    known = get_args(FailureCode)
    asked = sorted({name.strip() for name in code.split(",")})
    for name in asked:
        if name not in known:
            raise SettingsError("--code", name, f"give one or several of {', '.join(known)}, with commas between")
    return tuple(asked)


@app.command()
def status(
    conf: Conf,
    set_: Set = None,
    all_: Annotated[bool, typer.Option("--all", help="Every prompt_version of the tables; no task is read.")] = False,
    as_json: Json = False,
) -> None:
    """How far the runs are and who works on them; reads alone, also while another process runs or after it died."""
    settings = load(conf, set_ or [])
    asked = None if all_ else prompt_version(load_task(settings.task), settings.source.text, settings.quality.overflow)

    from lakelabel.session import reading
    from lakelabel.status import prompt_versions
    from lakelabel.status import status as ask
    from lakelabel.tables import Tables

    tables = Tables(settings.tables.root)
    with reading() as spark:
        tables.check_there(spark)
        versions = prompt_versions(spark, tables) if asked is None else [asked]
        found = [ask(spark, tables, version, settings.queue.lease_seconds) for version in versions]
    if as_json:
        print(json.dumps({"prompt_versions": [one.as_dict() for one in found]}), flush=True)
    else:
        print("\n".join(map(str, found)) or "the tables have no run", flush=True)


def _work(
    conf: Path,
    overrides: Sequence[str],
    options: tuple[int | None, bool, bool],
    as_json: bool,
    dry_run: bool = False,
    plan_only: bool = False,
    codes: tuple[str, ...] = (),
) -> None:
    settings = load(conf, overrides)
    task = load_task(settings.task)
    check_model(settings)

    # Spark is imported and started only once the settings and the task are known to be good.
    from lakelabel.failures import spark_errors
    from lakelabel.interrupt import Interrupt
    from lakelabel.job import Options, open_job
    from lakelabel.planning import preview
    from lakelabel.progress import Terminal
    from lakelabel.run import classify as run
    from lakelabel.session import open_session

    interrupt = Interrupt()
    try:
        with Terminal() as terminal, spark_errors("the run"):
            spark = open_session()
            interrupt.install()
            job = open_job(spark, settings, task, Options(*options, codes))
            if dry_run:
                result: dict[str, Any] = dataclasses.asdict(preview(spark, job))
            else:
                result = run(spark, job, terminal, plan_only, interrupt).as_dict()
    except KeyboardInterrupt:
        raise Interrupted from None
    except RunFailed as error:
        # A plan that was cancelled by a signal fails in Spark's words.
        if interrupt.asked and not isinstance(error, Interrupted):
            raise Interrupted from None
        raise
    print(json.dumps(result) if as_json else _readable(result), flush=True)


def _readable(result: dict[str, Any], indent: str = "") -> str:
    lines = []
    for key, value in result.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:", _readable(value, indent + "  ")] if value else []
        else:
            lines.append(f"{indent}{key}: {value}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry of the console script and of the launchers; ends the process with the exit code."""
    try:
        app(args=None if arguments is None else list(arguments))
    except LakelabelError as error:
        lines = str(error).splitlines() if isinstance(error, SettingsError) else [str(error)]
        print("\n".join(f"error: {line}" for line in lines), file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
