"""Where the tables are, how they come to be, and which version of a Delta table is which."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakelabel.delta import retried
from lakelabel.errors import SettingsError
from lakelabel.points import around
from lakelabel.sections import is_path
from lakelabel.template import literal, quote_identifier
from lakelabel_udfs.schema import FORMAT, TABLES, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

FORMAT_PROPERTY = "lakelabel.format"
LOWEST, HIGHEST = -(2**63), 2**63 - 1
"""Ends of the range of doc_hash."""

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:/")


def sql_name(reference: str) -> str:
    """The SQL name of a Delta table: ``delta.`path``` for a path, quoted parts for ``[catalog.][schema.]table``.

    Local paths are made absolute, since executors and later sessions may have another working directory.
    """
    if is_path(reference):
        return f"delta.{quote_identifier(_whole(reference))}"
    return ".".join(quote_identifier(part) for part in reference.split("."))


def _whole(path: str) -> str:
    # Not resolve(): a link that is moved to another disk leads to the same table.
    return path if _SCHEME.match(path) else os.path.normpath(Path(path).absolute())


@dataclass(frozen=True)
class DeltaVersion:
    """One version of one table; a table that was dropped and made again has another id."""

    table_id: str
    version: int
    is_ours: bool


def current_version(spark: SparkSession, name: str) -> DeltaVersion:
    """Id and newest version of the Delta table with this SQL name. Raises AnalysisException where it is none."""
    detail = spark.sql(f"DESCRIBE DETAIL {name}").select("format", "id", "properties").collect()[0]
    if detail["format"] != "delta" or detail["id"] is None:
        raise ValueError(f"format {detail['format']}")
    return DeltaVersion(detail["id"], newest_version(spark, name), FORMAT_PROPERTY in detail["properties"])


def newest_version(spark: SparkSession, name: str) -> int:
    """The newest version of the Delta table with this SQL name."""
    return int(spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").select("version").collect()[0]["version"])


@dataclass(frozen=True)
class Tables:
    """The eight tables below one root: a folder, or ``catalog.schema``."""

    root: str
    deletion_vectors: bool = False
    history_days: int = 30

    def name(self, table: Table) -> str:
        """SQL name of one of our tables."""
        return (
            f"delta.{quote_identifier(self._path(table))}"
            if is_path(self.root)
            else sql_name(f"{self.root}.{table.name}")
        )

    def _path(self, table: Table) -> str:
        return _whole(f"{self.root.rstrip('/')}/{table.name}")

    def read(self, spark: SparkSession, table: Table) -> DataFrame:
        """The table as it stands now."""
        return spark.table(self.name(table))

    def append(self, rows: DataFrame, table: Table, metadata: str | None = None) -> None:
        """Append rows, by column name. ``metadata`` goes into the table's history, as an option of this write alone."""
        # A write to a path takes no narrower type for a wider one, as a write to a name does.
        typed = rows.selectExpr(*(f"CAST({column.name} AS {column.type}) AS {column.name}" for column in table.columns))
        writer = typed.write.format("delta").mode("append")
        if metadata is not None:
            writer = writer.option("userMetadata", metadata)
        self.write(writer, table)

    def write(self, writer: DataFrameWriter, table: Table) -> None:
        """Send a prepared write to one of our tables."""
        if is_path(self.root):
            # saveAsTable looks a path up in the catalog, and beside other threads sometimes takes it for a new table.
            writer.save(self._path(table))
        else:
            writer.saveAsTable(self.name(table))

    def exists(self, spark: SparkSession) -> bool:
        """Whether the tables are there: the last one made says so for all."""
        return self._properties(spark, TABLES[-1]) is not None

    def check(self, spark: SparkSession) -> None:
        """Refuse tables that this version cannot write, and a root where none can be made. Touches nothing."""
        for table in TABLES:
            self._has_our_format(spark, table)
        if is_path(self.root) and not _SCHEME.match(self.root):
            _check_writable(self.root)

    def check_there(self, spark: SparkSession) -> None:
        """Refuse a root whose tables cannot be read: where one is missing, or is of a newer version. Touches nothing."""
        for table in TABLES:
            if not self._has_our_format(spark, table):
                raise SettingsError(
                    "tables.root", self.root, f"it has no table {table.name}; give a root that a run has written to"
                )

    def _has_our_format(self, spark: SparkSession, table: Table) -> bool:
        """False where there is no such table; raises SettingsError where it is of a newer version."""
        properties = self._properties(spark, table)
        if properties is None:
            return False
        found = properties.get(FORMAT_PROPERTY)
        if found is None or not found.isdigit() or int(found) > FORMAT:
            raise SettingsError(
                "tables.root",
                self.root,
                f"its table {table.name} has {FORMAT_PROPERTY} {found or 'not set'} and this version writes {FORMAT}; "
                "upgrade lakelabel, or give another root",
            )
        return True

    def create(self, spark: SparkSession) -> None:
        """Make the tables that are not there. Raises SettingsError where the root cannot be written."""
        if self.exists(spark):
            return
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            retried(lambda: self._create(spark))
        except (PySparkException, Py4JJavaError) as error:
            raise SettingsError(
                "tables.root", self.root, f"tables cannot be made there ({first_line(error)}); give a root to write to"
            ) from error

    def _create(self, spark: SparkSession) -> None:
        if not is_path(self.root):
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {sql_name(self.root)}")
        for table in TABLES:
            with around(f"{table.name}.create"):
                spark.sql(self.ddl(table))

    def ddl(self, table: Table) -> str:
        """The CREATE TABLE text; constraints are part of it, so that no table ever stands without them."""
        properties = {
            FORMAT_PROPERTY: str(FORMAT),
            # Databricks defaults to WriteSerializable, under which two conditional updates can both win.
            "delta.isolationLevel": "Serializable",
            "delta.checkpointInterval": "100",
            "delta.enableChangeDataFeed": str(table.change_data_feed).lower(),
            "delta.enableDeletionVectors": str(self.deletion_vectors).lower(),
            # They shuffle or rewrite behind the job's back.
            "delta.autoOptimize.autoCompact": "false",
            "delta.autoOptimize.optimizeWrite": "false",
        }
        # Time travel of the states needs both; of the rest nobody asks, and their replaced files may go.
        kept = f"interval {self.history_days if table.change_data_feed else 1} days"
        properties |= {"delta.logRetentionDuration": kept, "delta.deletedFileRetentionDuration": kept}
        if table.stats:
            properties["delta.dataSkippingStatsColumns"] = ",".join(table.stats)
        properties.update({f"delta.constraints.{name}": check for name, check in table.checks})
        columns = ",\n  ".join(column.ddl for column in table.columns)
        partitioned = f"\nPARTITIONED BY ({', '.join(table.partitioned_by)})" if table.partitioned_by else ""
        listed = ", ".join(f"{_quoted(key)} = {_quoted(value)}" for key, value in properties.items())
        return (
            f"CREATE TABLE IF NOT EXISTS {self.name(table)} (\n  {columns}\n) USING delta{partitioned}\n"
            f"TBLPROPERTIES ({listed})"
        )

    def _properties(self, spark: SparkSession, table: Table) -> dict[str, str] | None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import AnalysisException, PySparkException

        try:
            rows = spark.sql(f"SHOW TBLPROPERTIES {self.name(table)}").collect()
        except AnalysisException:
            return None
        except (PySparkException, Py4JJavaError) as error:
            remedy = f"it cannot be looked at ({first_line(error)}); give a root that this session can read and write"
            raise SettingsError("tables.root", self.root, remedy) from error
        return {row["key"]: row["value"] for row in rows}


