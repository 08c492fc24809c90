"""Whether an owner that ran here is still there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lakelabel.host import Here

_READ = "import json, sys; from lakelabel.host import Here; print(json.dumps(vars(Here.read())), flush=True); sys.stdin.read()"


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """Another process on this host, with the row that it would leave."""
    process = subprocess.Popen([sys.executable, "-c", _READ], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process, json.loads(process.stdout.readline())
    process.kill()
    process.communicate()


def told(owner: Any) -> tuple[bool, bool]:
    here = Here.read()
    return here.is_gone(owner), here.is_running(owner)


def test_a_process_is_running_until_it_ends(other: tuple[subprocess.Popen[str], Any]) -> None:
    """It has ended as soon as it is dead, whether or not its parent has looked."""
    process, row = other
    assert row["pid"] == process.pid
    assert told(row) == (False, True)
    process.kill()
    end = time.monotonic() + 10
    while told(row) == (False, True) and time.monotonic() < end:
        time.sleep(0.01)
    assert told(row) == (True, False)
    process.wait()
    assert told(row) == (True, False)


def test_a_stopped_process_is_neither_gone_nor_running(other: tuple[subprocess.Popen[str], Any]) -> None:
    """It may go on at any moment, and may never: its beats have to say."""
    process, row = other
    process.send_signal(signal.SIGSTOP)
    end = time.monotonic() + 10
    while told(row) == (False, True) and time.monotonic() < end:
        time.sleep(0.01)
    assert told(row) == (False, False)
    process.send_signal(signal.SIGCONT)
    while told(row) == (False, False) and time.monotonic() < end:
        time.sleep(0.01)
    assert told(row) == (False, True)


def test_another_process_under_the_same_pid_is_not_the_owner() -> None:
    """Pids come again; a start time tells them apart."""
    row = vars(Here.read())
    assert row["pid"] == os.getpid()
    assert told(row) == (False, False)
    assert told({**row, "pid_started": row["pid_started"] - 1}) == (True, False)


def test_this_process_itself_is_told_by_its_beats_alone() -> None:
    """A lease that it took and never gave back, as a run that was interrupted in a notebook leaves it, holds up nobody."""
    assert told(vars(Here.read())) == (False, False)


def test_nothing_is_known_of_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor of another boot of this one, whose pids mean nothing: neither gone nor running."""
    row = vars(Here.read())
    assert told({**row, "boot_id": "elsewhere"}) == (False, False)
    monkeypatch.setenv("LAKELABEL_HOST", "elsewhere")
    assert (Here.read().host, Here.read().boot_id) == ("elsewhere", "elsewhere")
    assert told(row) == (False, False)
    assert told({**vars(Here.read()), "pid": os.getppid(), "pid_started": 0}) == (True, False)


def test_a_name_with_brackets_and_spaces_confuses_nothing() -> None:
    """The kernel writes the command's name in brackets, and it may be anything."""
    program = "import ctypes; ctypes.CDLL(None).prctl(15, b') Z 1 (x y', 0, 0, 0);" + _READ
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    row = json.loads(process.stdout.readline())
    assert told(row) == (False, True)
    process.communicate("")
    assert told(row) == (True, False)
