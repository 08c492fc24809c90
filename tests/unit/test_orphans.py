"""Processes that die with the worker that they serve, and those that have nothing to do with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakelabel_udfs import orphans
from lakelabel_udfs.orphans import WORKER, die_with_worker, guard_children, guarded

# What vLLM does in each of its processes: the plugin first, then work that never ends.
_CORE = """
import os, subprocess, sys, time
from lakelabel_udfs.orphans import die_with_worker
die_with_worker()
{more}
os.write(1, b'%d\\n' % os.getpid())
time.sleep(120)
"""
_WORKER = """
import multiprocessing, os, subprocess, sys, time
from lakelabel_udfs.orphans import guard_children
{first}
{start}
time.sleep(120)
"""
_SPAWN = "subprocess.Popen([sys.executable, '-c', {program!r}])"
_FORK = """
if not os.fork():
    os.write(1, b'%d\\n' % os.getpid())
    time.sleep(120)
"""


def run(
    program: str, children: int, environment: dict[str, str] | None = None
) -> tuple[subprocess.Popen[str], list[int]]:
    """A worker, and the pids that its descendants print once they are up."""
    worker = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
    assert worker.stdout is not None
    return worker, [int(worker.stdout.readline()) for _ in range(children)]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone_within(seconds: float, pids: list[int]) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not any(map(lives, pids)):
            return True
        time.sleep(0.05)
    return False


def end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.wait()
    assert worker.stdout is not None
    worker.stdout.close()


@pytest.mark.parametrize(
    ("start", "children"),
    [
        (_SPAWN.format(program=_CORE.format(more="")), 1),
        (_SPAWN.format(program=_CORE.format(more=_SPAWN.format(program=_CORE.format(more="")))), 2),
        (_SPAWN.format(program=_CORE.format(more=_FORK)), 2),
        (_FORK, 1),
    ],
    ids=["spawned", "spawned by a spawned one", "forked by a spawned one", "forked"],
)
def test_an_engines_processes_go_with_their_worker(start: str, children: int) -> None:
    """Core and tensor parallel workers, however they were started, and although the worker had no time to end them."""
    worker, pids = run(_WORKER.format(first="guard_children()", start=start), children)
    try:
        assert all(map(lives, pids))
        end(worker)
        assert gone_within(10, pids)
    finally:
        for pid in filter(lives, pids):
            os.kill(pid, signal.SIGKILL)


def test_a_process_that_comes_up_after_its_worker_ended_ends_itself() -> None:
    """Importing torch takes seconds, and a worker can be killed meanwhile."""
    worker = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    late = subprocess.run(
        [sys.executable, "-c", "from lakelabel_udfs.orphans import die_with_worker; die_with_worker()"],
        env=os.environ | {WORKER: worker.stdout.strip()},
    )
    assert late.returncode == -signal.SIGKILL


@pytest.mark.parametrize("value", [None, "", "none"])
def test_a_vllm_of_somebody_elses_is_left_alone(value: str | None) -> None:
    """Where this package is merely installed, its plugin does nothing: the child lives on as its parent would have it."""
    environment = {name: told for name, told in os.environ.items() if name != WORKER}
    environment |= {} if value is None else {WORKER: value}
    start = _SPAWN.format(program=_CORE.format(more=""))
    worker, pids = run(_WORKER.format(first="", start=start), 1, environment)
    end(worker)
    try:
        assert not gone_within(1, pids)
    finally:
        os.kill(pids[0], signal.SIGKILL)


def test_the_worker_itself_is_not_bound_to_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM loads its plugins in the worker too, whose parent is Spark's affair."""

    def fail(_: object) -> None:
        raise AssertionError("it was armed")

    monkeypatch.setenv(WORKER, str(os.getpid()))
    monkeypatch.setattr(orphans.ctypes, "CDLL", fail)
    die_with_worker()


def test_a_list_of_plugins_that_vllm_may_load_gets_this_one_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; where there is no list, vLLM loads them all."""
    for name, value in ((WORKER, ""), ("VLLM_PLUGINS", "mine,yours")):
        monkeypatch.setenv(name, value)
    for _ in range(2):
        guard_children()
        assert os.environ["VLLM_PLUGINS"] == "mine,yours,lakelabel"
    assert os.environ[WORKER] == str(os.getpid())
    monkeypatch.delenv("VLLM_PLUGINS")
    guard_children()
    assert "VLLM_PLUGINS" not in os.environ


def test_the_plugin_is_found_by_the_packages_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules alone, as in a zip without its .dist-info folder, are not enough; other people's plugins do not count."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert not guarded()
    for distribution, name, found in (("other", "other", False), ("lakelabel", "lakelabel", True)):
        folder = tmp_path / f"{distribution}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {distribution}\nVersion: 1\n")
        (folder / "entry_points.txt").write_text(
            f"[vllm.general_plugins]\n{name} = lakelabel_udfs.orphans:die_with_worker\n"
        )
        assert guarded() is found
