"""Signals, in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

_BEGIN = """
import os, signal, threading, time
from lakelabel.interrupt import Interrupt
interrupt = Interrupt()
told = threading.Event()
def stop():
    print("stop", threading.current_thread().name, interrupt.asked, flush=True)
    told.set()
interrupt.on_stop = stop
interrupt.install()
"""


def ended(program: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a program that is given 20 s."""
    done = subprocess.run([sys.executable, "-c", _BEGIN + program], capture_output=True, text=True, timeout=20)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_breaks_nothing(number: signal.Signals) -> None:
    """What is under way goes on; on_stop is called on a thread of its own, when the wish can already be seen."""
    program = (
        "print(interrupt.asked)\n"
        f"os.kill(os.getpid(), {int(number)})\n"
        "told.wait(10)\n"
        "print(interrupt.asked, interrupt.wait(0))\n"
    )
    assert ended(program) == (0, "False\nstop lakelabel-stop True\nTrue True\n", "")


def test_the_wish_is_repeated() -> None:
    """Where on_stop cancels what is under way, something else may begin just afterwards."""
    program = (
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "for _ in range(2):\n"
        "    told.wait(10)\n"
        "    told.clear()\n"
        "interrupt.on_stop = lambda: None\n"
        "print('end')\n"
    )
    assert ended(program) == (0, 2 * "stop lakelabel-stop True\n" + "end\n", "")


def test_a_sleep_ends_with_the_first_signal() -> None:
    """A driver that waits for a lease does not wait on."""
    program = (
        "threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()\n"
        "began = time.monotonic()\n"
        "found = interrupt.wait(15), time.monotonic() - began < 10\n"
        "told.wait(10)\n"
        "print(*found)\n"
    )
    assert ended(program) == (0, "stop lakelabel-stop True\nTrue True\n", "")


def test_a_signal_in_the_midst_of_a_sleep_that_begins_never_locks_up() -> None:
    """The handler takes no lock that the interrupted code may hold."""
    program = (
        "def storm():\n"
        "    time.sleep(0.2)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "threading.Thread(target=storm).start()\n"
        "with interrupt._asked._cond:\n"
        "    time.sleep(1)\n"
        "told.wait(10)\n"
        "print(interrupt.asked)\n"
    )
    code, out, _ = ended(program)
    assert (code, out.splitlines()[-1]) == (0, "True")


def test_the_second_signal_is_an_error_wherever_the_process_is() -> None:
    """Blocks are left as by any other error."""
    program = (
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "told.wait(10)\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(15)\n"
        "except KeyboardInterrupt:\n"
        "    print('left')\n"
    )
    code, out, _ = ended(program)
    assert (code, out.splitlines()[-1]) == (0, "left")


def test_the_third_signal_ends_the_process_whatever_hangs() -> None:
    """Also a thread that the interpreter would wait for: exit 1, and one line."""
    program = (
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "print('up', flush=True)\n"
        "while True:\n"
        "    try:\n"
        "        time.sleep(0.1)\n"
        "    except KeyboardInterrupt:\n"
        "        print('second', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", _BEGIN + program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in ("up\n", "stop lakelabel-stop True\n", "second\n"):
        assert process.stdout.readline() == line
        process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    _, stderr = process.communicate(timeout=20)
    assert time.monotonic() - began < 10
    assert (process.returncode, stderr) == (1, "error: ended at once; start again to go on\n")


def test_a_wish_from_within_the_process_is_as_good_as_a_signal() -> None:
    """It is seen, and on_stop has been called when it returns."""
    assert ended("interrupt.ask()\nprint(interrupt.asked)\n") == (0, "stop MainThread True\nTrue\n", "")
