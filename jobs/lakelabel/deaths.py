"""What becomes of a job that failed: its shards are tried again, split or condemned, or the run ends."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from lakelabel.errors import RunFailed
from lakelabel.failures import Death, death_of, spark_errors
from lakelabel.label import Attempt, Labeller
from lakelabel.ledger import Run
from lakelabel.settling import split
from lakelabel.shards import Shard
from lakelabel.verdict import Code, Verdicts
from lakelabel.work import Work

Job = tuple[Shard, ...]
"""What a label job is about."""

PROBE: Job = ()
"""A job about none, which labels a harmless text."""


class Deaths:
    """The deaths of one run's label jobs. ``alone``: ids of shards that must not share a job any more; ``suspects``:
    shards that wait for their verdict."""

    def __init__(self, work: Work, run: Run, labeller: Labeller) -> None:
        self._work = work
        self._run = run
        self._labeller = labeller
        self._verdicts = Verdicts(work.slots)
        self.alone: set[int] = set()
        self.suspects: dict[int, Shard] = {}

    def look(self) -> None:
        """Take note of what the slots have labelled."""
        self._verdicts.look(self._work.telemetry.by_executor())

    def want_probe(self, idle: bool) -> bool:
        """Whether a harmless text is to be labelled; ``idle``: nothing else is left that could clear a slot."""
        return self._verdicts.wants_probe(idle)

    def probed(self) -> None:
        """A probe went well."""
        self._verdicts.probed(self._work.telemetry.by_executor())

    def answer(self, job: Job, error: BaseException, pending: deque[Shard]) -> None:
        """Put what is to be tried again back among the pending shards, or raise RunFailed."""
        death = death_of(error)
        what = "a probe" if job == PROBE else f"shard {', '.join(shard.name for shard in job)}"
        if death is None:
            with spark_errors(f"{what} of run {self._run.run_id}"):
                raise error
        if job == PROBE:
            raise RunFailed(
                f"{death.where} cannot label even a harmless text ({death.reason}): the fault is its own and not the "
                "documents', and none of them was quarantined for it; mend it, and start again"
            )
        if death.kind == "load":
            if self._verdicts.load_failed(death.executor, self._work.telemetry.by_executor()):
                raise RunFailed(
                    f"the engine cannot be loaded on {death.where}: {death.reason}; mend it, and start again"
                )
            pending.extendleft(reversed(job))
        elif len(job) > 1:
            # One task fails its whole job: which of them it was shows when each is alone.
            self.alone.update(shard.shard_id for shard in job)
            pending.extendleft(reversed(job))
        else:
            self._died(job[0], death, pending)

    def condemned(self) -> list[Attempt]:
        """Write down those suspects that no slot is left to blame for; their attempts, to be accepted like any other."""
        attempts = []
        for key, code in self._verdicts.proven(self.suspects).items():
            suspect = self.suspects.pop(key)
            with spark_errors(f"the verdict on shard {suspect.name}"):
                attempts.append(self._labeller.condemn(suspect, code))
            self._work.reporter.advance(suspect.documents)
        return attempts

    def _died(self, shard: Shard, death: Death, pending: deque[Shard]) -> None:
        code: Code = "timed_out" if death.kind == "timed_out" else "crashed"
        step = self._verdicts.died(shard, death.executor, code, self._work.telemetry.by_executor())
        self._work.reporter.say(
            f"shard {shard.name} ({shard.documents} documents): {death.reason} on {death.where}"
            + (", so it is split" if step == "split" else "")
        )
        if step == "split":
            with spark_errors(f"the split of shard {shard.name}"):
                parts = split(self._work, self._run, shard)
            # The parts first: what labels next to a death tells whose fault it was.
            pending.extendleft(reversed(parts))
            return
        with spark_errors(f"counting the try of shard {shard.name}"):
            self._work.ledger.fail(self._run, shard)
        counted = replace(shard, tries=shard.tries + 1)
        if step == "again":
            pending.append(counted)
        else:
            self.suspects[counted.shard_id] = counted
