"""Kill points: the places of the code path at which a test can break this process. Unset, one costs a comparison.

Two environment variables, read once: ``LAKELABEL_FAULT`` names points and what happens there, as
``<point>:<action>[:<nth>]``, several separated by ``;`` (nth: the how-maniest time it is reached, 1 unless given);
``LAKELABEL_FAULT_LOG`` names a file that gets a line for every point that is reached.

Every Delta commit of a run has two points, ``before X`` and ``after X``, where X is ``<table>.<what>``.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

FAULT = "LAKELABEL_FAULT"
LOG = "LAKELABEL_FAULT_LOG"


class Broken(RuntimeError):
    """What the action ``raise`` raises: an error that nobody expects."""


def _raise() -> NoReturn:
    raise Broken("a kill point raised")


ACTIONS: dict[str, Callable[[], None]] = {
    "exit": lambda: os._exit(70),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    # The process group is this process, its JVM and its Python workers, where the test started it as a leader.
    "killall": lambda: os.killpg(0, signal.SIGKILL),
    "raise": _raise,
    "hang": lambda: time.sleep(1e6),
    "stop": lambda: os.killpg(0, signal.SIGSTOP),
}


def _parsed(text: str) -> dict[tuple[str, int], Callable[[], None]]:
    actions = {}
    for one in filter(None, text.split(";")):
        point, action, *nth = one.split(":")
        actions[point, int(nth[0]) if nth else 1] = ACTIONS[action]
    return actions


_actions = _parsed(os.environ.get(FAULT, ""))
_log = os.environ.get(LOG)
_times: Counter[str] = Counter()


def reach(point: str) -> None:
    """Stand at a point, and do what the environment asks for there."""
    if not _actions and _log is None:
        return
    _times[point] += 1
    if _log is not None:
        with Path(_log).open("a") as log:
            log.write(f"{point}\n")
    action = _actions.get((point, _times[point]))
    if action is not None:
        action()


@contextmanager
def around(commit: str) -> Iterator[None]:
    """The two points of a Delta commit, which is the block; nothing comes after one that failed."""
    reach(f"before {commit}")
    yield
    reach(f"after {commit}")
