"""A lease's clock and its end, without tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from lakelabel import lease as leases
from lakelabel.errors import Fenced, RunFailed
from lakelabel.host import Here
from lakelabel.lease import Lease
from lakelabel.tables import Tables


class Told(Lease):
    """A lease that keeps the events which it would append, and can get stuck at a beat."""

    def __init__(self, seconds: int = 60) -> None:
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
        super().__init__(spark, Tables("/nowhere"), "kind-0", seconds, Here("h", "b", 1, 1))
        self.events: list[str] = []
        self.is_newer_there = False
        self.goes_on = threading.Event()
        self.goes_on.set()

    def _append(self, event: str) -> None:
        self.events.append(event)
        if event == "beat":
            self.goes_on.wait(30)

    def _own(self) -> Any:
        frame = SimpleNamespace(collect=lambda: [1] if self.is_newer_there else [])
        frame.where = frame.select = frame.limit = lambda _: frame
        return frame


def until(condition: Any) -> bool:
    """Whether a condition comes true within 10 s."""
    end = time.monotonic() + 10
    while time.monotonic() < end and not condition():
        time.sleep(0.01)
    return bool(condition())


@contextmanager
def stuck_at_a_beat(monkeypatch: pytest.MonkeyPatch, seconds: int) -> Iterator[Told]:
    """A lease whose first beat has got stuck; after its end it has appended nothing else."""
    monkeypatch.setattr(leases, "_LAST_BEAT_SECONDS", 0.1)
    lease = Told(seconds)
    lease.goes_on.clear()
    try:
        with lease:
            assert until(lambda: lease.events == ["beat"])
            yield lease
        assert lease.events == ["beat"]
    finally:
        lease.goes_on.set()


def end(lease: Lease, error: BaseException | None) -> None:
    """Leave the lease's block, by an error if one is given."""
    with suppress(type(error) if error is not None else OSError), lease:
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [None, RunFailed("x"), OSError("x")])
def test_a_lease_is_given_back_at_the_end(error: BaseException | None) -> None:
    """However the run ended, since nothing of it goes on."""
    lease = Told()
    end(lease, error)
    assert lease.events == ["released"]


@pytest.mark.parametrize("error", [Fenced("x"), KeyboardInterrupt()])
def test_a_lease_is_kept_where_a_commit_may_still_be_under_way(error: BaseException) -> None:
    """One that was given back is taken without a fence; and what was lost is not ours to give."""
    lease = Told()
    end(lease, error)
    assert lease.events == []


def test_beats_go_on_until_the_end() -> None:
    """Several within the lease's length; none after it was given back."""
    with Told(1) as lease:
        assert until(lambda: lease.events.count("beat") >= 3)
        lease.check()
    ended = list(lease.events)
    assert ended[-1] == "released"
    assert not lease._beating.is_alive()
    time.sleep(0.5)
    assert lease.events == ended


def test_a_newer_owner_is_noticed_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the beat's thread, which can cancel what is in flight while the loop waits for it, and again, for between two
    steps of a plan nothing is in flight."""
    monkeypatch.setattr(leases, "_AGAIN_SECONDS", 0.05)
    lost: list[str] = []
    lease = Told(1)
    lease.is_newer_there = True
    lease.on_lost = lambda: lost.append(threading.current_thread().name)
    with lease:
        assert until(lambda: len(lost) >= 3)
        with pytest.raises(Fenced, match="was taken over"):
            lease.check()
    assert set(lost) == {"lakelabel-lease"}
    assert lease.events == ["beat"]


def test_without_a_fence_a_newer_owner_is_no_reason_to_stop() -> None:
    """A test may run two drivers beside each other."""
    lease = Told(1)
    lease.is_newer_there, lease.is_fencing = True, False
    with lease:
        assert until(lambda: len(lease.events) >= 2)
        lease.check()


def test_a_beat_that_is_stuck_loses_the_lease_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's own clock says so, whatever the beat's thread waits for; the end does not wait for it either."""
    with stuck_at_a_beat(monkeypatch, 1) as lease:
        lease.check()
        time.sleep(1.1)
        with pytest.raises(Fenced, match="could not be renewed for 1 s"):
            lease.check()


def test_a_stuck_beat_might_come_after_the_release_so_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next driver sees a process that has ended."""
    with stuck_at_a_beat(monkeypatch, 3):
        pass


def test_transactions_grow_within_an_epoch_and_with_every_epoch() -> None:
    """A driver of a newer epoch is ahead of all that an older one may still send."""
    lease = Told()
    lease.epoch = 3
    older = [lease.next_txn() for _ in range(3)]
    lease.epoch = 4
    assert older == sorted(set(older))
    assert lease.next_txn() > older[-1] + 2**31
