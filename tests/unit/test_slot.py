"""Which slot a task runs on, from the command lines of the processes above it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from lakelabel_udfs import lineage, slot

Above = Callable[[dict[int, list[str]]], str]


@pytest.fixture
def above(monkeypatch: pytest.MonkeyPatch) -> Iterator[Above]:
    """The slot below such processes: pid to command line, the nearest first."""

    def told(processes: dict[int, list[str]]) -> str:
        monkeypatch.setattr(slot, "ancestors", lambda: iter(processes))
        monkeypatch.setattr(slot, "arguments", processes.__getitem__)
        slot._executor.cache_clear()
        return slot.slot()

    yield told
    slot._executor.cache_clear()


DAEMON = ["python3", "-m", "pyspark.daemon", "pyspark.worker"]


def test_an_executor_is_named_as_in_sparks_messages(above: Above) -> None:
    """Host and id stand on the executor's command line; what merely quotes them, as a shell does, is none."""
    executor = [
        "java",
        "-cp",
        "x",
        "org.apache.spark.executor.CoarseGrainedExecutorBackend",
        "--driver-url",
        "spark://d",
    ]
    executor += ["--executor-id", "17", "--hostname", "10.0.0.4", "--cores", "4"]
    shell = ["bash", "-c", "java … --executor-id 18 --hostname elsewhere"]
    assert above({30: DAEMON, 20: executor, 10: shell}) == "10.0.0.4 executor 17"


def test_a_local_executor_is_the_driver(above: Above) -> None:
    """Its host is this one."""
    submit = ["java", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
    assert above({30: DAEMON, 20: submit, 10: ["python3"]}) == f"{socket.gethostname()} executor driver"


def test_without_an_executor_the_daemon_stands_for_it(above: Above) -> None:
    """An executor has one daemon, which forks all its workers."""
    assert above({30: DAEMON, 20: []}) == f"{socket.gethostname()} executor of daemon {os.getppid()}"


def test_the_gpus_of_the_task_are_part_of_the_slot(above: Above, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks of one executor may hold two devices, of which one is broken."""
    monkeypatch.setattr(slot, "task_gpus", lambda: ("2", "3"))
    assert above({20: ["java", "--executor-id", "5", "--hostname", "h"]}) == "h executor 5 gpu 2,3"


def test_ancestors_are_the_real_ones() -> None:
    """A grandchild sees its parent, then this process, whose command line it can read."""
    child = (
        "import os; from lakelabel_udfs.lineage import ancestors, arguments; a = list(ancestors());"
        "print(a[0] == os.getppid(), a[1], arguments(a[1])[0])"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    ran = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", str(os.getpid()), lineage.arguments(os.getpid())[0]]
    assert lineage.arguments(2**22 + 1) == []
