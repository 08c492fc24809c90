"""What a failed Spark job says to a person: the engine's own words where they are ours, and never a document's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from lakelabel.errors import RunFailed, escaped

_OURS = re.compile(
    r"lakelabel_udfs\.engines\.protocol\.(?:BadPrompt|BadSettings|EngineDied): (.*(?:\n(?![ \t]*(?:at |File |Traceback|During )).+)*)"
)
_RAISED = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Died|Exit))\b", re.MULTILINE)
_FRAME = re.compile(r'File "[^"]*/([^"/]+)", line (\d+), in (\w+)')


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
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
        raise RunFailed(f"{what} failed: {reason}; start again to resume") from error


def _reason(text: str, condition: str | None = None) -> str:
    ours = _OURS.findall(text)
    if ours:
        return escaped(ours[-1])[:500]
    # A foreign exception's message may quote its input; its type and the place do not.
    raised, frames = _RAISED.findall(text), _FRAME.findall(text)
    what = raised[-1] if raised else "the job"
    if frames:
        return f"{what} at {frames[-1][0]}:{frames[-1][1]} in {frames[-1][2]}"
    return condition or what
