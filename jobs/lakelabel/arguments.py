"""Arguments that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Conf = Annotated[Path, typer.Option("--conf", help="Settings file (YAML).")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Override one setting: key=value. May be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, the last line of stdout.")]
