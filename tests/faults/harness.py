"""A harness that breaks real processes: the command line on a fake engine, started, hurt, started again, and checked.

Nothing here starts a JVM of its own beside the commands: sources are written and states are read by delta-rs, an
implementation of Delta that shares no code with what wrote them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from deltalake import DeltaTable, write_deltalake

from lakelabel.label import PROBE
from lakelabel.points import FAULT, LOG
from lakelabel_udfs.engines.fake import INFERENCES, LOADS
from lakelabel_udfs.schema import TABLES
from tests.faults.documents import MAX_MODEL_LEN, TASK, digest, verdict

# Many small queries, each run once or twice: compiling Java for them takes longer than interpreting them.
_INTERPRETED = "spark.sql.codegen.wholeStage false\nspark.sql.codegen.factoryMode NO_CODEGEN\n"

# To compile bytecode well pays only in a JVM that lives for longer.
QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"

_PR_SET_PDEATHSIG = 1

_SECONDS = 400.0
"""How long a start may take, on a machine that has other things to do as well."""


class Start:
    """One start of the command, in a session of its own: whatever it starts can be found, and ends with it. Where Spark
    ``logs`` to the same stderr, traces there are Spark's."""

    def __init__(self, arguments: list[str], folder: Path, environment: Mapping[str, str], logs: bool) -> None:
        folder.mkdir()
        self._logs = logs
        self._log, self._out, self._err = folder / "points", folder / "out", folder / "err"
        self._log.touch()
        self.began = time.monotonic()
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                arguments,
                env={**os.environ, **environment, LOG: str(self._log)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=_dies_with_the_tests,
            )

    @property
    def pid(self) -> int:
        """The driver's; its process group and its session have the same number."""
        return self.process.pid

    @property
    def points(self) -> list[str]:
        """The points that it has reached."""
        return self._log.read_text().splitlines()

    @property
    def stderr(self) -> str:
        """What it has said."""
        return self._err.read_text(errors="replace")

    @property
    def report(self) -> dict[str, Any]:
        """The last line of its stdout."""
        return dict(json.loads(self._out.read_text().splitlines()[-1]))

    def wait(self, seconds: float = _SECONDS) -> int:
        """Its exit code, negative where a signal ended it."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"still running after {seconds:.0f} s, at {self.points[-3:]}:\n{self.stderr}"
            ) from None

    def ends(self, code: int, seconds: float = _SECONDS) -> Start:
        """Wait for it, and check how it ends: with no trace of Python or Java of ours, whatever the reason."""
        found = self.wait(seconds)
        assert found == code, f"exit {found}, not {code}, after {self.points[-3:]}:\n{self.stderr}"
        assert self._logs or "Traceback" not in self.stderr, self.stderr
        assert self._logs or "\tat " not in self.stderr, self.stderr
        return self

    def is_killed(self) -> Start:
        """Wait until a SIGKILL has ended it."""
        return self.ends(-signal.SIGKILL)

    def reaches(self, point: str, nth: int = 1, seconds: float = _SECONDS) -> Start:
        """Wait until it has reached a point for the nth time."""

        def reached() -> bool:
            there = self.points.count(point) >= nth
            assert there or self.process.poll() is None, f"ended before {point}: {self.points[-3:]}\n{self.stderr}"
            return there

        until(reached, f"{point} in {self.points[-3:]}", seconds)
        return self

    def kill(self, everything: bool = False) -> Start:
        """SIGKILL the driver, or it with its JVM."""
        return self.signal(signal.SIGKILL, everything).is_killed()

    def signal(self, number: int, group: bool = False) -> Start:
        """Send a signal to the driver, or to its group: the driver and its JVM."""
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.pid, number)
        return self

    def is_stopped(self) -> bool:
        """Whether the driver stands still."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def family(self) -> dict[int, str]:
        """Every process of its session that is there, by pid, as it was called."""
        found = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = status.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.pid and fields[0] != "Z":
                    command = (status.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(status.parent.name)] = command
        return found


