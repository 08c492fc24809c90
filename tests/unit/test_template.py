from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelabel.errors import SettingsError
from lakelabel.template import Column, Template, compile_template, literal, quote_identifier

texts = st.text(st.characters(exclude_categories=["Cs"]))


def value_of(sql: str) -> str:
    """The text that a literal stands for, read as Spark reads it: a plain quoted word, or bytes in hexadecimal."""
    if plain := re.fullmatch(r"'([^'\\$]*)'", sql):
        return plain[1]
    found = re.fullmatch(r"CAST\(X'([0-9A-F]*)' AS STRING\)", sql)
    assert found, sql
    return bytes.fromhex(found[1]).decode("utf-8")


def test_a_template_is_text_and_columns_in_turn() -> None:
    """Braces hold a column or a struct's field, with or without spaces; everything else is kept as it is."""
    template = compile_template("Title: {{ title }}\n\n{{body}}{{\n meta.author.name }} { } %}\n")
    assert template.parts == (
        "Title: ",
        Column(("title",)),
        "\n\n",
        Column(("body",)),
        Column(("meta", "author", "name")),
        " { } %}\n",
    )
    assert template.columns == ("title", "body", "meta.author.name")


def test_columns_are_named_once_in_the_order_of_their_first_use() -> None:
    """A column used twice is one column."""
    assert compile_template("{{ b }}{{ a }}{{ b }}").columns == ("b", "a")


def test_backquotes_hold_names_that_are_no_plain_words() -> None:
    """As in SQL, a backquoted name may hold spaces, dots, braces and, doubled, backquotes."""
    template = compile_template("{{ `a b`.`c.``d` }}{{ `}}` }}{{ größe }}")
    assert template.parts == (Column(("a b", "c.`d")), Column(("}}",)), Column(("größe",)))
    assert template.columns == ("`a b`.`c.``d`", "`}}`", "größe")
    assert compile_template("{{ " + template.columns[0] + " }}").parts == template.parts[:1]


def test_quoted_braces_are_literal() -> None:
    """`{{ '}}' }}` is how a template says two braces, and joins the text around it."""
    assert compile_template("a{{ '{{' }}b{{ c }}{{ \"}}\" }}").parts == ("a{{b", Column(("c",)), "}}")


@pytest.mark.parametrize(
    ("template", "remedy"),
    [
        ("", "name at least one column"),
        ("only text", "name at least one column"),
        ("{{ 'text' }}", "name at least one column"),
        ("a {{ b", "close the {{ at character 3 with }}"),
        ("{{ a {{ b }}", "close the {{ at character 1 with }}"),
        ("{{ a }} }}", "}} at character 9 closes nothing"),
        ("{{ }}", "name a column between {{ and }} at character 1"),
        ("{{ a | upper }}", "{{ a | upper }} at character 1 is no column name"),
        ("{{ a + b }}", "is no column name"),
        ("{{ f(a) }}", "is no column name"),
        ("{{ a. }}", "is no column name"),
        ("{{ a b }}", "is no column name"),
        ("{{ 2nd }}", "is no column name"),
        ("{{ a[0] }}", "is no column name"),
        ("{{{ a }}", "is no column name"),
        ("{{- a -}}", "is no column name"),
        ("{{ `` }}", "is no column name"),
        ("{% if a %}{{ a }}{% endif %}", "take out {% at character 1"),
        ("{{ a }}{# note #}", "take out {# at character 8"),
    ],
)
def test_what_is_no_template_is_refused(template: str, remedy: str) -> None:
    """Open braces, expressions, filters, statements and comments end in a settings error that says where and what."""
    with pytest.raises(SettingsError) as caught:
        compile_template(template)
    (problem,) = caught.value.problems
    assert (problem.key, problem.value) == ("source.text", template)
    assert remedy in problem.remedy


def test_the_text_is_concatenated_from_valid_strings() -> None:
    """Nulls become empty, every value is made valid UTF-8, and no name or text of the user's stands unquoted."""
    assert compile_template("Title: {{ a`.sql }}".replace("`", "")).text_sql() == (
        "concat('Title: ', make_valid_utf8(coalesce(CAST(`a`.`sql` AS STRING), '')))"
    )
    assert compile_template("{{ `x``); DROP` }}").text_sql() == (
        "make_valid_utf8(coalesce(CAST(`x``); DROP` AS STRING), ''))"
    )


def test_blank_looks_at_columns_alone() -> None:
    """The template's own text is not asked whether it is blank, and a column used twice is asked once."""
    sql = compile_template("Title: {{ a }}{{ b }}{{ a }}").blank_sql()
    assert sql.count(" RLIKE ") == 2 and "Title" not in sql and sql.startswith("NOT (")


@pytest.mark.parametrize("text", ["", "a b", "x-1", "a/b.c:d"])
def test_plain_words_stay_readable(text: str) -> None:
    """A literal of letters, digits and harmless signs is an ordinary quoted one."""
    assert literal(text) == f"'{text}'"


@given(texts)
def test_a_literal_stands_for_exactly_its_text(text: str) -> None:
    """Any text comes back from its literal, which holds no quote, backslash or dollar that SQL could read otherwise."""
    sql = literal(text)
    assert value_of(sql) == text
    assert sql.isascii() and not re.search(r"[\\$\n]", sql)


def test_a_lone_surrogate_is_no_text() -> None:
    """Half a surrogate pair has no UTF-8 and raises, where a replacement would be another text."""
    with pytest.raises(UnicodeEncodeError):
        literal("\ud800")


@given(st.text(min_size=1))
def test_a_quoted_identifier_ends_where_it_should(name: str) -> None:
    """Between the outer backquotes every backquote is doubled, so the name cannot end early."""
    quoted = quote_identifier(name)
    assert quoted[0] == quoted[-1] == "`"
    assert re.fullmatch(r"(?:[^`]|``)*", quoted[1:-1], re.DOTALL)
    assert quoted[1:-1].replace("``", "`") == name


@given(st.lists(st.one_of(texts.filter(bool), st.lists(texts.filter(bool), min_size=1, max_size=3).map(tuple))))
def test_any_text_and_any_names_can_be_said(pieces: list[str | tuple[str, ...]]) -> None:
    """Whatever the literals and names, a template can be written that compiles to exactly these."""
    columns = [piece for piece in pieces if isinstance(piece, tuple)]
    spelt = "".join(
        re.sub(r"\{\{|\}\}|\{%|\{#|\{$|^[}%#{]|[{}]", lambda brace: "{{ '" + brace[0] + "' }}", piece)
        if isinstance(piece, str)
        else "{{" + ".".join(quote_identifier(name) for name in piece) + "}}"
        for piece in pieces
    )
    if not columns:
        with pytest.raises(SettingsError):
            compile_template(spelt)
        return
    template = compile_template(spelt)
    assert [part.path for part in template.parts if isinstance(part, Column)] == columns
    joined = "\0".join(piece if isinstance(piece, str) else "\0column\0" for piece in pieces)
    told = "\0".join(part if isinstance(part, str) else "\0column\0" for part in template.parts)
    assert told.replace("\0", "") == joined.replace("\0", "")


@given(texts)
def test_any_string_compiles_or_is_refused(text: str) -> None:
    """No string makes the compiler fail otherwise than by a settings error about source.text."""
    told: Template | SettingsError
    try:
        told = compile_template(text)
    except SettingsError as error:
        told = error
    if isinstance(told, SettingsError):
        assert told.problems[0].key == "source.text"
    else:
        assert told.columns
