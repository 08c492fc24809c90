"""Who is at fault when a worker dies: the document, or the slot that it was on. Pure; the label loop acts on it.

A shard of several documents is split at its first death, until one document is alone. That one is suspected after its
second death, and condemned only once the slot it died on has labelled something since: a slot that kills everything
condemns nothing. Where nothing else is there to prove a slot, a probe (a harmless text) does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lakelabel.shards import Shard, can_be_split

Code = Literal["crashed", "timed_out"]
Step = Literal["split", "again", "wait"]

_LEAF = 48
"""Documents of a shard that is split into single ones; larger ones take one or two splits more."""

_DEATHS_ALONE = 2
_IN_A_ROW = 3
_LOADS = 2
_PROBES = 5


def ways(documents: int, most: int) -> int:
    """Into how many parts a shard is split, so that three splits at most reach single documents: each costs a load."""
    if documents <= _LEAF:
        return documents
    if documents <= _LEAF**2:
        return math.isqrt(documents - 1) + 1
    return min(most, max(math.ceil(math.pow(documents, 1 / 3)), math.ceil(documents / _LEAF**2)))


@dataclass
class _Suspect:
    code: Code
    slots: set[str]


@dataclass
class Verdicts:
    """What is known of slots and suspects. ``slots``: how many there are. ``labelled`` in calls: documents that each slot
    has labelled so far."""

    slots: int = 1
    _in_a_row: dict[str, int] = field(default_factory=dict)
    _seen: dict[str, float] = field(default_factory=dict)
    _suspects: dict[int, _Suspect] = field(default_factory=dict)
    _loads: dict[str, int] = field(default_factory=dict)
    _probes: int = 0
    _deaths: int = 0
    """Since any slot labelled: an executor that is lost may come back under another name, and none is ever seen twice."""

    def died(self, shard: Shard, slot: str, code: Code, labelled: Mapping[str, float]) -> Step:
        """A worker died of this shard on this slot; what is to be done with the shard (``wait``: it is a suspect)."""
        self.look(labelled)
        self._in_a_row[slot] = self._in_a_row.get(slot, 0) + 1
        self._deaths += 1
        if shard.documents > 1 and can_be_split(shard.shard_id):
            return "split"
        suspect = self._suspects.setdefault(shard.shard_id, _Suspect(code, set()))
        suspect.code = code
        suspect.slots.add(slot)
        return "wait" if shard.tries + 1 >= _DEATHS_ALONE else "again"

    def load_failed(self, slot: str, labelled: Mapping[str, float]) -> bool:
        """An engine did not load on this slot; whether the slot is at fault: it has failed before and labelled nothing
        since."""
        self.look(labelled)
        self._loads[slot] = self._loads.get(slot, 0) + 1
        return self._loads[slot] >= _LOADS

    def look(self, labelled: Mapping[str, float]) -> None:
        """Take note of what the slots have labelled since the last look: who labels is in order."""
        for slot, documents in labelled.items():
            if documents > self._seen.get(slot, 0.0):
                self._seen[slot] = documents
                self._proved(slot)

    def proven(self, waiting: Mapping[int, Shard]) -> dict[int, Code]:
        """Those of the waiting suspects that no slot is left to blame for, with what they are quarantined as."""
        return {
            key: self._suspects[key].code for key in waiting if key in self._suspects and not self._suspects[key].slots
        }

    def wants_probe(self, idle: bool) -> bool:
        """Whether a slot must be probed: one died several times in a row, or all of them did, or (``idle``) nothing else can
        clear it."""
        doubted = {slot for suspect in self._suspects.values() for slot in suspect.slots} if idle else set()
        in_a_row = any(times >= _IN_A_ROW for times in self._in_a_row.values())
        return bool(doubted) or in_a_row or self._deaths >= _IN_A_ROW * self.slots

    def probed(self, labelled: Mapping[str, float]) -> None:
        """A probe went well, somewhere: Spark gives it to any slot that is free. A slot that many of them did not reach is
        no longer there to be blamed."""
        self.look(labelled)
        self._probes += 1
        if self._probes >= _PROBES * self.slots:
            for slot in list(self._in_a_row):
                self._proved(slot)
            self._probes = 0

    def _proved(self, slot: str) -> None:
        self._in_a_row.pop(slot, None)
        self._loads.pop(slot, None)
        self._deaths = 0
        for suspect in self._suspects.values():
            suspect.slots.discard(slot)
        if not self._in_a_row:
            self._probes = 0
