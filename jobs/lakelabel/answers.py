"""What a check of the tables answers: holds, broken, or not checkable; never an empty yes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from lakelabel.errors import escaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Verdict = Literal["holds", "broken", "not checkable"]

UNKNOWN = "? "
"""Begins a ``what`` that says why something cannot be judged."""

_KEYS = 10
_KEY_CHARACTERS = 120


@dataclass(frozen=True)
class Answer:
    """What one invariant says of one prompt_version.

    states: the invariant as a sentence. looked_at: on how much the verdict rests ("12 documents of labels"). broken: how
    many of them break it. ways: in which ways, the most frequent first. keys: up to ten that do, printable and cut.
    remedy: what to do, of a broken one. reason: why it could not be checked, or only in part.
    """

    invariant: str
    prompt_version: str
    verdict: Verdict
    states: str
    looked_at: str
    broken: int = 0
    ways: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    remedy: str | None = None
    reason: str | None = None

    def __str__(self) -> str:
        told = f"{self.verdict:<13}  {self.invariant}: {self.states} ({self.looked_at})"
        below = [("", f"{self.broken} broken: {'; '.join(self.ways)}")] if self.broken else []
        below += [("", key) for key in self.keys]
        below += [(f"{name}: ", text) for name, text in (("remedy", self.remedy), ("reason", self.reason)) if text]
        return "\n".join([told, *(f"{'':<15}{name}{text}" for name, text in below)])


def summary(answers: Sequence[Answer]) -> dict[str, Any]:
    """All answers as JSON values, with their number by verdict."""
    verdicts: Counter[Verdict] = Counter(answer.verdict for answer in answers)
    return {
        "prompt_versions": list(dict.fromkeys(answer.prompt_version for answer in answers)),
        "holds": verdicts["holds"],
        "broken": verdicts["broken"],
        "not_checkable": verdicts["not checkable"],
        "answers": [asdict(answer) for answer in answers],
    }


@dataclass(frozen=True)
class Invariant:
    """What must hold: its name, itself as a sentence, what is looked at one by one, and what to do where it is broken."""

    name: str
    states: str
    looks_at: str
    remedy: str

    def judge(self, prompt_version: str, found: DataFrame, looked_at: str = "") -> Answer:
        """The answer of a relation with a row for everything that is looked at: ``key`` (an id), ``at`` (its doc_hash, NULL
        where it has none) and ``what`` is wrong with it, NULL where nothing is. ``looked_at`` is added to the answer's own.
        """
        from pyspark.sql.functions import expr

        unknown = f"startswith(what, '{UNKNOWN}')"
        n, n_unknown, broken = found.agg(
            expr("count(*)"), expr(f"count_if({unknown})"), expr(f"count_if(NOT {unknown})")
        ).collect()[0]
        ways: list[str] = []
        reasons: list[str] = []
        keys: list[str] = []
        if n_unknown:
            reasons = [f"{count} {what.removeprefix(UNKNOWN)}" for what, count in _ways(found.where(unknown))]
        if broken:
            wrong = found.where(f"NOT {unknown}")
            ways = [f"{count} {what}" for what, count in _ways(wrong)]
            columns = (f"left(key, {_KEY_CHARACTERS + 1}) AS key", "at", "what")
            rows = wrong.selectExpr(*columns).orderBy("at", "key", "what").take(_KEYS)
            keys = [_shown(row["key"], row["at"], row["what"]) for row in rows]
        verdict: Verdict = "broken" if broken else "not checkable" if n_unknown else "holds"
        return Answer(
            self.name,
            prompt_version,
            verdict,
            self.states,
            f"{n} {self.looks_at}{looked_at}",
            broken,
            tuple(ways),
            tuple(keys),
            self.remedy if broken else None,
            "; ".join(reasons) or None,
        )


def _ways(wrong: DataFrame) -> list[tuple[str, int]]:
    from pyspark.sql.functions import expr

    rows = wrong.groupBy("what").count().orderBy(expr("count DESC"), "what").take(_KEYS)
    return [(escaped(row["what"]), row["count"]) for row in rows]


def _shown(key: str, at: int | None, what: str) -> str:
    # An id is a user's: it may hold anything, at any length; doc_hash finds it in SQL without quoting.
    cut = key if len(key) <= _KEY_CHARACTERS else key[:_KEY_CHARACTERS] + "…"
    return escaped(f"{cut}{'' if at is None else f' (doc_hash {at})'}: {what}")
