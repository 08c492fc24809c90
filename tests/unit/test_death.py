"""What a failed label job died of, by the texts that Spark 4.2 gives."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException, PythonException

from lakelabel.failures import Death, death_of

_JOB = "Job aborted due to stage failure: Task 0 in stage 6.0 failed 1 times, most recent failure: Lost task 0.0 in stage 6.0"
_STACK = """
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:711)
\tat org.apache.spark.executor.Executor$TaskRunner.run(Executor.scala:845)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
"""
LOCAL, REMOTE = "(TID 13) (localhost executor driver)", "(TID 71) (10.0.0.4 executor 3)"


def gone(where: str, words: str = "") -> PySparkException:
    """A worker that ended, with what it left in writing."""
    return PySparkException(
        message=f"{_JOB} {where}: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): {words}\n{_STACK}"
    )


def raised(last: str) -> PySparkException:
    """A worker that raised, which Spark tells without the job around it."""
    return PythonException(
        message=f"""An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/lakelabel_udfs/classify.py", line 164, in label_batches
    raise _told(error) from None
{last}
"""
    )


PROTOCOL = "lakelabel_udfs.engines.protocol."


@pytest.mark.parametrize(
    ("where", "executor", "host", "named"),
    [(LOCAL, "driver", "localhost", "this machine"), (REMOTE, "3", "10.0.0.4", "host 10.0.0.4, executor 3")],
)
def test_a_worker_that_is_gone_names_its_executor(where: str, executor: str, host: str, named: str) -> None:
    """In the words that telemetry uses too; killed, or with the stack of a crash in writing."""
    crash = 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007fd1 (most recent call first):\n  File "a.py", line 1 in g'
    for words in ("", crash):
        death = death_of(gone(where, words))
        assert death == Death("crashed", executor, host, "the Python worker died")
        assert death.where == named


@pytest.mark.parametrize(
    "words",
    [
        "lakelabel: the engine did not return from a step for 600 s",
        'Timeout (0:10:02)!\nThread 0x00007fd1 (most recent call first):\n  File "a.py", line 1 in hang',
        'Timeout (10:00:00.500000)!\nThread 0x00007fd1 (most recent call first):\n  File "a.py", line 1 in hang',
    ],
)
def test_a_worker_that_the_watchdog_ended_timed_out(words: str) -> None:
    """Whichever of its two clocks it was."""
    assert death_of(gone(REMOTE, words)) == Death("timed_out", "3", "10.0.0.4", "its engine did not return from a step")


def wrapped(cause: str) -> PySparkException:
    """What the writer of the first partition makes of a failure: its own words, and the failure as their cause."""
    return PySparkException(
        message="An error occurred while calling o80.save.\n: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task "
        "failed while writing rows to file:/labels/outcomes. SQLSTATE: 58030\n\tat org.apache.spark.sql.errors."
        f"QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:843)\nCaused by: {cause}\n\t... 1 more\n"
    )


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("", "crashed"),
        ("Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n", "crashed"),
        ("lakelabel: the engine did not return from a step for 600 s\n", "timed_out"),
    ],
)
def test_a_worker_that_is_gone_has_left_its_place_in_writing(words: str, kind: str) -> None:
    """For where Spark does not say it."""
    quoted = f"lakelabel: a worker of [10.0.0.4 executor 3]\n{words}"
    death = death_of(wrapped(f"org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): {quoted}"))
    assert death is not None
    assert (death.kind, death.executor, death.host) == (kind, "3", "10.0.0.4")


def test_what_a_worker_raises_may_come_as_a_cause() -> None:
    """The state that Spark adds below is no part of the reason; settings that cannot work stay nobody's death."""
    begin = (
        "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
        'Traceback (most recent call last):\n  File "/opt/lakelabel_udfs/classify.py", line 164, in label_batches\n'
    )
    state = "\n SQLSTATE: 38000\n\tat org.apache.spark.api.python.BasePythonRunner"
    died = wrapped(f"{begin}{PROTOCOL}EngineDied: the engine core is gone [10.0.0.4 executor 3]{state}")
    assert death_of(died) == Death("crashed", "3", "10.0.0.4", "the engine core is gone")
    load = wrapped(f"{begin}{PROTOCOL}EngineLoadFailed: no weights [10.0.0.4 executor 3]{state}")
    assert death_of(load) == Death("load", "3", "10.0.0.4", "no weights")
    assert death_of(wrapped(f"{begin}{PROTOCOL}BadSettings: engine.window is 0; give at least 1{state}")) is None


