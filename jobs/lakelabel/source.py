"""The source: a Delta table at one pinned version, and the documents in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelabel.errors import SettingsError
from lakelabel.sections import Source as SourceSettings
from lakelabel.tables import Tables, current_version, first_line, sql_name
from lakelabel.template import Column, compile_template, quote_identifier
from lakelabel_udfs.schema import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINGERPRINT = (
    "CAST(shiftright(doc_hash, 56) AS INT)",
    "sum(CAST(xxhash64(doc_id, content_hash) AS DECIMAL(38, 0)))",
)
"""A scope's fingerprint in SQL: the 1/256 of the range of doc_hash to group by, and the sum of hashes of such a group."""

# A JVM regular expression is far slower than a length, so it is asked only where there is more than ASCII.
_CJK = "[\\\\p{IsHan}\\\\p{IsHiragana}\\\\p{IsKatakana}\\\\p{IsHangul}]"
_TOKENS = (
    "CAST(ceil(CASE WHEN octet_length(text) = length(text) THEN length(text) / 4.0"
    f" ELSE regexp_count(text, '{_CJK}') * 1.2"
    # Letters of two bytes (Cyrillic, Greek, Arabic, accents) make about a token in two and a half characters.
    f" + (length(text) - regexp_count(text, '{_CJK}')) / 2.5 END) AS BIGINT)"
)


@dataclass(frozen=True)
class Source:
    """A source table bound to one version of one table id; ``name`` is its SQL name, ``table`` its name for people."""

    table: str
    name: str
    table_id: str
    version: int


