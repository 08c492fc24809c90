"""Ask one of the questions in sql/ of the demo's tables.

`.venv/bin/python demo/ask.py sql/document_history.sql asked_doc_id=d0404`, with the other arguments as SQL variables.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from lakelabel.errors import LakelabelError
from lakelabel.session import open_session
from lakelabel.settings import load
from lakelabel.template import literal, quote_identifier
from lakelabel_udfs.schema import TABLES

CONF = Path("conf/local.yml")


def main() -> int:
    """Print the rows that the SQL file named first gives."""
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        print("usage: .venv/bin/python demo/ask.py sql/FILE.sql [variable=value …]", file=sys.stderr)
        return 2
    try:
        given = variables(sys.argv[2:])
        names = locations(CONF)
    except (LakelabelError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with open_session() as spark:
        # A name for each folder, in this session's catalog alone: time travel and table_changes want more than a view.
        for name, location in names.items():
            if Path(location).is_dir():
                spark.catalog.createTable(name, path=location, source="delta")
        # Not `:name` parameters: with Delta 4.4.0 on Spark 4.2.0 every one of them counts as unbound.
        for name, value in given.items():
            spark.sql(f"DECLARE OR REPLACE VARIABLE {quote_identifier(name)} STRING DEFAULT {literal(value)}")
        spark.sql(Path(sys.argv[1]).read_text(encoding="utf-8")).show(100, truncate=60)
    return 0


def locations(conf: Path) -> dict[str, str]:
    """Return the names that the questions use, and the absolute folders that they stand for. Raises SettingsError."""
    settings = load(conf)
    folder = Path(settings.tables.root).absolute()
    tables = {table.name: str(folder / table.name) for table in TABLES}
    return {"documents": str(Path(settings.source.table).absolute()), **tables}


def variables(arguments: list[str]) -> dict[str, str]:
    """Return `name=value` arguments as a mapping. Raises ValueError, naming the argument, for anything else."""
    given = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not re.fullmatch("[a-z_]+", name):
            raise ValueError(f"{argument} is no variable; write name=value, as in asked_doc_id=d0404")
        given[name] = value
    return given


if __name__ == "__main__":
    sys.exit(main())