def test_an_executor_that_was_lost_is_told_as_such() -> None:
    """The last try is the one that is told."""
    error = PySparkException(
        message=f"{_JOB} (TID 9) (10.0.0.7 executor 5): ExecutorLostFailure (executor 5 exited caused by one of the "
        "running tasks) Reason: Remote RPC client disassociated."
    )
    assert death_of(error) == Death("crashed", "5", "10.0.0.7", "the executor was lost")


@pytest.mark.parametrize(
    ("slot", "host", "executor"),
    [
        ("h7 executor driver", "h7", "driver"),
        ("10.0.0.4 executor 3", "10.0.0.4", "3"),
        ("10.0.0.4 executor 3 gpu 0,1", "10.0.0.4", "3"),
        ("h7 executor of daemon 41", "h7", "of daemon 41"),
    ],
)
def test_what_a_worker_raises_itself_says_where_it_was(slot: str, host: str, executor: str) -> None:
    """Spark does not; the place is taken from the text's end, and is no part of the reason."""
    died = raised(f"{PROTOCOL}EngineDied: the engine core is gone [{slot}]")
    assert death_of(died) == Death("crashed", executor, host, "the engine core is gone")
    load = raised(f"{PROTOCOL}EngineLoadFailed: the engine did not load: OSError: no weights [{slot}]")
    assert death_of(load) == Death("load", executor, host, "the engine did not load: OSError: no weights")


def test_a_foreign_error_of_a_worker_is_a_death_without_its_words() -> None:
    """One that Spark's own code around ours raised: its message may quote a row, whatever that pretends to be."""
    error = raised(
        f"pyarrow.lib.ArrowInvalid: Could not convert '{PROTOCOL}EngineDied: SECRET' and '{PROTOCOL}BadSettings: SECRET' "
        f"or '{PROTOCOL}EngineLoadFailed: SECRET' or 'lakelabel: the engine did not return from a step for 1 s'"
    )
    death = death_of(error)
    assert death is not None
    assert death.kind == "crashed"
    assert "SECRET" not in death.reason


def test_an_error_of_ours_may_have_several_lines() -> None:
    """They stay one line of output, cut to a length that can be read."""
    death = death_of(raised(f"{PROTOCOL}EngineDied: CUDA error\nsee the log{'!' * 900} [h executor 1]"))
    assert death is not None
    assert (death.kind, death.executor) == ("crashed", "1")
    assert death.reason.startswith("CUDA error\\nsee the log!!!")
    assert len(death.reason) == 500


@pytest.mark.parametrize(
    "error",
    [
        raised(f"{PROTOCOL}BadSettings: engine.window is 0; give at least 1"),
        raised(f"{PROTOCOL}BadPrompt: the head is longer than the context"),
        PySparkException(message=f"{_JOB} {LOCAL}: java.io.IOException: No space left on device{_STACK}"),
        PySparkException(message="Job 3 cancelled part of cancelled job tag lakelabel-x"),
        AnalysisException(message="[TABLE_OR_VIEW_NOT_FOUND] The table or view cannot be found"),
        ConnectionRefusedError("the JVM is gone"),
        ValueError("Python worker exited unexpectedly"),
    ],
)
def test_everything_else_is_nobodys_death(error: BaseException) -> None:
    """Settings that cannot work, a full disk, a cancelled job, a JVM that is gone, an error of the driver's own."""
    assert death_of(error) is None