def open_source(spark: SparkSession, settings: SourceSettings, tables: Tables) -> Source:
    """Pin the source and check all that the settings say of it. Raises SettingsError; reads metadata alone."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkException

    name = sql_name(settings.table)
    own = SettingsError(
        "source.table", settings.table, "it is one of lakelabel's own tables; name the documents' table"
    )
    if name in {tables.name(table) for table in TABLES}:
        raise own
    try:
        current = current_version(spark, name)
    except AnalysisException as error:
        if (error.getCondition() or "").startswith("DELTA_") and _is_there(spark, name):
            raise SettingsError("source.table", settings.table, "it is no Delta table; convert it to Delta") from None
        raise SettingsError("source.table", settings.table, "there is no such Delta table; name one that is") from None
    except (PySparkException, Py4JJavaError) as error:
        remedy = f"it cannot be looked at ({first_line(error)}); name a Delta table that this session can read"
        raise SettingsError("source.table", settings.table, remedy) from None
    except ValueError as error:
        raise SettingsError(
            "source.table", settings.table, f"it is no Delta table ({error}); convert it to Delta"
        ) from None
    if current.is_ours:
        raise own
    version = current.version if settings.version == "latest" else int(settings.version)
    # Two drivers in two folders must not take two tables for one, so a path is kept as a whole one.
    source = Source(name.removeprefix("delta.").replace("`", ""), name, current.table_id, version)
    _check_version(spark, source, settings, current.version)
    _check_expressions(spark, source, settings)
    return source


def documents(
    spark: SparkSession, source: Source, settings: SourceSettings, limit: int | None, only: DataFrame | None = None
) -> DataFrame:
    """The documents in scope, one row a doc_id, with the rule that decides a document without a model; with ``only``
    (doc_hash, doc_id) no others than these.

    Columns: doc_id, doc_hash, content_hash (of a duplicate_doc_id: of its texts), text, failure_code, failure_message.
    """
    from pyspark.sql import functions as F

    id_sql, id_ok_sql = _id_sql(settings.id)
    template = compile_template(settings.text)
    rows = (
        _scope(spark, source, settings)
        .selectExpr(
            f"{id_sql} AS given_id",
            f"{id_ok_sql} AS has_id",
            f"{template.text_sql()} AS text",
            f"{template.blank_sql()} AS blank",
        )
        .selectExpr("*", "sha2(text, 256) AS content_hash")
        # A row without an id gets a key made from its content, so that it stands in quarantine like any other.
        .selectExpr(
            "CASE WHEN has_id THEN given_id ELSE concat('no doc_id, content ', content_hash) END AS doc_id", "*"
        )
        .selectExpr("xxhash64(doc_id) AS doc_hash", "*")
    )
    if only is not None:
        rows = rows.join(only, ["doc_hash", "doc_id"], "left_semi")
    found = rows.groupBy("doc_hash", "doc_id").agg(
        F.expr("min(content_hash) AS low_hash"),
        F.expr("max(content_hash) AS high_hash"),
        F.expr("first(text) AS text"),
        F.expr("bool_and(blank) AS blank"),
        F.expr("bool_and(has_id) AS has_id"),
    )
    several = "low_hash <> high_hash"
    decided = found.selectExpr(
        "doc_id",
        "doc_hash",
        f"CASE WHEN {several} THEN sha2(concat(low_hash, high_hash), 256) ELSE low_hash END AS content_hash",
        "text",
        "CASE WHEN NOT has_id THEN 'missing_doc_id'"
        f" WHEN {several} THEN 'duplicate_doc_id' WHEN blank THEN 'empty' END AS failure_code",
        "CASE WHEN NOT has_id THEN 'the id is null or no valid UTF-8; the key was made from the content'"
        f" WHEN {several} THEN 'several rows have this id and different texts; none was guessed'"
        " WHEN blank THEN 'the text has nothing to read' END AS failure_message",
    )
    return decided if limit is None else lowest(decided, limit)


def token_estimate() -> str:
    """An SQL expression: the tokens of ``text``, estimated by script."""
    return _TOKENS


def _scope(spark: SparkSession, source: Source, settings: SourceSettings) -> DataFrame:
    rows = spark.sql(f"SELECT * FROM {source.name} VERSION AS OF {source.version}")
    return rows if settings.where is None else rows.where(settings.where)


def _id_sql(columns: tuple[str, ...]) -> tuple[str, str]:
    """The id as a string, and whether it is one: of several columns a JSON array, since joined by a sign two could meet."""
    casts = [f"CAST({quote_identifier(column)} AS STRING)" for column in columns]
    is_there = " AND ".join(f"({cast} IS NOT NULL AND is_valid_utf8({cast}))" for cast in casts)
    if len(casts) == 1:
        return casts[0], is_there
    return f"to_json(array({', '.join(casts)}))", is_there


def lowest(documents: DataFrame, limit: int) -> DataFrame:
    """The documents of the lowest doc_hash, at most ``limit``; the key of the last one is found first, so that no text goes through a sort."""
    from pyspark.sql.functions import col, lit

    keys = documents.select("doc_hash", "doc_id").orderBy("doc_hash", "doc_id")
    last = keys.offset(limit - 1).limit(1).collect()
    if not last:
        return documents
    doc_hash, doc_id = last[0]["doc_hash"], last[0]["doc_id"]
    at_last = (col("doc_hash") == lit(doc_hash)) & (col("doc_id") <= lit(doc_id))
    return documents.where((col("doc_hash") < lit(doc_hash)) | at_last)


def _is_there(spark: SparkSession, name: str) -> bool:
    """Whether something that is no Delta table stands at the name: a table of another format, or a folder with files."""
    from py4j.protocol import Py4JError

    if name.startswith("delta."):
        try:
            jvm = spark._jvm
            assert jvm is not None
            path = jvm.org.apache.hadoop.fs.Path(name[len("delta.`") : -1].replace("``", "`"))
            hadoop = spark._jsc.hadoopConfiguration()
            return bool(path.getFileSystem(hadoop).exists(path))
        except Py4JError:
            return False
    return spark.catalog.tableExists(name)


def _check_version(spark: SparkSession, source: Source, settings: SourceSettings, newest: int) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        rows = spark.sql(f"SELECT * FROM {source.name} VERSION AS OF {source.version}")
        # One row is read, since the files of a version may be gone while its log is still there.
        rows.selectExpr(f"{quote_identifier(rows.columns[0])} IS NULL").limit(1).collect()
    except (PySparkException, Py4JJavaError):
        remedy = f"that version cannot be read (the newest is {newest}); give one that is still there, or latest"
        raise SettingsError("source.version", settings.version, remedy) from None


def _check_expressions(spark: SparkSession, source: Source, settings: SourceSettings) -> None:
    from pyspark.errors import AnalysisException, ParseException

    rows = spark.sql(f"SELECT * FROM {source.name} VERSION AS OF {source.version}")
    there = ", ".join(rows.columns)
    for column in settings.id:
        if column.lower() not in {name.lower() for name in rows.columns}:
            raise SettingsError("source.id", column, f"{source.table} has no such column; it has {there}")
    template = compile_template(settings.text)
    for part in template.parts:
        if isinstance(part, Column) and part.path[0].lower() not in {name.lower() for name in rows.columns}:
            raise SettingsError(
                "source.text", settings.text, f"{source.table} has no column {part.name}; it has {there}"
            )
    try:
        rows.selectExpr(template.text_sql(), *_id_sql(settings.id))
    except AnalysisException as error:
        raise SettingsError("source.text", settings.text, f"Spark refuses it: {_reason(error)}; mend it") from None
    if settings.where is not None:
        try:
            rows.where(settings.where)
        except (AnalysisException, ParseException) as error:
            remedy = f"Spark refuses it: {_reason(error)}; give a condition over {there}"
            raise SettingsError("source.where", settings.where, remedy) from None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split("SQLSTATE")[0].split())[:200].rstrip(" .")
