"""No process of an engine outlives the Python worker that it serves.

vLLM may run its core and its tensor parallel workers in processes of their own. Spark ends a worker by SIGKILL or
``os._exit``, so nothing that Python runs at exit can end those, and an orphan keeps its whole GPU. Each of them therefore
asks the kernel to be killed as its parent ends, and so does each of its own children: the whole tree goes within moments.

Processes that are spawned do it as vLLM loads its plugins, of which ``die_with_worker`` is one (entry point ``lakelabel``
of the group ``vllm.general_plugins``); those that are forked do it at the fork.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
from importlib.metadata import entry_points

from lakelabel_udfs.lineage import ancestors

WORKER = "LAKELABEL_WORKER"
"""Environment variable with the pid of the worker whose engine a process belongs to; unset where nobody asked for this."""

_GROUP = "vllm.general_plugins"
_PLUGIN = "lakelabel"
_PR_SET_PDEATHSIG = 1


def die_with_worker() -> None:
    """Let the kernel kill this process once its parent has ended, if it is one that a worker's engine has started.

    Does nothing in the worker itself, and nothing in a vLLM that somebody else runs where this package is installed.
    """
    worker = os.environ.get(WORKER, "")
    if not worker.isdecimal() or int(worker) == os.getpid():
        return
    _guard_forks()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # A parent that ended before the call sends no signal any more.
    if int(worker) not in ancestors():
        os.kill(os.getpid(), signal.SIGKILL)


def guard_children() -> None:
    """Let whatever processes an engine starts from here on die with this one. To be called before vllm is imported, on
    the main thread: what the kernel watches is the thread that started a process."""
    os.environ[WORKER] = str(os.getpid())
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and _PLUGIN not in allowed.split(","):
        os.environ["VLLM_PLUGINS"] = f"{allowed},{_PLUGIN}"
    _guard_forks()


def guarded() -> bool:
    """Whether spawned processes will find the plugin: it is found by the package's metadata, not by its modules."""
    return any(entry.name == _PLUGIN for entry in entry_points(group=_GROUP))


@functools.cache
def _guard_forks() -> None:
    os.register_at_fork(after_in_child=die_with_worker)
