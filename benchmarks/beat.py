"""What does a beat of the lease cost? CPU time of driver and JVM a beat, and its share of a core at the default lease.

    .venv/bin/python benchmarks/beat.py [--beats 100]

Takes a lease on new tables and beats as fast as it can, the first beats apart, since a cold JVM costs more. Prints a
line, and as the last line of stdout one JSON object; exits with 1 where the share is 2 % or more.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time

import psutil

from lakelabel.lease import Lease
from lakelabel.sections import Queue
from lakelabel.session import open_session
from lakelabel.tables import Tables

_ALLOWED = 0.02
_COLD = 20


def main() -> int:
    """Beat, and compare CPU time with the seconds between two beats."""
    parser = argparse.ArgumentParser(description="CPU time of a beat of the lease.")
    parser.add_argument("--beats", type=int, default=100, help="beats that are measured")
    beats = parser.parse_args().beats
    seconds = Queue().lease_seconds
    with tempfile.TemporaryDirectory(prefix="lakelabel-beat-") as folder:
        spark = open_session()
        tables = Tables(folder)
        tables.create(spark)
        lease = Lease.take(spark, tables, "beat-000000000000", seconds)
        for _ in range(_COLD):
            lease._renew(time.monotonic())
        before, began = _cpu(), time.monotonic()
        for _ in range(beats):
            lease._renew(time.monotonic())
        cpu, wall = (_cpu() - before) / beats, (time.monotonic() - began) / beats
        spark.stop()
    share = cpu / (seconds / 3)
    print(
        f"a beat: {cpu * 1000:.0f} ms of CPU, {wall * 1000:.0f} ms of wall time; one in {seconds / 3:.0f} s is {share:.2%}"
    )
    print(
        json.dumps({"cpu_seconds": round(cpu, 4), "wall_seconds": round(wall, 4), "share_of_a_core": round(share, 5)})
    )
    return 0 if share < _ALLOWED else 1


def _cpu() -> float:
    """CPU seconds of this process and all below it so far."""
    own = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (own, *own.children(recursive=True)))


if __name__ == "__main__":
    raise SystemExit(main())
