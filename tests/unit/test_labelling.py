"""The label loop: what it does when workers die, slots are sick, and somebody or something says stop; without Spark.

Documents are the numbers of a shard's range. An engine dies of those that are poison, and a slot may be sick.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException, PythonException

from lakelabel import deaths, labelling
from lakelabel.errors import Fenced, Interrupted, RunFailed, Stopped
from lakelabel.interrupt import Interrupt
from lakelabel.label import Attempt
from lakelabel.labelling import Labelling
from lakelabel.sanity import Sanity
from lakelabel.sections import Stop
from lakelabel.shards import MOST_PARTS, Complete, Shard, counting, parts_of
from lakelabel.spending import Spending
from lakelabel.verdict import ways

RUN: Any = SimpleNamespace(run_id="r")


def died(slot: str, of: str = "Python worker exited unexpectedly (crashed)") -> PySparkException:
    """What Spark raises for a worker that is gone."""
    return PySparkException(
        message=f"Job aborted: Lost task 0.0 in stage 1.0 (TID 7) (host-{slot} executor {slot}): {of}"
    )


def not_loaded(slot: str) -> PySparkException:
    """What Spark raises for an engine that did not load."""
    return PythonException(
        message=f"Lost task 0.0 in stage 1.0 (TID 7) (host-{slot} executor {slot}): Traceback\n"
        "lakelabel_udfs.engines.protocol.EngineLoadFailed: the engine did not load: OSError: no weights\n"
    )


class Ledger:
    """Shards and attempts in memory; what a driver may not do to them fails."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.rows = {shard.shard_id: shard for shard in shards}
        self.written: dict[int, list[tuple[str, int]]] = {}

    def shards(self, _run_id: str) -> list[Shard]:
        return counting(self.rows.values())

    def complete(self, _run: Any, shards: Sequence[Shard]) -> list[Complete]:
        return [
            Complete(shard.shard_id, attempt, (None, None, None))
            for shard in shards
            for attempt, documents in self.written.get(shard.shard_id, [])
            if documents == shard.documents
        ]

    def accept(self, _run: Any, complete: Sequence[Complete], _seconds: Mapping[str, float]) -> None:
        for one in complete:
            self._move(one.shard_id, "pending", "accepted", attempt=one.attempt)

    def fail(self, _run: Any, shard: Shard) -> None:
        self._move(shard.shard_id, "pending", "pending", tries=shard.tries + 1)

    def split(self, _run: Any, shard: Shard, parts: Sequence[Shard]) -> None:
        self._move(shard.shard_id, "pending", "split")
        self.rows |= {part.shard_id: part for part in parts}

    def _move(self, shard_id: int, before: str, after: str, **also: Any) -> None:
        assert self.rows[shard_id].state == before
        self.rows[shard_id] = replace(self.rows[shard_id], state=after, **also)

    def states(self) -> Counter[str]:
        """Documents by the state of the shards that count."""
        found: Counter[str] = Counter()
        for shard in counting(self.rows.values()):
            if shard.state != "split":
                found[shard.state] += shard.documents
        return found


