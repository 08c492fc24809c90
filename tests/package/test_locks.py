"""The locks: every version resolved, and no address or path in them."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.package.conftest import ROOT

LOCKS = ["requirements.lock", "requirements-model.lock"]


def _lines(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("name", LOCKS)
def test_every_line_is_one_version_of_one_package(name: str) -> None:
    """Name and exact version, with a marker or hash at most: no option, no address, no file."""
    pattern = re.compile(r"[a-z0-9._-]+==[\w.+!-]+( ; [^/]+)?( --hash=sha256:[0-9a-f]{64})?")
    assert [line for line in _lines(name) if not pattern.fullmatch(line)] == []
    assert len(_lines(name)) > 0


@pytest.mark.parametrize(
    "name", [*LOCKS, "requirements.in", "requirements-overrides.txt", "pyproject.toml", "Makefile"]
)
def test_no_index_and_no_machine_stands_in_it(name: str) -> None:
    """Where packages come from is the machine's own matter."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert (
        re.findall(r"(?:https?|file|git\+\w+)://|--(?:extra-)?index-url [^\\\s]|find-links|/(?:root|home|Users)/", text)
        == []
    )


def test_every_requirement_is_locked() -> None:
    """A package that was added to requirements.in without `make lock` is found here."""
    wanted = {re.split(r"[^a-z0-9-]", line.lower())[0] for line in _lines("requirements.in")}
    locked = {line.split("==")[0] for line in _lines("requirements.lock")}
    assert wanted - locked == set()


def test_the_environment_is_the_locked_one() -> None:
    """What these tests run with is what the lock says (packages without a marker, which count everywhere)."""
    pinned = dict(line.split("==") for line in _lines("requirements.lock") if ";" not in line)
    assert {name: version(name) for name in pinned} == pinned
    assert Path(sys.prefix) == ROOT / ".venv"


def test_the_weights_are_pinned_by_content() -> None:
    """The model comes with a hash: other weights under the same version are refused by the installer."""
    assert all("--hash=sha256:" in line for line in _lines("requirements-model.lock"))
