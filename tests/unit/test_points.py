"""Kill points, in processes of their own, since they are read once and end their process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_PROGRAM = """
from lakelabel import points
with points.around("labels.insert"):
    print("written", flush=True)
for _ in range(3):
    with points.around("shards.accept"):
        pass
print("done", flush=True)
"""


def started(fault: str | None, log: Path | None = None, program: str = _PROGRAM) -> subprocess.Popen[str]:
    """The program as the leader of a process group, under these two variables."""
    given = {"LAKELABEL_FAULT": fault, "LAKELABEL_FAULT_LOG": None if log is None else str(log)}
    environment = {name: value for name, value in os.environ.items() if name not in given}
    environment |= {name: value for name, value in given.items() if value is not None}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def ended(fault: str | None, log: Path | None = None, program: str = _PROGRAM) -> tuple[int, str, str]:
    """Its exit code, stdout and stderr."""
    process = started(fault, log, program)
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


WHOLE = (0, "written\ndone\n", "")


@pytest.mark.parametrize("fault", [None, "", "before outcomes.infer:kill", "before shards.accept:kill:4"])
def test_what_is_not_asked_for_does_nothing(fault: str | None) -> None:
    """No variable, another point, a time that never comes."""
    assert ended(fault) == WHOLE


@pytest.mark.parametrize(
    ("action", "code"), [("exit", 70), ("kill", -signal.SIGKILL), ("killall", -signal.SIGKILL), ("raise", 1)]
)
def test_an_action_ends_the_process_at_its_point(action: str, code: int) -> None:
    """Before the commit there is nothing of it, after it all of it."""
    before, after = ended(f"before labels.insert:{action}"), ended(f"after labels.insert:{action}")
    assert before[:2] == (code, "")
    assert after[:2] == (code, "written\n")
    assert ("Broken" in after[2]) == (action == "raise")


def test_the_nth_time_and_the_log(tmp_path: Path) -> None:
    """A point counts by itself; the log has a line for each that was reached, the fatal one too."""
    log = tmp_path / "log"
    assert ended("before shards.accept:exit:2", log)[0] == 70
    assert log.read_text().splitlines() == [
        *("before labels.insert", "after labels.insert"),
        *("before shards.accept", "after shards.accept", "before shards.accept"),
    ]


def test_a_log_alone_breaks_nothing(tmp_path: Path) -> None:
    """It is how a test learns which points a run has."""
    log = tmp_path / "log"
    assert ended(None, log) == WHOLE
    assert len(log.read_text().splitlines()) == 8


def test_several_faults_are_told_apart_by_point_and_time() -> None:
    """The first that comes is the one that shows."""
    assert ended("after shards.accept:exit:3;before shards.accept:kill:2")[0] == -signal.SIGKILL
    assert ended("after shards.accept:exit:1;before shards.accept:kill:2")[0] == 70


def test_nothing_comes_after_a_commit_that_failed(tmp_path: Path) -> None:
    """`after` means that it is written."""
    log = tmp_path / "log"
    program = "from lakelabel import points\nwith points.around('labels.insert'):\n    raise OSError('disk full')\n"
    assert ended(None, log, program)[0] == 1
    assert log.read_text() == "before labels.insert\n"


def test_a_stopped_process_goes_on_when_it_is_told_to() -> None:
    """With all of its group, as a machine that was frozen does."""
    process = started("before labels.insert:stop")
    assert os.waitpid(process.pid, os.WUNTRACED)[1] & 0xFF == 0x7F
    os.killpg(process.pid, signal.SIGCONT)
    assert process.communicate(timeout=20) == ("written\ndone\n", "")


def test_killall_takes_the_children_along() -> None:
    """As the end of a machine would: a JVM and its workers are in the group."""
    program = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\n"
        "from lakelabel import points\n"
        "points.reach('before labels.insert')\n"
    )
    process = started("before labels.insert:killall", program=program)
    out, _ = process.communicate(timeout=20)
    end = time.monotonic() + 10
    while _is_alive(int(out)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _is_alive(int(out))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_hang_never_ends_by_itself() -> None:
    """The process can be killed, as anything that hangs."""
    process = started("after labels.insert:hang")
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.kill()
    assert process.communicate()[0] == ""


@pytest.mark.parametrize("fault", ["before labels.insert", "before labels.insert:explode", "x:kill:often"])
def test_a_fault_that_is_misspelt_is_no_silent_one(fault: str) -> None:
    """A test that breaks nothing would prove nothing."""
    assert ended(fault)[0] == 1