class Cluster:
    """Slots that label, beside the work, the labeller and the committer that a loop sees of them."""

    def __init__(self, shards: Sequence[Shard], slots: str = "a") -> None:
        self.ledger = Ledger(shards)
        self.slots = len(slots)
        self.interrupt = Interrupt()
        self.interrupt.on_stop = self.cancel_labels
        self.lost: str | None = None
        self.lease = SimpleNamespace(check=self._check)
        self.job: Any = SimpleNamespace(settings=SimpleNamespace(queue=SimpleNamespace(commit_every_seconds=0)))
        self.telemetry = self
        self.reporter = self
        self.poison: dict[int, str] = {}
        self.sick: set[str] = set()
        self.broken: Callable[[str, int], Exception | None] = lambda _slot, _nth: None
        self.during: Callable[[int], object] = lambda _: None
        self.answer: tuple[str | None, str | None] = (None, "label")
        self.hears_cancel = True
        self.labelled: Counter[str] = Counter()
        self.paid: Counter[int] = Counter()
        self.deaths = self.jobs = self.most = self.probes = self.cancels = self.sizes = 0
        self.condemned: dict[int, str] = {}
        self.said: list[str] = []
        self._free = list(slots)
        self._lock = threading.Lock()
        self._cancelled = threading.Event()

    # The work.

    def _check(self) -> None:
        if self.lost:
            raise Fenced(self.lost)

    def labels_here(self) -> None: ...

    def commits_here(self) -> None: ...

    def cancel_labels(self) -> None:
        self.cancels += 1
        if self.hears_cancel or self.cancels > 2:
            self._cancelled.set()

    @contextmanager
    def timed(self, _step: str) -> Iterator[None]:
        yield

    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, documents: int) -> None: ...

    def by_executor(self) -> dict[str, float]:
        return {slot: float(n) for slot, n in self.labelled.items()}

    # The labeller.

    @contextmanager
    def _slot(self) -> Iterator[str]:
        with self._lock:
            assert self._free, "more tasks than slots"
            slot = self._free.pop(0)
            self.jobs += 1
            nth = self.jobs
        try:
            self.during(nth)
            error = self.broken(slot, nth)
            if error is not None:
                raise error
            if slot in self.sick:
                self.deaths += 1
                raise died(slot)
            yield slot
        finally:
            with self._lock:
                self._free.append(slot)

    def label(self, shards: Sequence[Shard]) -> list[Attempt]:
        self.most = max(self.most, len(shards))
        done: list[Attempt] = []
        failure: PySparkException | None = None
        for shard in shards:
            with self._slot() as slot:
                documents = range(shard.lo, shard.hi + 1)
                assert len(documents) == shard.documents
                poison = next((document for document in documents if document in self.poison), None)
                read = documents if poison is None else documents[: documents.index(poison)]
                self.paid.update(read)
                if poison is not None:
                    self.deaths += 1
                    failure = died(slot, self.poison[poison])
                    continue
                self.labelled[slot] += shard.documents
            done.append(Attempt(shard, str(uuid.uuid4()), 1.0))
        if failure is not None:
            raise failure
        for attempt in done:
            self._write(attempt)
        return done

    def probe(self) -> None:
        with self._slot() as slot:
            self.probes += 1
            self.labelled[slot] += 1

    def condemn(self, shard: Shard, code: str) -> Attempt:
        self.condemned |= dict.fromkeys(range(shard.lo, shard.hi + 1), code)
        attempt = Attempt(shard, str(uuid.uuid4()), 0.0)
        self._write(attempt)
        return attempt

    def _write(self, attempt: Attempt) -> None:
        self.ledger.written.setdefault(attempt.shard.shard_id, []).append((attempt.attempt, attempt.shard.documents))

    def until_cancelled(self) -> None:
        """Label until somebody says stop, as a job that is cancelled."""
        assert self._cancelled.wait(20)
        raise PySparkException(message="Job 3 cancelled part of cancelled job tag")

    # The committer.

    def commit(self, _run: Any, shards: Sequence[Shard]) -> Counter[tuple[str | None, str | None]]:
        answers: Counter[tuple[str | None, str | None]] = Counter()
        for shard in shards:
            if shard.state == "accepted":
                self.ledger._move(shard.shard_id, "accepted", "committed")
                answers[self.answer] += shard.documents
        return answers


def planned(shards: int, documents: int) -> list[Shard]:
    """So many shards of so many documents, of ten tokens each."""
    return [
        Shard(nth + 1, "infer", nth * documents, (nth + 1) * documents - 1, documents, 10 * documents)
        for nth in range(shards)
    ]


def split(work: Any, run: Any, shard: Shard) -> list[Shard]:
    """As ``settling.split``, of documents that are numbers."""
    n = ways(shard.documents, MOST_PARTS)
    size, rest = divmod(shard.documents, n)
    pieces, lo = [], shard.lo
    for part in range(n):
        documents = size + (part < rest)
        pieces.append((lo, documents, 10 * documents))
        lo += documents
    parts = parts_of(shard, pieces)
    work.ledger.split(run, shard, parts)
    return parts


