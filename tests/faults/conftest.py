"""Sites for the faults, and the table of what they cost at the end of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.faults.checks import table
from tests.faults.harness import Site, site


@pytest.fixture
def make(tmp_path: Path, spark: object) -> Iterator[Callable[..., Site]]:
    """Make a site of these documents; its processes end with the test. The session of the checks is there from the start,
    so that its own start slows no scenario."""
    with ExitStack() as stack:

        def made(documents: dict[str, str], **options: Any) -> Site:
            return stack.enter_context(site(tmp_path / "site", documents, **options))

        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each scenario cost."""
    lines = table()
    if len(lines) > 1:
        terminalreporter.section("faults")
        for line in lines:
            terminalreporter.write_line(line)
