"""The watchdog, in processes of their own: what it does to a hang is the end of its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lakelabel_udfs.watchdog import HANG, Steps, watched

_BEGIN = "import ctypes, faulthandler, os, time\nfrom lakelabel_udfs.watchdog import watched\n"


def ended(program: str, **environment: str) -> tuple[int, str, float]:
    """Exit code, stderr and seconds of a program that is given 30 s."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + program],
        capture_output=True,
        text=True,
        timeout=30,
        env=os.environ | {"PYTHON_FAULTHANDLER_DIR": ""} | environment,
    )
    return done.returncode, done.stderr, time.monotonic() - began


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The folder in which Spark looks for a worker's last words."""
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def test_a_step_that_does_not_return_ends_the_process(logs: Path) -> None:
    """By SIGKILL, soon after the time is up, with the stacks of all threads on stderr, and a line there that Spark quotes."""
    program = "def hang():\n    time.sleep(60)\nwith watched(1.0) as steps, steps:\n    hang()\n"
    code, stderr, seconds = ended(program, PYTHON_FAULTHANDLER_DIR=str(logs))
    assert code == -signal.SIGKILL
    assert 1 < seconds < 10
    assert " in hang" in stderr
    assert stderr.splitlines()[-1] == "lakelabel: the engine did not return from a step for 1 s"
    (log,) = logs.iterdir()
    assert log.name.isdecimal()
    assert log.read_text() == "lakelabel: the engine did not return from a step for 1 s\n"
    assert HANG.search(log.read_text())


def test_a_step_that_holds_the_gil_ends_the_process_as_well(logs: Path) -> None:
    """No Python runs any more, so the time is kept elsewhere; the stacks are what Spark quotes."""
    program = "with watched(1.0) as steps, steps:\n    ctypes.PyDLL(None).sleep(60)\n"
    code, _, seconds = ended(program, PYTHON_FAULTHANDLER_DIR=str(logs))
    assert code == 1
    assert 1 < seconds < 10
    (log,) = logs.iterdir()
    assert HANG.search(log.read_text())
    assert "in <module>" in log.read_text()


def test_without_a_folder_of_sparks_everything_is_said_on_stderr() -> None:
    """Both ends; nothing is written anywhere else."""
    for hang in ("time.sleep(60)", "ctypes.PyDLL(None).sleep(60)"):
        code, stderr, _ = ended(f"with watched(0.5) as steps, steps:\n    {hang}\n", PYTHON_FAULTHANDLER_DIR="/nowhere")
        assert code != 0
        assert HANG.search(stderr)
        assert "in <module>" in stderr


@pytest.mark.parametrize(
    ("end", "stack"),
    [
        ("os.kill(os.getpid(), 9)", False),
        ("ctypes.string_at(0)", True),
        ("os.abort()", True),
        ("with watched(0.5) as steps, steps: time.sleep(60)", False),
    ],
)
def test_whatever_kills_a_worker_spark_can_say_where_it_was(logs: Path, end: str, stack: bool) -> None:
    """The line stands first in the file that Spark quotes, above the stack of a crash, also where Spark has registered
    that file before."""
    program = (
        "from lakelabel_udfs.watchdog import signed\n"
        "log = open(os.path.join(os.environ['PYTHON_FAULTHANDLER_DIR'], str(os.getpid())), 'w')\n"
        "faulthandler.enable(log)\n"
        f"with signed('h executor 3'):\n    {end}\n"
    )
    code, _, _ = ended(program, PYTHON_FAULTHANDLER_DIR=str(logs))
    assert code < 0
    (log,) = logs.iterdir()
    line, *rest = log.read_text().splitlines()
    assert line == "lakelabel: a worker of [h executor 3]"
    assert any("in <module>" in told for told in rest) == stack
    assert bool(HANG.search(log.read_text())) == ("watched" in end)


def test_a_worker_is_signed_for_where_nobody_quotes_it() -> None:
    """Without a folder of Spark's nothing is written, and nothing breaks."""
    program = "from lakelabel_udfs.watchdog import signed\nwith signed('h executor 3'): print('in')\nprint('out')\n"
    code, stderr, _ = ended(program, PYTHON_FAULTHANDLER_DIR="/nowhere")
    assert (code, stderr) == (0, "")


def test_an_engine_that_is_slow_but_moves_is_left_alone() -> None:
    """Each step is measured by itself, and neither loads nor waits for rows are steps."""
    program = (
        "with watched(0.8) as steps:\n"
        "    time.sleep(1.5)\n"
        "    for _ in range(6):\n"
        "        with steps:\n"
        "            time.sleep(0.4)\n"
        "    time.sleep(1.5)\n"
        "assert 2.4 < steps.seconds < 4, steps.seconds\n"
    )
    code, stderr, _ = ended(program)
    assert (code, stderr) == (0, "")


def test_nothing_is_left_armed_after_the_block() -> None:
    """Not after an error either: later work may take as long as it likes, and hold the GIL."""
    program = (
        "try:\n"
        "    with watched(0.4) as steps:\n"
        "        with steps:\n"
        "            raise OSError\n"
        "except OSError:\n"
        "    pass\n"
        "ctypes.PyDLL(None).sleep(2)\n"
        "with steps:\n"
        "    time.sleep(2)\n"
    )
    code, stderr, _ = ended(program)
    assert (code, stderr) == (0, "")


def test_a_process_that_was_stopped_for_a_while_is_not_taken_for_a_hang() -> None:
    """The seconds that it slept through, within the time that a step may take, are no stall of the engine's."""
    program = "print('on', flush=True)\nwith watched(4.0) as steps, steps:\n    time.sleep(5.5)\n"
    process = subprocess.Popen([sys.executable, "-c", _BEGIN + program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGSTOP)
    time.sleep(4.2)  # the step is now older than it may be, and has most of a second to go
    process.send_signal(signal.SIGCONT)
    assert process.wait(10) == 0


def test_no_thread_stays_behind() -> None:
    """A worker lives through thousands of tasks."""
    before = threading.active_count()
    for _ in range(3):
        with watched(600):
            assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_the_seconds_of_steps_are_summed_up_to_an_error() -> None:
    """What a failed step took is counted too."""

    def fail() -> None:
        time.sleep(0.01)
        raise OSError("gone")

    steps = Steps()
    with pytest.raises(OSError, match="gone"), steps:
        fail()
    assert 0.01 <= steps.seconds < 5
    assert steps.since is None
