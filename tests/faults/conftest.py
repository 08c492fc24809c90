"""Sites for the faults, and the table of what they cost at the end of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.faults.checks import invoked, table
from tests.faults.harness import Site, opened


@pytest.fixture
def make(tmp_path: Path, spark: object) -> Iterator[Callable[..., Site]]:
    """Make a site of these documents; its processes end with the test. Unless told otherwise its run is planned already,
    here, where it takes a third of the time that it takes in a JVM of its own."""
    with ExitStack() as stack:

        def made(documents: dict[str, str], planned: bool = True, **options: Any) -> Site:
            site = stack.enter_context(opened(tmp_path / "site", documents, **options))
            if planned:
                invoked(site, "plan")
            return site

        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each scenario cost."""
    lines = table()
    if len(lines) > 1:
        terminalreporter.section("faults")
        for line in lines:
            terminalreporter.write_line(line)
