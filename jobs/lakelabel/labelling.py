"""The label loop of one run: as many jobs in flight as fill the slots, and commits on the side."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from lakelabel.commit import SHARDS_AT_ONCE, Answers, Committer
from lakelabel.deaths import PROBE, Deaths, Job
from lakelabel.errors import Interrupted, Stopped
from lakelabel.label import Attempt, Labeller
from lakelabel.ledger import Run
from lakelabel.sanity import Sanity
from lakelabel.settling import settle
from lakelabel.shards import Shard
from lakelabel.spending import Spending
from lakelabel.work import Work

_TICK = 0.5
_SECONDS_A_COMMIT = 2.0
"""Appends to one table come no closer together than this, however many engines work."""


class Labelling:
    """The state of one run's loop. ``run`` ends with every infer shard accepted, or with the reason why not."""

    def __init__(
        self, work: Work, run: Run, labeller: Labeller, committer: Committer, spending: Spending, sanity: Sanity
    ) -> None:
        self._work = work
        self._run = run
        self._labeller = labeller
        self._committer = committer
        self._spending = spending
        self._sanity = sanity
        self._deaths = Deaths(work, run, labeller)
        self._pending: deque[Shard] = deque()
        self._jobs: dict[Future[list[Attempt]], Job] = {}
        self._done: list[Attempt] = []
        self._commit: Future[tuple[list[Shard], Answers]] | None = None
        self._committed_at = time.monotonic()

    def run(self, shards: list[Shard]) -> None:
        """Label these shards. Raises Interrupted, Stopped or Fenced in good order, RunFailed where the run cannot go on."""
        self._pending.extend(shards)
        slots = self._work.slots
        with (
            ThreadPoolExecutor(slots, "lakelabel-label", self._work.labels_here) as labellers,
            ThreadPoolExecutor(1, "lakelabel-commit", self._work.commits_here) as committing,
            self._spending.holding(slots),
            self._cancelled_at_the_end(),
        ):
            reason = None
            while self._pending or self._jobs or self._deaths.suspects:
                reason = self._reason_to_stop() or reason
                if isinstance(reason, Interrupted):
                    break
                if self._spending.is_used_up():
                    # Better to lose what is in flight than to pay more than was allowed.
                    self._work.cancel_labels()
                if reason is None:
                    self._launch(labellers)
                elif not self._jobs:
                    break
                futures: list[Future[Any]] = list(self._jobs)
                if self._commit is not None:
                    futures.append(self._commit)
                wait(futures, timeout=_TICK, return_when=FIRST_COMPLETED)
                self._collect()
                self._commit_if_due(committing)
            if reason is not None:
                self._drain()
            if isinstance(reason, Stopped) and not (self._pending or self._deaths.suspects):
                # It came with the last job, and there is nothing left to stop.
                reason = None
        self._settle_the_rest(reason)

    @contextmanager
    def _cancelled_at_the_end(self) -> Iterator[None]:
        """Whatever ends the loop, no job of it goes on: the threads' pool would wait for it."""
        try:
            yield
        finally:
            self._cancel()

    def _cancel(self) -> None:
        """End every job that is in flight. One that Spark has not begun yet cannot be cancelled, so it is told again."""
        while not all(future.done() for future in self._jobs):
            self._work.cancel_labels()
            wait(self._jobs, timeout=_TICK)

    def _reason_to_stop(self) -> Stopped | Interrupted | None:
        self._work.lease.check()
        if self._work.interrupt.asked:
            return Interrupted("interrupted")
        complaint = self._sanity.complaint()
        if complaint is not None:
            return Stopped(f"run {self._run.run_id} has gone wrong: {complaint}")
        # The next shard is waited with while others are in flight: they may cost less than was expected of them.
        is_next = self._pending and not self._jobs
        if self._spending.is_used_up() or (is_next and not self._can_pay()):
            return Stopped(
                f"cost.budget of {self._spending.budget:g} is used up but for what the next shard needs: run "
                f"{self._run.run_id} has cost {self._spending.cost or 0.0:.4g}"
            )
        return None

    # Jobs.

    def _launch(self, labellers: ThreadPoolExecutor) -> None:
        """Fill the slots: a permit for each task, and no more tasks than slots."""
        running = self._running()
        idle = not self._pending and not self._jobs
        if PROBE not in self._jobs.values() and running < self._work.slots and self._deaths.want_probe(idle):
            self._jobs[labellers.submit(self._probe)] = PROBE
            running += 1
        while self._pending and running < self._work.slots and self._can_pay():
            shards = self._next(self._work.slots - running)
            self._jobs[labellers.submit(self._labeller.label, shards)] = tuple(shards)
            running += len(shards)

    def _running(self) -> int:
        """Label tasks in flight; a probe is one."""
        return sum(max(1, len(job)) for job in self._jobs.values())

    def _next(self, free: int) -> list[Shard]:
        """The shards of the next job: one, until so many engines work that their commits would come too close."""
        first = self._pending.popleft()
        seconds = self._spending.expected(first.tokens)
        if first.shard_id in self._deaths.alone or free == 1 or not seconds:
            return [first]
        wanted = min(free, math.ceil(self._work.slots * _SECONDS_A_COMMIT / seconds))
        shards = [first]
        while len(shards) < wanted and self._pending and self._pending[0].shard_id not in self._deaths.alone:
            if not self._can_pay(sum(shard.tokens for shard in shards)):
                break
            shards.append(self._pending.popleft())
        return shards

    def _can_pay(self, more: int = 0) -> bool:
        """Whether the budget allows the next pending shard, beside what is in flight and so many tokens ``more``."""
        in_flight = sum(shard.tokens for job in self._jobs.values() for shard in job)
        return self._spending.allows(in_flight + more + self._pending[0].tokens)

    def _probe(self) -> list[Attempt]:
        self._labeller.probe()
        return []

    def _collect(self) -> None:
        """Take in what ended since the last tick."""
        for future in [future for future in self._jobs if future.done()]:
            job = self._jobs.pop(future)
            error = future.exception()
            if error is None and job == PROBE:
                self._deaths.probed()
            elif error is None:
                self._take(future.result())
            elif self._work.interrupt.asked or self._spending.is_used_up():
                # It was cancelled, and what it was about is left.
                self._pending.extendleft(reversed(job))
            else:
                self._work.lease.check()
                self._deaths.answer(job, error, self._pending)
        self._done += self._deaths.condemned()
        if self._commit is not None and self._commit.done():
            (shards, answers), self._commit = self._commit.result(), None
            self._sanity.tell(answers)
            self._forget_settled(shards)

    def _take(self, attempts: list[Attempt]) -> None:
        self._done += attempts
        self._deaths.look()
        # Each held a slot for as long as their job took.
        self._spending.took(
            sum(attempt.shard.tokens for attempt in attempts), sum(attempt.seconds for attempt in attempts)
        )
        self._work.reporter.advance(sum(attempt.shard.documents for attempt in attempts))

    # Commits.

    def _commit_if_due(self, committing: ThreadPoolExecutor) -> None:
        every = self._work.job.settings.queue.commit_every_seconds
        due = time.monotonic() - self._committed_at >= every or len(self._done) >= SHARDS_AT_ONCE
        more = self._pending or self._jobs or self._deaths.suspects
        if self._commit is None and self._done and due and more:
            done, self._done, self._committed_at = self._done, [], time.monotonic()
            self._commit = committing.submit(self._settle_and_commit, done)

    def _settle_and_commit(self, done: list[Attempt]) -> tuple[list[Shard], Answers]:
        with self._work.timed("commit"):
            shards = settle(self._work, self._run, done)
            return shards, self._committer.commit(self._run, shards)

    def _forget_settled(self, shards: list[Shard]) -> None:
        """Another driver may have accepted what this one has still before it, where no lease keeps them apart."""
        # What is not among them was split off since they were read.
        settled = {shard.shard_id for shard in shards if shard.state != "pending"}
        if settled:
            self._pending = deque(shard for shard in self._pending if shard.shard_id not in settled)

    def _drain(self) -> None:
        """Let a commit that is under way end, and take in what the cancelled jobs still brought."""
        self._cancel()
        self._collect()
        if self._commit is not None:
            wait([self._commit])
            self._collect()

    def _settle_the_rest(self, reason: Stopped | Interrupted | None) -> None:
        """Accept what is done; where the run stops here, commit it too, for the next start may be far away."""
        if self._commit is not None:
            _, answers = self._commit.result()
            self._sanity.tell(answers)
        with self._work.timed("commit"):
            shards = settle(self._work, self._run, self._done) if self._done else []
            if reason is None:
                return
            self._committer.commit(self._run, shards or self._work.ledger.shards(self._run.run_id))
        left = sum(s.documents for s in self._work.ledger.shards(self._run.run_id) if s.state == "pending")
        remedy = (
            "raise the limit, or mend what is wrong, and start again" if isinstance(reason, Stopped) else "start again"
        )
        raise type(reason)(f"{reason}; what was labelled is committed, {left} documents are left: {remedy} to go on")
