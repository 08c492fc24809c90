"""What is left of a real engine whose worker is killed while it labels: nothing, whatever processes it consists of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lakelabel_udfs.lineage import arguments
from lakelabel_udfs.orphans import guarded
from tests.road import Road
from tests.spark.rebuilt import assert_states_follow_from_facts

_SECONDS = 10

# A worker as Spark would have it, without Spark: it labels for ever and says when it has begun.
_WORKER = """
import itertools, os, sys
from benchmarks.scores import prompt_of
from lakelabel_udfs.engines.vllm import LoadedVllm
from lakelabel_udfs.specs import EngineSpec
from lakelabel_udfs.window import label_stream

if __name__ == "__main__":
    spec = EngineSpec("vllm", sys.argv[1], "tiny", None, max_model_len=512, tensor_parallel_size=int(sys.argv[2]))
    rows = ((number, f"document {number}") for number in itertools.count())
    for number, outcome in label_stream(LoadedVllm(spec).bind(prompt_of(("invoice", "other"))), rows):
        if number == 500:
            print("labels", flush=True)
"""


def descendants(pid: int) -> set[int]:
    """The pids below a process."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, _, rest = stat.read_text().partition(" ")
            children.setdefault(int(rest.rpartition(")")[2].split()[1]), []).append(int(number))
    found: set[int] = set()
    below = [pid]
    while below:
        below = [child for parent in below for child in children.get(parent, ())]
        found.update(below)
    return found


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextmanager
def all_gone(pids: set[int]) -> Iterator[None]:
    """After the block none of the processes is left within 10 s; those that are left are ended, and the test fails."""
    yield
    until = time.monotonic() + _SECONDS
    while any(map(lives, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    left = {pid: arguments(pid) for pid in pids if lives(pid)}
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == {}


@pytest.mark.parametrize(
    ("multiprocessing", "width"),
    [pytest.param("0", 1, marks=pytest.mark.slow), ("1", 1), pytest.param("1", 2, marks=pytest.mark.slow)],
    ids=["core in the worker", "core of its own", "core and two tensor parallel workers"],
)
def test_a_killed_worker_leaves_no_process_of_its_engine(tiny_model: Path, multiprocessing: str, width: int) -> None:
    """However many there are, and although none of them was told."""
    assert guarded(), "the plugin is not installed; run make setup"
    with subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(tiny_model), str(width)],
        stdout=subprocess.PIPE,
        text=True,
        # Two tensor parallel workers are bound to two NUMA nodes by default, which few machines have.
        env=os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": multiprocessing, "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "labels\n"
        engine = {worker.pid} | descendants(worker.pid)
        assert len(engine) > (width if multiprocessing == "1" else 0)
        with all_gone(engine):
            worker.kill()
            worker.wait()


@pytest.mark.slow
@pytest.mark.parametrize("multiprocessing", ["0", "1"], ids=["core in the worker", "core of its own"])
def test_a_python_worker_of_spark_is_killed_while_it_labels(
    road: Road, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, multiprocessing: str
) -> None:
    """Within 10 s nothing is left of its engine, and the run itself goes on to its end."""
    # Part of what Spark tells its workers' daemon, so that this run gets one of its own.
    environment = road.spark.sparkContext.environment
    monkeypatch.setitem(environment, "VLLM_ENABLE_V1_MULTIPROCESSING", multiprocessing)
    monkeypatch.setitem(environment, "LAKELABEL_TEST", road.folder.name)
    before = workers()
    road.write([(f"d{number}", f"document {number} about " + "a thing " * 150) for number in range(1000)])
    road.settings["engine"] = {"kind": "vllm", "model": str(tiny_model), "max_model_len": 512}
    thread = threading.Thread(target=road.run, args=["queue.shard_tokens=50000"], daemon=True)
    thread.start()
    facts = road.folder / "out" / "outcomes"
    until = time.monotonic() + 240
    while not any(facts.glob("prompt_version=*/**/*.parquet")):
        assert thread.is_alive() and time.monotonic() < until
        time.sleep(0.05)
    labelling = {pid for pid in workers() - before if "/libtorch_cpu" in Path(f"/proc/{pid}/maps").read_text()}
    engine = labelling.union(*map(descendants, labelling))
    assert len(engine) > int(multiprocessing)
    worked = seconds_of(engine)
    while seconds_of(engine) < worked + 0.3:  # no longer between two shards
        assert thread.is_alive()
        time.sleep(0.02)
    with all_gone(engine):
        for pid in labelling:
            os.kill(pid, signal.SIGKILL)
    thread.join(300)
    assert not thread.is_alive()
    assert len(road.labels()) == 1000
    assert_states_follow_from_facts(road)


def workers() -> set[int]:
    """The pids of this session's Python workers, and of the daemons that forked them."""
    return {pid for pid in descendants(os.getpid()) if "pyspark.daemon" in arguments(pid)}


def seconds_of(pids: set[int]) -> float:
    """The processor's seconds that the processes have had."""
    ticks = sum(sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) for pid in pids)
    return ticks / os.sysconf("SC_CLK_TCK")
