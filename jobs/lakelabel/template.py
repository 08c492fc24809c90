"""The text template: jinja-like `{{ column }}` over the columns of the source, compiled to Spark SQL expressions.

Also the two functions through which every name and every text enters SQL: `quote_identifier` and `literal`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakelabel.errors import SettingsError

_PLAIN_NAME = r"[^\W\d]\w*"
_NAME = rf"(?:{_PLAIN_NAME}|`(?:[^`]|``)+`)"
_OPENING = re.compile(r"\{\{|\}\}|\{%|\{#")
_BRACES = re.compile(rf"\{{\{{\s*(?:(?P<path>{_NAME}(?:\.{_NAME})*)|'(?P<text>[^']*)'|\"(?P<quoted>[^\"]*)\")\s*\}}\}}")

_INK = r"[^\p{Z}\p{Cc}\p{Cf}\x{115F}\x{1160}\x{2800}\x{3164}\x{FFA0}]"
"""A Java regular expression for one character that leaves a mark or could: none of the separators (which hold every
Unicode space), controls (NUL, tab, newline), formats (zero-width ones, marks of direction), blank fillers of Hangul and
the blank Braille pattern. Unassigned characters count as ink: a JVM knows fewer emoji than the world."""

_SAFE_LITERAL = re.compile(r"[A-Za-z0-9 _.,:;/-]*", re.ASCII)


def quote_identifier(name: str) -> str:
    """Return `name` as one backquoted Spark SQL identifier, whatever it contains."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a Spark SQL expression of type STRING, folded to a constant, whose value is exactly `text`.

    Text that could mean something to the parser is written as the bytes of its UTF-8: a quoted literal reads
    backslashes in two ways (`spark.sql.parser.escapedStringLiterals`), and `${name}` is substituted even between quotes.
    A cast from binary takes the bytes as they are; `decode` would ask for a charset and is another function on each
    Spark version. Raises UnicodeEncodeError on a lone surrogate.
    """
    if _SAFE_LITERAL.fullmatch(text):
        return f"'{text}'"
    return f"CAST(X'{text.encode('utf-8').hex().upper()}' AS STRING)"


@dataclass(frozen=True)
class Column:
    """A column of the source, or a field of a struct in one: the names from the outside in."""

    path: tuple[str, ...]

    @property
    def name(self) -> str:
        """The dotted name as a template spells it; parts that are no plain names stand in backquotes."""
        return ".".join(p if re.fullmatch(_PLAIN_NAME, p) else quote_identifier(p) for p in self.path)

    @property
    def sql(self) -> str:
        """A reference to the column."""
        return ".".join(quote_identifier(part) for part in self.path)

    @property
    def text_sql(self) -> str:
        """A non-null, valid UTF-8 string: null is empty, and a cast from binary may give any bytes."""
        return f"make_valid_utf8(coalesce(CAST({self.sql} AS STRING), ''))"


@dataclass(frozen=True)
class Template:
    """A compiled template: literal text and columns in turn, at least one column, no two texts side by side."""

    parts: tuple[str | Column, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, each once, in the order in which they first stand."""
        return tuple(dict.fromkeys(column.name for column in self._columns()))

    def text_sql(self) -> str:
        """Return the expression of the rendered text: STRING, never null, valid UTF-8 (needs Spark 4.0)."""
        pieces = [literal(part) if isinstance(part, str) else part.text_sql for part in self.parts]
        return pieces[0] if len(pieces) == 1 else f"concat({', '.join(pieces)})"

    def blank_sql(self) -> str:
        """Return a BOOLEAN expression, never null: true where no column holds a character that leaves a mark.

        The template's own text does not count: `Title: {{ title }}` over an empty title is blank.
        """
        ink = literal(_INK)
        return "NOT (" + " OR ".join(f"{sql} RLIKE {ink}" for sql in self._texts()) + ")"

    def _columns(self) -> tuple[Column, ...]:
        return tuple(part for part in self.parts if isinstance(part, Column))

    def _texts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column.text_sql for column in self._columns()))


def compile_template(template: str) -> Template:
    """Return `template` compiled; SettingsError about `source.text` where it is not one.

    `{{ column }}` and `{{ struct.field }}` stand for values; a name that is no plain word is put into backquotes, as in
    SQL; `{{ '}}' }}` stands for the quoted text itself. Everything else is literal, newlines included. There are no
    expressions, filters, statements or comments: those belong into a view.
    """
    parts: list[str | Column] = []
    at = 0
    while opening := _OPENING.search(template, at):
        found = _BRACES.match(template, opening.start())
        if found is None:
            raise SettingsError("source.text", template, _remedy(template, opening))
        _add(parts, template[at : opening.start()])
        if found["path"] is not None:
            parts.append(Column(tuple(_unquoted(name) for name in re.findall(_NAME, found["path"]))))
        else:
            _add(parts, found["text"] if found["text"] is not None else found["quoted"])
        at = found.end()
    _add(parts, template[at:])
    if not any(isinstance(part, Column) for part in parts):
        raise SettingsError("source.text", template, "name at least one column, as {{ column }}")
    return Template(tuple(parts))


def _add(parts: list[str | Column], text: str) -> None:
    """Append literal text, joined to a text before it: one template has one compiled form, however it is spelt."""
    if parts and isinstance(parts[-1], str):
        parts[-1] += text
    elif text:
        parts.append(text)


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _remedy(template: str, opening: re.Match[str]) -> str:
    sign, place = opening.group(), f"at character {opening.start() + 1}"
    if sign == "}}":
        return f"}}}} {place} closes nothing; write {{{{ '}}}}' }}}} for the braces themselves"
    if sign != "{{":
        return f"take out {sign} {place}: a template has no statements or comments; put such things into a view"
    closing = template.find("}}", opening.end())
    if closing < 0 or "{{" in template[opening.end() : closing]:
        return f"close the {{{{ {place} with }}}}"
    inside = template[opening.end() : closing].strip()
    if not inside:
        return f"name a column between {{{{ and }}}} {place}"
    return (
        f"{{{{ {inside} }}}} {place} is no column name: only names stand there, put expressions and filters into a view"
    )