def _dies_with_the_tests() -> None:
    """Let the kernel end a start whose test was ended before it could do so itself."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def until(happened: Callable[[], bool], what: str, seconds: float = _SECONDS) -> None:
    """Wait until something has happened. Raises AssertionError after so many seconds."""
    latest = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < latest, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)


@dataclass
class Site:
    """A folder with a source, settings, tables and everything that is counted about the starts on them.

    ``without`` are documents whose inference never ends; ``pace`` is milliseconds a document.
    """

    folder: Path
    documents: dict[str, str]
    shards: int = 44
    settings: dict[str, Any] = field(default_factory=dict)
    without: Container[str] = ()
    pace: int = 2
    starts: list[Start] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # A text of this corpus is estimated at 4 tokens; ranges of doc_hash are never quite even.
        tokens = max(1, 4 * len(self.documents) // self.shards)
        self.settings = {
            "source": {"table": str(self.folder / "documents"), "id": "id", "text": "{{ text }}"},
            "task": "task.yml",
            "tables": {"root": str(self.root)},
            "engine": {
                "kind": "fake",
                "max_model_len": MAX_MODEL_LEN,
                "extra": {"milliseconds_per_document": self.pace},
            },
            "queue": {"shard_tokens": tokens, "commit_every_seconds": 2},
            **self.settings,
        }
        (self.folder / "task.yml").write_text(yaml.safe_dump(TASK))
        (self.folder / "spark").mkdir()
        (self.folder / "spark" / "spark-defaults.conf").write_text(_INTERPRETED)
        self.write(self.documents)

    @property
    def root(self) -> Path:
        """The folder of the output tables."""
        return self.folder / "out"

    @property
    def conf(self) -> Path:
        """The settings' file."""
        return self.folder / "conf.yml"

    # The source.

    def write(self, documents: dict[str, str], append: bool = False, forget: bool = False) -> None:
        """Overwrite the source, or append to it; with ``forget`` the table is dropped first, and becomes another one."""
        source = self.folder / "documents"
        if forget:
            shutil.rmtree(source)
        schema = pa.schema([("id", pa.string()), ("text", pa.string())])
        rows = pa.table({"id": list(documents), "text": list(documents.values())}, schema)
        if append:
            write_deltalake(source, rows, mode="append")
            self.documents = {**self.documents, **documents}
        else:
            write_deltalake(source, rows, mode="overwrite")
            self.documents = documents
        self.sent |= {
            digest(text)
            for doc_id, text in documents.items()
            if doc_id not in self.without and not verdict(text).startswith("!")
        }

    # Starts.

    def start(self, *overrides: str, fault: str = "", command: str = "classify", **environment: str) -> Start:
        """Start a command in the background."""
        words = [sys.executable, "-m", "lakelabel.cli", *command.split(), *self.arguments(*overrides)]
        return self.started(words, {FAULT: fault, **environment})

    def arguments(self, *overrides: str) -> list[str]:
        """What follows the name of a command."""
        self.conf.write_text(yaml.safe_dump(self.settings))
        return ["--conf", str(self.conf), *(word for one in overrides for word in ("--set", one)), "--json"]

    def started(self, words: list[str], environment: Mapping[str, str], logs: bool = False) -> Start:
        """Start words that are already whole; ``logs`` where Spark keeps its log on stderr."""
        ours = {
            INFERENCES: str(self.folder / "inferences"),
            LOADS: str(self.folder / "loads"),
            "SPARK_SUBMIT_OPTS": QUICK_TO_START,
            "SPARK_CONF_DIR": str(self.folder / "spark"),
            "SPARK_LOCAL_DIRS": str(self.folder / "scratch"),
        }
        start = Start(words, self.folder / f"start{len(self.starts)}", {**ours, **environment}, logs)
        self.starts.append(start)
        return start

    def runs(self, *overrides: str, **environment: str) -> Start:
        """Start it and wait for an end in good order."""
        return self.start(*overrides, **environment).ends(0)

    def breaks(self, point: str, action: str, *overrides: str, nth: int = 1, **environment: str) -> Start:
        """Start it with a kill point, and wait until that has ended it."""
        start = self.start(*overrides, fault=f"{point}:{action}:{nth}", **environment).is_killed()
        assert point in start.points, start.stderr
        return start

    def end(self) -> None:
        """End whatever is left of every start."""
        for start in self.starts:
            for pid in start.family():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            start.process.wait()
        # Every start has copied the jars there, and a killed one leaves them.
        shutil.rmtree(self.folder / "scratch", ignore_errors=True)

    # What was counted, and what stands in the tables.

    def lines(self, name: str) -> list[str]:
        """The lines of one of the files that workers count in."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    @property
    def inferred(self) -> list[str]:
        """Digests of the texts inferred so far, without the probes of slots."""
        return [line for line in self.lines("inferences") if line != digest(PROBE)]

    @property
    def points(self) -> Counter[str]:
        """How often each point was reached, over all starts."""
        return Counter(point for start in self.starts for point in start.points)

    def rows(self, table: str, *columns: str) -> list[dict[str, Any]]:
        """Rows of an output table as delta-rs reads them."""
        return list(DeltaTable(self.root / table).to_pyarrow_table(columns=list(columns)).to_pylist())

    def versions(self) -> dict[str, int]:
        """Newest version of each output table."""
        return {table.name: DeltaTable(self.root / table.name).version() for table in TABLES}

    def states(self) -> Counter[tuple[str, str]]:
        """How often each (doc_id, verdict) stands in the two states, resolved failures left out."""
        labels = [(row["doc_id"], row["label"]) for row in self.rows("labels", "doc_id", "label")]
        failures = [
            (row["doc_id"], "!" + row["failure_code"])
            for row in self.rows("quarantine", "doc_id", "failure_code", "status")
            if row["status"] == "open"
        ]
        return Counter(labels + failures)

    def infer_shards(self) -> list[int]:
        """Documents of every shard that an engine was to label, of all runs."""
        return [row["documents"] for row in self.rows("shards", "kind", "documents") if row["kind"] == "infer"]

    def lease_event(self) -> str:
        """The newest event of the lease."""
        rows = self.rows("leases", "epoch", "at", "event")
        return str(max(rows, key=lambda row: (row["epoch"], row["at"]))["event"])


@contextlib.contextmanager
def opened(folder: Path, documents: dict[str, str], **options: Any) -> Iterator[Site]:
    """A site whose processes end with the block."""
    made = Site(folder, documents, **options)
    try:
        yield made
    finally:
        made.end()
