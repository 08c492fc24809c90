"""What a run does with a signal and with a lost lease, without Spark."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest

from lakelabel import run
from lakelabel.errors import Fenced, Interrupted, RunFailed
from lakelabel.interrupt import Interrupt
from lakelabel.report import Tally


class Lease:
    """Stands for a taken lease."""

    owner = "me"
    lost: str | None = None

    def check(self) -> None:
        if self.lost:
            raise Fenced(self.lost)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.ended_by = error


@pytest.fixture
def lease(monkeypatch: pytest.MonkeyPatch) -> Lease:
    taken = Lease()
    monkeypatch.setattr(run, "Lease", SimpleNamespace(take=lambda *_: taken))
    monkeypatch.setattr(run, "Telemetry", lambda _: None)
    monkeypatch.setattr(run, "slots", lambda _: 1)
    monkeypatch.setattr(run, "_register_prompt", lambda *_: None)
    return taken


JOB: Any = SimpleNamespace(
    prompt_version="kind-0",
    tables=SimpleNamespace(create=lambda _: None),
    settings=SimpleNamespace(queue=SimpleNamespace(lease_seconds=60), cost=SimpleNamespace(price_per_slot_hour=None)),
)


class Reporter:
    def say(self, text: str) -> None: ...

    def begin(self, documents: int) -> None: ...

    def advance(self, documents: int) -> None: ...


class Spark:
    """Keeps the tags of the jobs that were cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.sparkContext = SimpleNamespace(cancelJobsWithTag=self.cancelled.append)


def classify(interrupt: Interrupt | None = None, spark: Any = None) -> Any:
    return run.classify(spark or Spark(), JOB, Reporter(), interrupt=interrupt)


def test_the_run_looks_at_the_very_interrupt_that_takes_the_signals(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the command line installs is what the run is told by, also before any signal came."""
    interrupt, spark, seen = Interrupt(), Spark(), []

    def go_on(work: Any, plan_only: bool) -> Any:
        seen.append(work.interrupt)
        interrupt.ask()
        some = SimpleNamespace(run_id="r", prompt_version="kind-0", source_version=0)
        yield some, Tally(Counter(), Counter(), Counter(), Counter())

    monkeypatch.setattr(run, "_go_on", go_on)
    classify(interrupt, spark)
    assert seen == [interrupt]
    assert spark.cancelled == ["lakelabel-me"]


def test_a_signal_that_came_before_there_was_anything_to_cancel_ends_the_run(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No plan is begun, and the lease is given back."""
    monkeypatch.setattr(run, "_go_on", lambda *_: pytest.fail("the run went on"))
    interrupt = Interrupt()
    interrupt.ask()
    with pytest.raises(Interrupted):
        classify(interrupt)
    assert isinstance(lease.ended_by, Interrupted)


@pytest.mark.parametrize(("lost", "expected"), [("taken over", Fenced), (None, RunFailed)])
def test_what_fails_because_the_lease_is_lost_is_a_stop_on_purpose(
    lease: Lease, monkeypatch: pytest.MonkeyPatch, lost: str | None, expected: type[Exception]
) -> None:
    """A plan whose jobs were cancelled with the lease fails in Spark's words; the exit code is that of a lost lease."""

    def go_on(*_: object) -> Any:
        lease.lost = lost
        raise RunFailed("the plan failed: SparkException")
        yield

    monkeypatch.setattr(run, "_go_on", go_on)
    with pytest.raises(expected) as ended:
        classify()
    assert type(ended.value) is expected
    assert lease.ended_by is ended.value
