"""How many engines a cluster has room for."""

from __future__ import annotations

import pytest

from lakelabel.errors import SettingsError
from lakelabel.session import engines


@pytest.mark.parametrize(
    ("executors", "room", "found"),
    [(1, 2, 1), (4, 16, 4), (4, 5, 4), (4, 4, 3), (2, 2, 1), (0, 0, 1), (0, 2, 1)],
)
def test_one_task_less_than_there_is_room_for(executors: int, room: int, found: int) -> None:
    """One engine an executor, but never so many that a beat has to wait for one of them; one before any has come."""
    assert engines(executors, room) == found


def test_one_core_is_no_cluster() -> None:
    """An engine would hold it, and the lease would be lost behind every shard."""
    with pytest.raises(SettingsError, match=r"spark\.executor\.cores is 1; give executors a core more"):
        engines(1, 1)