def label(cluster: Cluster, spending: Spending | None = None, stop: Stop | None = None) -> None:
    """Run the loop over the cluster's pending shards."""
    work: Any = cluster
    sanity = Sanity(stop or Stop(after=10**9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deaths, "split", split)
        patch.setattr(labelling, "_TICK", 0.05)
        loop = Labelling(work, RUN, work, work, spending or Spending(), sanity)
        loop.run([shard for shard in cluster.ledger.shards("r") if shard.state == "pending"])


@pytest.mark.parametrize("slots", ["a", "ab", "abcdefgh"])
def test_all_documents_are_labelled_and_each_is_paid_for_once(slots: str) -> None:
    """Never by more tasks than slots, and with commits on the way; at the end every shard is accepted."""
    cluster = Cluster(planned(50, 20), slots)
    label(cluster)
    states = cluster.ledger.states()
    assert states["accepted"] + states["committed"] == 1000
    assert states["committed"] > 0
    assert cluster.paid == Counter(range(1000))
    assert (cluster.deaths, cluster.probes, cluster.condemned) == (0, 0, {})


@pytest.mark.parametrize("position", [0, 1, 99, 100, 499, 500, 999])
def test_a_poison_document_ends_alone(position: int) -> None:
    """All others are labelled; it costs at most six loads of the engine and two shards' worth of repeated inference."""
    cluster = Cluster(planned(2, 500))
    cluster.poison = {position: "Python worker exited unexpectedly (crashed)"}
    label(cluster)
    assert cluster.condemned == {position: "crashed"}
    assert cluster.ledger.states().keys() <= {"accepted", "committed"}
    assert cluster.ledger.states().total() == 1000
    assert cluster.paid.keys() == set(range(1000)) - {position}
    assert cluster.paid.total() - 999 <= 1000
    assert cluster.deaths <= 5  # each costs a load, and the first was there before


def test_a_document_that_hangs_is_condemned_as_such() -> None:
    """The watchdog's word is in what Spark says."""
    cluster = Cluster(planned(1, 3))
    cluster.poison = {
        1: "Python worker exited unexpectedly (crashed): lakelabel: the engine did not return from a step for 600 s"
    }
    label(cluster)
    assert cluster.condemned == {1: "timed_out"}
    assert cluster.ledger.states().total() == 3


def test_a_single_document_is_condemned_only_after_a_probe() -> None:
    """Nothing else can tell whether the slot labels at all."""
    cluster = Cluster(planned(1, 1))
    cluster.poison = {0: "Python worker exited unexpectedly (crashed)"}
    label(cluster)
    assert cluster.condemned == {0: "crashed"}
    assert (cluster.deaths, cluster.probes) == (2, 1)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 120),
    st.sets(st.integers(0, 479), max_size=8),
    st.sampled_from(["a", "ab", "abc"]),
)
def test_whatever_is_poison_and_nothing_else_is_condemned(
    shards: int, documents: int, poison: set[int], slots: str
) -> None:
    """However many, however close together: every document is labelled or condemned, and counts once."""
    total = shards * documents
    cluster = Cluster(planned(shards, documents), slots)
    cluster.poison = {document: "ExecutorLostFailure" for document in poison if document < total}
    label(cluster)
    assert cluster.condemned == dict.fromkeys(cluster.poison, "crashed")
    assert cluster.ledger.states().total() == total
    assert cluster.ledger.states().keys() <= {"accepted", "committed"}
    assert cluster.paid.keys() == set(range(total)) - cluster.poison.keys()


@pytest.mark.parametrize("documents", [1, 2, 100, 5000])
def test_a_sick_slot_ends_the_run_by_its_name_and_condemns_nothing(documents: int) -> None:
    """It dies of everything, a harmless text among it."""
    cluster = Cluster(planned(3, documents))
    cluster.sick = {"a"}
    with pytest.raises(RunFailed, match="host host-a, executor a cannot label even a harmless text"):
        label(cluster)
    assert cluster.condemned == {}
    assert cluster.ledger.states() == {"pending": 3 * documents}
    assert cluster.deaths <= 4


@pytest.mark.parametrize("seed", range(20))
def test_a_sick_slot_beside_a_sound_one_condemns_nothing(seed: int) -> None:
    """Whichever slot Spark picks for what: either the sound one labels everything, or the run ends by the sick one's name.
    A document that is poison too is condemned only if it died on slots that are in order."""
    cluster = Cluster(planned(8, 30), "ab")
    cluster.sick = {"b"}
    chance = random.Random(seed)
    cluster.during = lambda _: (time.sleep(0.001 * chance.random()), chance.shuffle(cluster._free))
    try:
        label(cluster)
    except RunFailed as error:
        assert "host host-b, executor b cannot label even a harmless text" in str(error)  # noqa: PT017 - either end is right
        assert cluster.ledger.states()["pending"] > 0
    else:
        assert cluster.ledger.states().keys() <= {"accepted", "committed"}
    assert cluster.condemned == {}
    assert cluster.ledger.states().total() == 240


