"""What a failed Spark job says to a person: the engine's own words where they are ours, and never a document's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from lakelabel.errors import RunFailed, escaped
from lakelabel_udfs.watchdog import HANG

_OURS = re.compile(
    r"^lakelabel_udfs\.engines\.protocol\.(?:BadPrompt|BadSettings|EngineDied|EngineLoadFailed): (.*(?:\n(?![ \t]*(?:at |File |Traceback|During |SQLSTATE)).+)*)",
    re.MULTILINE,
)
# Bounded, and of no characters that could break a line: the text around them may quote whatever a document pretends.
_RAISED = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w{0,60}(?:Error|Exception|Died|Exit))\b", re.MULTILINE)
_FRAME = re.compile(r'^ *File "[^"\n]*/([\w.-]{1,60})", line (\d{1,9}), in (\w{1,60})', re.MULTILINE)
_SYSTEM = re.compile(
    r"\bjava\.io\.IOException: (No space left on device|Disk quota exceeded|Read-only file system|Input/output error)$",
    re.MULTILINE,
)
_LOST = re.compile(r"\(TID \d+\) \((\S+) executor ([^)\s]+)\)")
_SLOT = re.compile(r" \[(\S+) executor ([^\]]+?)(?: gpu [\d,]+)?\]$", re.MULTILINE)
"""How a worker signs what it raises itself, and what it leaves in writing for its death: around a failed write Spark does
not say where that was."""

_SETTINGS = re.compile(r"^lakelabel_udfs\.engines\.protocol\.Bad(?:Prompt|Settings): ", re.MULTILINE)
_LOAD = re.compile(r"^lakelabel_udfs\.engines\.protocol\.EngineLoadFailed: ", re.MULTILINE)
_RAISED_IN_WORKER = "org.apache.spark.api.python.PythonException: "
"""Where Delta wraps what a task raised, it is but the cause of what comes here."""

_WORKER_GONE = ("Python worker exited unexpectedly", "ExecutorLostFailure")


@dataclass(frozen=True)
class Death:
    """A task that died on its documents: of what (``load``: before it saw any), and the executor that it was on."""

    kind: Literal["crashed", "timed_out", "load"]
    executor: str
    host: str
    reason: str

    @property
    def where(self) -> str:
        """Host and executor, for people."""
        return "this machine" if self.executor == "driver" else f"host {self.host}, executor {self.executor}"


def death_of(error: BaseException) -> Death | None:
    """What a failed label job died of, where it may be its documents' fault or its slot's; None for everything else:
    settings that cannot work, a full disk, a JVM that is gone. Spark says it in text alone."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException, PythonException

    if not isinstance(error, (Py4JJavaError, PySparkException)):
        return None
    text = str(error)
    gone = any(words in text for words in _WORKER_GONE)
    if _SETTINGS.search(text) or not (gone or isinstance(error, PythonException) or _RAISED_IN_WORKER in text):
        return None
    host, executor = (_LOST.findall(text) or _SLOT.findall(text) or [("", "driver")])[-1]
    if _LOAD.search(text):
        return Death("load", executor, host, _reason(text))
    if gone and HANG.search(text):
        return Death("timed_out", executor, host, "its engine did not return from a step")
    if gone:
        lost = "the executor was lost" if "ExecutorLostFailure" in text else "the Python worker died"
        return Death("crashed", executor, host, lost)
    return Death("crashed", executor, host, _reason(text))


@contextmanager
def spark_errors(what: str, remedy: str = "start again to resume") -> Iterator[None]:
    """Turn a failure of Spark within the block into RunFailed, with a reason that names no text of a document.

    A JVM that died is a ConnectionError, or a Py4JError if it died while it was asked.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        reason = _reason(str(error), condition)
        raise RunFailed(f"{what} failed: {reason}; {remedy}") from error


def _reason(text: str, condition: str | None = None) -> str:
    ours = _OURS.findall(text)
    if ours:
        return escaped(_SLOT.sub("", ours[-1]))[:500]
    system = _SYSTEM.findall(text)
    if system:
        return str(system[-1])
    # A foreign exception's message may quote its input; its type and the place do not.
    raised, frames = _RAISED.findall(text), _FRAME.findall(text)
    what = raised[-1] if raised else "the job"
    if frames:
        return f"{what} at {frames[-1][0]}:{frames[-1][1]} in {frames[-1][2]}"
    return condition or what
