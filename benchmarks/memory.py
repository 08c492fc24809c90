"""Does memory grow with the table? Peak resident memory of a whole run, JVM and Python, at two sizes of the source.

    .venv/bin/python benchmarks/memory.py [--documents 200000]

Runs the real command line with the fake engine over N and 2N small documents, each from nothing, and samples the resident
memory of the process and all its children (shared pages count in each). Prints a table, and as the last line of stdout one
JSON object; exits with 1 where 2N needs more than 1.1 times what N needs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

_ALLOWED = 1.1
_EVERY_SECONDS = 0.2


def main() -> int:
    """Measure both sizes and compare them."""
    parser = argparse.ArgumentParser(description="Peak memory of a run over N and over 2N documents.")
    parser.add_argument("--documents", type=int, default=200_000, help="N")
    documents = parser.parse_args().documents
    measured = []
    with tempfile.TemporaryDirectory(prefix="lakelabel-memory-") as folder:
        for n in (documents, 2 * documents):
            conf = prepare(Path(folder) / str(n), n)
            report, peak, seconds = run(conf)
            settled = report["documents"]["labeled"] + report["documents"]["quarantined"]
            assert settled == n, f"{settled} of {n} documents were settled"
            measured.append({"documents": n, "peak_mib": round(peak / 2**20), "seconds": round(seconds, 1)})
            print(f"{n:>10} documents  {peak / 2**20:8.0f} MiB at the peak  {seconds:7.1f} s", flush=True)
    ratio = measured[1]["peak_mib"] / measured[0]["peak_mib"]
    print(f"twice the documents, {ratio:.3f} times the memory (at most {_ALLOWED} allowed)")
    print(json.dumps({"ratio": round(ratio, 3), "runs": measured}))
    return 0 if ratio <= _ALLOWED else 1


def prepare(folder: Path, n: int) -> Path:
    """Write a source of n documents of about 60 words and settings for it; in a process of its own, which ends."""
    folder.mkdir()
    source = (
        "from lakelabel.session import open_session\n"
        f"rows = open_session().range({n}).selectExpr('CAST(id AS STRING) AS id', "
        "\"concat('document ', id, ' ', repeat(concat(md5(CAST(id AS STRING)), ' says so. '), 8)) AS text\")\n"
        f"rows.write.format('delta').save({str(folder / 'documents')!r})\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (folder / "task.yml").write_text("name: kind\ninstruction: What is it?\nlabels: [invoice, contract, manual]\n")
    conf = folder / "conf.yml"
    conf.write_text(
        f"source: {{table: {folder}/documents, id: id, text: '{{{{ text }}}}'}}\n"
        f"task: task.yml\ntables: {{root: {folder}/out}}\nengine: {{kind: fake}}\nqueue: {{shard_tokens: 2000000}}\n"
    )
    return conf


def run(conf: Path) -> tuple[dict[str, dict[str, int]], int, float]:
    """Run classify; its report, the peak in bytes, and its wall seconds."""
    command = [sys.executable, "-m", "lakelabel.cli", "classify", "--conf", str(conf), "--json"]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = Peak(process.pid)
        peak.start()
        out, _ = process.communicate()
        peak.ended.set()
    if process.returncode != 0:
        raise SystemExit(f"classify ended with {process.returncode}")
    return json.loads(out.splitlines()[-1]), peak.bytes, time.monotonic() - began


class Peak(threading.Thread):
    """Samples the resident memory of a process tree until ``ended`` is set."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.root = psutil.Process(pid)
        self.ended = threading.Event()
        self.bytes = 0

    def run(self) -> None:
        """Keep the highest sum seen."""
        while not self.ended.wait(_EVERY_SECONDS):
            self.bytes = max(self.bytes, self.sample())

    def sample(self) -> int:
        """Bytes resident now; a process that ends between two reads counts nothing."""
        try:
            tree = [self.root, *self.root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return 0
        return sum(map(resident, tree))


def resident(process: psutil.Process) -> int:
    """Bytes that a process has resident, 0 once it is gone."""
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


if __name__ == "__main__":
    sys.exit(main())