def test_a_slot_whose_engine_does_not_load_twice_ends_the_run() -> None:
    """The shard is not to blame, so it is neither split nor tried on documents' account."""
    cluster = Cluster(planned(3, 10))
    cluster.broken = lambda slot, _: not_loaded(slot)
    with pytest.raises(
        RunFailed, match="the engine cannot be loaded on host host-a, executor a: the engine did not load"
    ):
        label(cluster)
    assert cluster.jobs == 2
    assert {shard.tries for shard in cluster.ledger.rows.values()} == {0}
    assert cluster.ledger.states() == {"pending": 30}


def test_a_load_that_fails_once_is_tried_again() -> None:
    """A device may have been busy for a moment."""
    cluster = Cluster(planned(3, 10))
    cluster.broken = lambda slot, nth: not_loaded(slot) if nth in (1, 3) else None
    label(cluster)
    assert cluster.ledger.states().total() == 30
    assert cluster.paid == Counter(range(30))


def test_what_is_nobodys_fault_ends_the_run_with_what_was_done_kept() -> None:
    """A full disk: no shard is split or counted a try; the attempts that were written are there for the next start."""
    cluster = Cluster(planned(4, 10))
    cluster.job.settings.queue.commit_every_seconds = 3600
    cluster.broken = lambda _, nth: PySparkException(message="No space left on device") if nth == 3 else None
    with pytest.raises(RunFailed, match="shard 3 of run r failed"):
        label(cluster)
    assert cluster.ledger.states() == {"pending": 40}
    assert {shard.tries for shard in cluster.ledger.rows.values()} == {0}
    assert len(cluster.ledger.complete(RUN, planned(4, 10))) == 2


def test_a_failed_job_of_several_shards_is_run_again_one_by_one() -> None:
    """One bad task fails its whole job; which it was shows when each is alone. The first job has one shard: nothing is known
    yet of how long they take."""
    cluster = Cluster(planned(41, 10), "abcd")
    cluster.poison = {155: "Python worker exited unexpectedly (crashed)"}
    spending = Spending()
    label(cluster, spending)
    assert 1 < cluster.most <= 4
    assert cluster.condemned == {155: "crashed"}
    assert cluster.ledger.states().total() == 410


@pytest.mark.parametrize("hears", [True, False])
def test_an_interrupt_cancels_what_is_in_flight_and_commits_what_is_done(hears: bool) -> None:
    """Also a job that Spark had not begun when it was first cancelled; the message says what is left, and how to go on."""
    cluster = Cluster(planned(5, 10))
    cluster.hears_cancel = hears
    cluster.job.settings.queue.commit_every_seconds = 3600

    def during(nth: int) -> None:
        if nth == 3:
            cluster.interrupt.ask()
            cluster.until_cancelled()

    cluster.during = during
    with pytest.raises(
        Interrupted, match="what was labelled is committed, 30 documents are left: start again to go on"
    ):
        label(cluster)
    assert cluster.ledger.states() == {"committed": 20, "pending": 30}
    assert cluster.jobs == 3


def test_an_interrupt_that_ends_the_last_job_is_an_interrupt() -> None:
    """What was cancelled is left, though nothing else was."""
    cluster = Cluster(planned(1, 10))

    def during(_: int) -> None:
        cluster.interrupt.ask()
        raise PySparkException(message="Job 0 cancelled")

    cluster.during = during
    with pytest.raises(Interrupted, match="10 documents are left"):
        label(cluster)


def test_what_a_job_still_brought_when_it_was_interrupted_is_kept() -> None:
    """A cancel that comes while its rows are being committed comes too late, and they have been paid for."""
    cluster = Cluster(planned(2, 10))
    cluster.during = lambda _: cluster.interrupt.ask()
    with pytest.raises(Interrupted, match="10 documents are left"):
        label(cluster)
    assert cluster.ledger.states() == {"committed": 10, "pending": 10}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_budget_ends_the_run_before_it_is_passed() -> None:
    """As soon as the next shard would not fit; what was labelled stays."""
    cluster, clock = Cluster(planned(10, 10)), Clock()
    spending = Spending(price=3600.0, budget=5.5, clock=clock)
    cluster.during = lambda _: setattr(clock, "now", clock.now + 1.0)
    with pytest.raises(Stopped, match=r"cost\.budget of 5\.5 is used up .* raise the limit") as stopped:
        label(cluster, spending)
    assert type(stopped.value) is Stopped
    assert cluster.ledger.states() == {"committed": 50, "pending": 50}
    assert spending.cost is not None and spending.cost <= 5.5


