"""`python3 -m tools.setup`: prepare the checkout, skipping what is there. Standard library only: it runs before all else."""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

from tools.setup.assets import jars, java, model
from tools.setup.environment import environment, project
from tools.setup.steps import StepFailed, say, take


def main(root: Path) -> int:
    """Take all steps in `root`, one setup at a time; return the exit code."""
    (root / ".cache").mkdir(exist_ok=True)
    with (root / ".cache" / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("setup: another one is at work in this checkout; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            take([step(root) for step in (environment, project, java, jars, model)], say)
        except StepFailed as failed:
            say(str(failed))
            say("setup: not finished; what was done is kept")
            return 1
        except KeyboardInterrupt:
            say("setup: interrupted; the step is done again next time")
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[2]))
