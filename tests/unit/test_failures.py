"""What a failed job says to a person."""

from __future__ import annotations

import pytest

from lakelabel.failures import _reason

TRACE = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/python/lakelabel_udfs/window.py", line 40, in label_stream
    engine.step()
{last}
"""


def test_our_own_exceptions_speak_for_themselves() -> None:
    """EngineDied and its siblings carry messages that are ours."""
    last = "lakelabel_udfs.engines.protocol.EngineDied: the engine core is gone"
    assert _reason(TRACE.format(last=last)) == "the engine core is gone"


def test_a_foreign_exception_gives_its_type_and_place_and_not_its_message() -> None:
    """A message may quote a document, and a document must not reach a log."""
    told = _reason(TRACE.format(last="ValueError: cannot read 'SECRET TEXT'"))
    assert told == "ValueError at window.py:40 in label_stream"


def test_what_the_system_refused_is_said() -> None:
    """A full disk is no mystery, wherever in the causes it stands."""
    trace = (
        "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed\n"
        "\tat org.apache.spark.Executor.run(Executor.scala:1)\n"
        "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n"
        "\tat java.base/java.io.FileOutputStream.write(FileOutputStream.java:1)\n"
    )
    assert _reason(trace) == "No space left on device"


@pytest.mark.parametrize(
    "value",
    [
        "SECRET",
        'File "/x/SECRET", line 1, in y',
        "lakelabel_udfs.engines.protocol.EngineDied: SECRET",
        '\\n  File "/x/SECRET\x1b[2J", line 1, in y',
    ],
)
def test_a_message_that_quotes_a_document_shows_nothing_of_it(value: str) -> None:
    """Neither its words nor what it pretends to be."""
    told = _reason(TRACE.format(last=f"ValueError: cannot read '{value}'"))
    assert told == "ValueError at window.py:40 in label_stream"
    assert (
        _reason(f"[CAST_INVALID_INPUT] The value '{value}' cannot be cast", "CAST_INVALID_INPUT")
        == "CAST_INVALID_INPUT"
    )