def test_a_budget_begins_on_no_more_slots_than_it_can_pay_for() -> None:
    """Each shard that is begun is paid for to its end, so the budget is asked before each."""
    cluster, clock = Cluster(planned(8, 10), "abcd"), Clock()
    spending = Spending(price=3600.0, budget=1000.0, clock=clock)
    spending.took(100, 300.0)
    lock, running, most = threading.Lock(), [0], [0]

    def during(_nth: int) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.1)
        with lock:
            running[0] -= 1

    cluster.during = during
    label(cluster, spending)
    assert most == [3]
    assert cluster.ledger.states().total() == 80


def test_a_shard_that_takes_longer_than_expected_is_cancelled_at_the_budget() -> None:
    """Better to lose it than to pay more than was allowed."""
    cluster, clock = Cluster(planned(10, 10)), Clock()
    spending = Spending(price=3600.0, budget=5.5, clock=clock)

    def during(nth: int) -> None:
        clock.now += 1.0
        if nth == 3:
            clock.now = 4.6
            cluster.until_cancelled()

    cluster.during = during
    with pytest.raises(Stopped, match=r"cost\.budget"):
        label(cluster, spending)
    assert cluster.ledger.states() == {"committed": 20, "pending": 80}


def test_a_budget_that_is_used_up_by_the_last_shard_stops_nothing() -> None:
    """What is left of the run needs no engine."""
    cluster, clock = Cluster(planned(3, 10)), Clock()
    spending = Spending(price=3600.0, budget=3.5, clock=clock)

    def during(nth: int) -> None:
        clock.now += 1.0
        if nth == 3:
            assert cluster._cancelled.wait(20)

    cluster.during = during
    label(cluster, spending)
    assert cluster.ledger.states().total() == 30
    assert "pending" not in cluster.ledger.states()


def test_a_budget_that_earlier_starts_used_up_begins_nothing() -> None:
    """The cost of a run is that of all its starts."""
    cluster = Cluster(planned(3, 10))
    with pytest.raises(Stopped, match=r"cost\.budget"):
        label(cluster, Spending(price=3600.0, budget=5.0, before=5.0))
    assert cluster.jobs == 0


def test_a_run_that_labels_nonsense_ends_itself() -> None:
    """When enough is committed to say so; it says why, and what it labelled is committed."""
    cluster = Cluster(planned(50, 10))
    cluster.answer = ("rejected", None)
    cluster.during = lambda _: time.sleep(0.005)
    with pytest.raises(Stopped, match=r"run r has gone wrong: .* went to quarantine \(rejected "):
        label(cluster, stop=Stop(after=30, quarantined=0.5))
    states = cluster.ledger.states()
    assert states["committed"] >= 30 and states["pending"] > 0
    assert states.keys() == {"committed", "pending"}


def test_a_lost_lease_ends_everything_and_writes_nothing_more() -> None:
    """What fails because it is cancelled is not taken for a death."""
    cluster = Cluster(planned(5, 10))
    cluster.job.settings.queue.commit_every_seconds = 3600

    def during(nth: int) -> None:
        if nth == 3:
            cluster.lost = "it was taken over"
            cluster.cancel_labels()
            cluster.until_cancelled()

    cluster.during = during
    with pytest.raises(Fenced, match="it was taken over"):
        label(cluster)
    assert cluster.ledger.states() == {"pending": 50}
    assert cluster.jobs == 3


def test_a_commit_that_fails_ends_the_run_and_cancels_what_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own error is what the user hears."""
    cluster = Cluster(planned(5, 10))

    def commit(*_: object) -> Any:
        raise RunFailed("commit of shards 1 to 1 failed")

    monkeypatch.setattr(cluster, "commit", commit)
    cluster.during = lambda nth: cluster.until_cancelled() if nth == 2 else None
    with pytest.raises(RunFailed, match="commit of shards 1 to 1 failed"):
        label(cluster)
    assert cluster.cancels > 0
    assert cluster.jobs == 2


def test_a_kill_that_raises_anywhere_leaves_no_thread_behind() -> None:
    """An error that nobody expects ends the loop as it is, and its pools with it."""
    before = threading.active_count()
    cluster = Cluster(planned(5, 10), "ab")

    def during(nth: int) -> None:
        if nth == 1:
            cluster.until_cancelled()
        if nth == 2:
            raise ZeroDivisionError

    cluster.during = during
    with pytest.raises(ZeroDivisionError):
        label(cluster)
    assert threading.active_count() == before
