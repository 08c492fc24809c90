"""The SQL of templates, run by Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelabel.template import compile_template, literal, quote_identifier

HOSTILE = [
    "",
    "plain",
    "it's",
    "\\",
    "\\n is no newline, \\u0041 no A, \\' no quote",
    "'; DROP TABLE x; --",
    '"double"',
    "line\nbreak\r\n\ttab",
    "NUL\0inside",
    "`backquote`",
    "${env:HOME} ${spark.app.name} $1 {0}",
    "/* comment */ -- comment",
    "Grüße, 漢字, עברית, 👩‍👩‍👧, \ufeff, \u2028, \ufffd",
    "%_%",
    "a" * 70_000,
]


def test_a_hostile_literal_comes_through_spark_unchanged(spark: SparkSession) -> None:
    """Quotes, backslashes, NUL, comments and variables stay what they are, whichever way Spark reads escapes."""
    query = "SELECT " + ", ".join(f"{literal(text)} AS c{i}" for i, text in enumerate(HOSTILE))
    for escaped in ("false", "true"):
        spark.conf.set("spark.sql.parser.escapedStringLiterals", escaped)
        try:
            assert list(spark.sql(query).first() or ()) == HOSTILE
        finally:
            spark.conf.unset("spark.sql.parser.escapedStringLiterals")


def test_a_literal_is_a_constant_of_type_string(spark: SparkSession) -> None:
    """The cast is folded away when the query is planned, so a literal can prune partitions."""
    frame = spark.range(1).filter(F.expr(f"CAST(id AS STRING) = {literal(chr(39))}"))
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    assert "cast(0x" not in plan.lower() and "X'" not in plan
    assert spark.sql(f"SELECT {literal(chr(39))} AS c").dtypes == [("c", "string")]


def test_a_template_renders_columns_of_any_type(spark: SparkSession) -> None:
    """Nulls become nothing, numbers and struct fields their text, and odd names are only names."""
    frame = spark.sql(
        "SELECT 'T' AS title, CAST(NULL AS STRING) AS body, 7 AS n, named_struct('a', 'x') AS s, 'odd' AS `a ``.b ${x}`"
    )
    template = compile_template("It's {{ title }}\\n{{ body }}|{{ n }}|{{ s.a }}|{{ `a ``.b ${x}` }}")
    assert frame.selectExpr(f"{template.text_sql()} AS t").first()["t"] == "It's T\\n|7|x|odd"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("X'FF41'", "\ufffdA"),
        ("CAST(X'FF41' AS STRING)", "\ufffdA"),
        ("CAST(X'C3' AS STRING)", "\ufffd"),
        ("X'6F6B'", "ok"),
        ("CAST(NULL AS BINARY)", ""),
    ],
)
def test_bytes_that_are_no_utf8_are_made_valid(spark: SparkSession, value: str, text: str) -> None:
    """One bad byte would fail a whole Arrow batch; it becomes U+FFFD, also where two halves would meet."""
    template = compile_template("<{{ v }}>{{ w }}")
    frame = spark.sql(f"SELECT {value} AS v, CAST(X'A9' AS STRING) AS w")
    row = frame.selectExpr(f"{template.text_sql()} AS t", f"is_valid_utf8({template.text_sql()}) AS valid").first()
    assert (row["t"], row["valid"]) == (f"<{text}>\ufffd", True)


def test_halves_of_a_character_in_two_columns_do_not_join(spark: SparkSession) -> None:
    """Each value is made valid by itself: C3 ending one column and A9 beginning the next are two bad bytes, no é."""
    frame = spark.sql("SELECT CAST(X'C3' AS STRING) AS v, CAST(X'A9' AS STRING) AS w")
    sql = compile_template("{{ v }}{{ w }}").text_sql()
    assert frame.selectExpr(f"{sql} AS t").first()["t"] == "\ufffd\ufffd"


BLANK = [
    "",
    " ",
    "\t\r\n\v\f",
    "\0\x01\x7f\x85",
    "\u00a0\u2003\u3000\u2028\u2029",
    "\u200b\u200d\ufeff\u2060\u00ad",
    "\u3164\u2800",
]
INKED = ["a", " . ", "\n0", "\ufffd", "漢", "👩", "\U0001fae8", "\ue000", "\u0301", "\0x", "\u200bא\u200f", "𝒳"]


def test_blank_means_that_no_column_leaves_a_mark(spark: SparkSession) -> None:
    """Every kind of whitespace, controls and zero-width characters are blank, null is; any sign at all is not."""
    rows: list[tuple[int, Any, Any]] = [(0, None, None), (1, None, "x"), (2, "x", " ")]
    rows += [(10 + i, text, None) for i, text in enumerate(BLANK)]
    rows += [(100 + i, "\u2003", text) for i, text in enumerate(INKED)]
    frame = spark.createDataFrame(rows, "i INT, a STRING, b STRING")
    sql = compile_template("Title: {{ a }}\n{{ b }}").blank_sql()
    found = {row["i"]: row["blank"] for row in frame.selectExpr("i", f"{sql} AS blank").collect()}
    assert found == {i: i == 0 or 10 <= i < 100 for i, _, _ in rows}


def test_text_of_another_collation_is_text_like_any_other(spark: SparkSession) -> None:
    """Columns of two collations can stand in one template, and the text keeps its case."""
    frame = spark.sql("SELECT 'Ab' COLLATE UTF8_LCASE AS a, 'Cd' COLLATE UNICODE AS b")
    template = compile_template("{{ a }} {{ b }}")
    row = frame.selectExpr(f"{template.text_sql()} AS t", f"{template.blank_sql()} AS blank").first()
    assert (row["t"], row["blank"]) == ("Ab Cd", False)


def test_a_quoted_identifier_names_any_column(spark: SparkSession) -> None:
    """A name of backquotes, dots and quotes selects the column of that name."""
    name = "a`b.c 'd' \\ \" ; --"
    frame = spark.range(1).withColumnRenamed("id", name)
    assert frame.selectExpr(f"{quote_identifier(name)} + 1 AS x").first()["x"] == 1
