"""Commit: bring ``labels`` and ``quarantine`` up to the accepted facts of a run, by MERGEs that may be repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelabel import merge
from lakelabel.delta import retried
from lakelabel.errors import Fenced
from lakelabel.failures import spark_errors
from lakelabel.lease import Lease
from lakelabel.ledger import Ledger, Run
from lakelabel.merge import Facts
from lakelabel.points import around
from lakelabel.sanity import ANSWER, IS_ANSWERED, Answer
from lakelabel.shards import Shard
from lakelabel.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARDS_AT_ONCE = 200
"""Attempts named by one statement; more would make its text longer than a parser likes."""

_ROWS_A_FILE = 500_000

Answers = Mapping[Answer, int]
"""Documents by failure code and label, of those that an engine answered."""


@dataclass(frozen=True)
class Committer:
    """Writes the states under one lease."""

    spark: SparkSession
    tables: Tables
    ledger: Ledger
    lease: Lease

    def commit(self, run: Run, shards: Sequence[Shard]) -> Answers:
        """Commit accepted shards of a run, and mark them; what the engine answered in them. Raises Fenced where a newer
        owner has taken over."""
        answers: Counter[Answer] = Counter()
        accepted = [shard for shard in shards if shard.state == "accepted"]
        for start in range(0, len(accepted), SHARDS_AT_ONCE):
            batch = accepted[start : start + SHARDS_AT_ONCE]
            facts = Facts(
                run.prompt_version,
                run.run_id,
                tuple(shard.attempt for shard in batch if shard.attempt is not None),
                tuple((shard.lo, shard.hi) for shard in batch),
            )
            with spark_errors(f"commit of shards {batch[0].name} to {batch[-1].name} of run {run.run_id}"):
                answers += self._merge(facts)
                self.ledger.mark_committed(run, batch)
        return answers

    def _merge(self, facts: Facts) -> Counter[Answer]:
        rows = self.spark.sql(
            f"SELECT failure_code, {ANSWER} AS answer, count(*) AS n, count_if({IS_ANSWERED}) AS own "
            f"FROM {facts.source(self.tables, 'true')} GROUP BY ALL"
        ).collect()
        labels = sum(row["n"] for row in rows if row["failure_code"] is None)
        failures = sum(row["n"] for row in rows) - labels
        # Labels come first: a reader must never find an old label beside the failure that took it away.
        gained = self._inserted("labels.insert", merge.insert_labels(self.tables, facts), labels)
        if gained < labels or failures:
            self._update_if_older(
                "labels.update", merge.update_labels(self.tables, facts), merge.older_labels(self.tables, facts)
            )
        self._inserted("quarantine.insert", merge.insert_quarantine(self.tables, facts), failures)
        self._update_if_older(
            "quarantine.update", merge.update_quarantine(self.tables, facts), merge.older_quarantine(self.tables, facts)
        )
        return Counter({(row["failure_code"], row["answer"]): row["own"] for row in rows})

    def _inserted(self, point: str, statement: str, rows: int) -> int:
        return self._fenced(point, statement, rows)["num_inserted_rows"] if rows else 0

    def _update_if_older(self, point: str, statement: str, question: str) -> None:
        # A matched-only MERGE under a fence writes a version even where it changes nothing.
        if self.spark.sql(question).collect():
            self._fenced(point, statement, 0)

    def _fenced(self, point: str, statement: str, rows: int) -> dict[str, int]:
        """Run a MERGE under the lease's epoch. Delta skips it, with an empty result, once a newer epoch has written."""

        def run() -> dict[str, int]:
            # These settings leak into other writes of their session, so each MERGE has a session of its own.
            session = self.spark.newSession()
            if self.lease.is_fencing:
                session.conf.set("spark.databricks.delta.write.txnAppId", self.lease.prompt_version)
                session.conf.set("spark.databricks.delta.write.txnVersion", str(self.lease.next_txn()))
            session.conf.set("spark.databricks.delta.merge.repartitionBeforeWrite.enabled", "false")
            session.conf.set("spark.sql.shuffle.partitions", str(1 + rows // _ROWS_A_FILE))
            for key in ("spark.sql.session.timeZone", "spark.databricks.delta.snapshotPartitions"):
                session.conf.set(key, self.spark.conf.get(key) or "")
            result = session.sql(statement).collect()
            if not result:
                raise Fenced(
                    f"the lease of {self.lease.prompt_version} was taken over; this driver writes nothing more"
                )
            return dict(result[0].asDict())

        self.lease.check()
        with around(point):
            return retried(run)