def _check_writable(root: str) -> None:
    path = Path(root).absolute()
    try:
        existing = next(parent for parent in (path, *path.parents) if parent.exists())
        writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    except OSError as error:
        raise SettingsError(
            "tables.root", root, f"it cannot be looked at ({error.strerror}); give another root"
        ) from None
    if not writable:
        raise SettingsError("tables.root", root, f"{existing} is no folder that this user may write; give another root")


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def first_line(error: Exception) -> str:
    """What Spark says of a table or folder in one line, without the Java around it."""
    lines = (line.lstrip(": ") for line in str(error).splitlines() if not line.startswith("An error occurred while"))
    return next((line for line in lines if line.strip()), type(error).__name__)[:200]


def in_list(values: Sequence[str]) -> str:
    """Strings as the inside of an SQL IN (…)."""
    return ", ".join(literal(value) for value in values)


def in_range(column: str, low: int, high: int) -> str:
    """A condition for an inclusive range of BIGINT; an end that is the type's own needs none (its lowest literal does
    not even parse), and the whole range is ``true``."""
    bounds = [f"{column} >= {low}"] if low > LOWEST else []
    bounds += [f"{column} <= {high}"] if high < HIGHEST else []
    return " AND ".join(bounds) or "true"


def values_sql(columns: Sequence[str], rows: Sequence[Sequence[str | int | float | None]]) -> str:
    """A few rows of our own as an inline table, to be followed by an alias."""
    listed = ", ".join("(" + ", ".join(_value(value) for value in row) + ")" for row in rows)
    return f"(SELECT * FROM VALUES {listed} AS v({', '.join(columns)}))"


def _value(value: str | int | float | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"CAST({value!r} AS DOUBLE)"
    return literal(value) if isinstance(value, str) else str(value)
