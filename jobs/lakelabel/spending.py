"""What a run costs: the time that engine slots were held for it, in this start and in those before."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_LAST = 8


@dataclass
class Spending:
    """Slot-seconds of one run. ``before`` are those of earlier starts; ``budget`` is in the unit of ``price`` (an hour of
    a slot), and neither need be given."""

    price: float | None = None
    budget: float | None = None
    before: float = 0.0
    clock: Callable[[], float] = time.monotonic
    _slots: int = 0
    _holding: tuple[float, float | None] = (0.0, None)
    """Slot-seconds of the blocks that have ended, and since when one is under way: one value, for beats read it on a thread
    of their own."""
    _rates: deque[float] = field(default_factory=lambda: deque(maxlen=_LAST))

    @contextmanager
    def holding(self, slots: int) -> Iterator[None]:
        """Slots are held for the length of the block."""
        self._slots = slots
        self._holding = (self.held, self.clock())
        try:
            yield
        finally:
            self._holding = (self.held, None)

    @property
    def held(self) -> float:
        """Slot-seconds of this start so far."""
        ended, since = self._holding
        return ended + (0.0 if since is None else (self.clock() - since) * self._slots)

    @property
    def cost(self) -> float | None:
        """What the run has cost so far, all its starts together; None without a price."""
        return None if self.price is None else self.price * (self.before + self.held) / 3600

    def took(self, tokens: int, seconds: float) -> None:
        """Work of so many (estimated) tokens took so many slot-seconds: what the next is expected to cost."""
        self._rates.append(seconds / max(1, tokens))

    def expected(self, tokens: int) -> float:
        """Seconds that a slot is expected to need for so many tokens, by the slowest of the last jobs; 0 before any."""
        return max(self._rates, default=0.0) * tokens

    def allows(self, tokens: int) -> bool:
        """Whether work of so many tokens more, those in flight among them, is expected to stay within the budget."""
        return not self._is_passed_by(self.expected(tokens))

    def is_used_up(self) -> bool:
        """Whether the budget would be passed within the next second."""
        return self._is_passed_by(float(self._slots))

    def _is_passed_by(self, slot_seconds: float) -> bool:
        if self.price is None or self.budget is None:
            return False
        return self.price * (self.before + self.held + slot_seconds) / 3600 > self.budget
