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
def label_errors(run_id: str, shard_id: int) -> Iterator[None]:
    """Turn the failure of a label job into RunFailed with a reason that names no text of a document."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise RunFailed(
            f"shard {shard_id} of run {run_id} failed: {_reason(str(error))}; start again to resume"
        ) from error


def _reason(text: str) -> str:
    ours = _OURS.findall(text)
    if ours:
        return escaped(ours[-1])[:500]
    # A foreign exception's message may quote its input; its type and the place do not.
    raised, frames = _RAISED.findall(text), _FRAME.findall(text)
    where = f" at {frames[-1][0]}:{frames[-1][1]} in {frames[-1][2]}" if frames else ""
    return f"{raised[-1] if raised else 'the job failed'}{where}"
