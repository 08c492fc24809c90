"""Where a task runs, in the words that Spark's own messages use of it."""

from __future__ import annotations

import functools
import os
import socket
from itertools import pairwise

from lakelabel_udfs.device import task_gpus
from lakelabel_udfs.lineage import ancestors, arguments

_SUM = "slot "


def sum_name() -> str:
    """What the sum of the documents that are labelled here is called."""
    return f"{_SUM}{slot()}"


def executor_of(name: str) -> str | None:
    """The executor's id in the name of such a sum; None for every other sum."""
    if not name.startswith(_SUM):
        return None
    return name.partition(" executor ")[2].partition(" gpu ")[0]


def slot() -> str:
    """``HOST executor ID``, as in Spark's ``Lost task 0.0 in stage 1.0 (TID 7) (HOST executor ID)``, and the GPUs that
    the task was given, where Spark schedules them: ``HOST executor ID gpu 0,1``."""
    gpus = ",".join(task_gpus())
    return f"{_executor()} gpu {gpus}" if gpus else _executor()


@functools.cache
def _executor() -> str:
    """Spark tells a Python worker neither; they stand on the command line of the executor, which is its grandparent.

    A local Spark's executor is the driver. Elsewhere, where none is found, the pid of the worker's parent takes the
    place of the id: the daemon, of which an executor has one.
    """
    for pid in ancestors():
        words = arguments(pid)
        told = dict(pairwise(words))
        if "--executor-id" in told:
            return f"{told.get('--hostname', socket.gethostname())} executor {told['--executor-id']}"
        if "org.apache.spark.deploy.SparkSubmit" in words:
            return f"{socket.gethostname()} executor driver"
    return f"{socket.gethostname()} executor of daemon {os.getppid()}"
