"""Delta's conflicts by type, and the retry that they ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import stamina

T = TypeVar("T")


def is_conflict(error: Exception) -> bool:
    """Whether another writer's commit came first, so that the same statement may succeed when it is run again."""
    # Importing this module is what makes PySpark raise conflicts by these types; they share no base worth catching.
    from delta import exceptions
    from py4j.protocol import Py4JJavaError

    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getClass().getName()).startswith("io.delta.exceptions.")
    return isinstance(
        error,
        (
            exceptions.ConcurrentAppendException,
            exceptions.ConcurrentDeleteDeleteException,
            exceptions.ConcurrentDeleteReadException,
            exceptions.ConcurrentTransactionException,
            exceptions.ConcurrentWriteException,
            exceptions.DeltaConcurrentModificationException,
            exceptions.MetadataChangedException,
            exceptions.ProtocolChangedException,
        ),
    )


def retried(statement: Callable[[], T]) -> T:
    """Run a statement whose repetition is harmless, again after every conflict, with jittered backoff."""
    for attempt in stamina.retry_context(on=is_conflict, attempts=20, timeout=300.0, wait_max=10.0):
        with attempt:
            return statement()
    raise AssertionError("stamina ends by a result or an exception")
