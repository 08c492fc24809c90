"""Setup's environment step: which Python, which uv, and when it is made anew."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lakelabel.cache import ENVIRONMENT_MARK
from tools.setup import environment
from tools.setup.steps import StepFailed, take

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose programs are not run: a call that names one leaves the file that it would have made."""
    (tmp_path / "requirements.lock").write_text("uv==1.2.3\nuvloop==9\n")
    (tmp_path / "pyproject.toml").write_text("")

    def call(command: Sequence[str | Path], remedy: str, extra: object = None) -> str:
        words = [str(word) for word in command]
        (tmp_path / "calls").open("a").write(" ".join(words) + "\n")
        programs = tmp_path / ".venv" / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        for name in ("python", "uv", "lakelabel"):
            (programs / name).touch()
        return ""

    monkeypatch.setattr(environment, "call", call)
    return tmp_path


def test_a_half_made_environment_is_removed_first(checkout: Path) -> None:
    """A .venv without a stamp may hold half a package, so nothing of it stays."""
    rest = checkout / ".venv" / "lib" / "half"
    rest.mkdir(parents=True)
    take([environment.environment(checkout)], lambda line: None)
    assert not rest.exists()
    calls = (checkout / "calls").read_text().splitlines()
    assert calls[0].endswith(f" -m venv {checkout}/.venv")
    assert calls[1].endswith(" uv==1.2.3")
    assert calls[2].endswith(f" --no-deps --requirement {checkout}/requirements.lock")


def test_a_changed_lock_makes_it_anew(checkout: Path) -> None:
    """The environment is what the lock says, not what it said once."""
    take([environment.environment(checkout)], lambda line: None)
    assert environment.environment(checkout).is_made()
    (checkout / "requirements.lock").write_text("uv==1.2.4\n")
    assert not environment.environment(checkout).is_made()


def test_a_copied_environment_is_not_done(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The programs of an environment name the folder it was made in; a copy elsewhere is made anew."""
    take([environment.environment(checkout)], lambda line: None)
    elsewhere = tmp_path_factory.mktemp("copy") / "checkout"
    checkout.rename(elsewhere)
    assert not environment.environment(elsewhere).is_made()


def test_removing_the_environment_removes_the_project_step(checkout: Path) -> None:
    """The stamp of the project stands in the environment, so the two are never out of step."""
    take([environment.environment(checkout), environment.project(checkout)], lambda line: None)
    assert environment.project(checkout).is_made()
    (checkout / "requirements.lock").write_text("uv==1.2.4\n")
    take([environment.environment(checkout)], lambda line: None)
    assert not environment.project(checkout).is_made()


def test_the_environment_names_its_cache(checkout: Path) -> None:
    """The command finds what setup prepared: both use one name for the file that says where."""
    take([environment.environment(checkout)], lambda line: None)
    assert (checkout / ".venv" / ENVIRONMENT_MARK).read_text() == f"{checkout}/.cache\n"


@pytest.mark.parametrize("version", [(3, 9, 18), (3, 15, 0)])
def test_another_python_is_refused_with_a_remedy(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int]
) -> None:
    """A Python that the lock was not resolved for is named, with those that will do, and nothing is made."""
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(StepFailed, match=rf"Python 3\.{version[1]} was found; .* from 3\.10 to 3\.14 .* make PYTHON="):
        take([environment.environment(checkout)], lambda line: None)
    assert not (checkout / ".venv").exists()


def test_a_lock_without_uv_is_refused(checkout: Path) -> None:
    """uv comes in the version that the lock pins, never in the newest; another package's name is no match."""
    (checkout / "requirements.lock").write_text("uvloop==9\n")
    with pytest.raises(StepFailed, match=r"requirements\.lock does not pin uv; run make lock"):
        take([environment.environment(checkout)], lambda line: None)


def test_setup_and_makefile_agree_on_the_pythons() -> None:
    """The Makefile looks for exactly the versions that setup accepts, and pyproject.toml for nothing older."""
    makefile = (ROOT / "Makefile").read_text()
    assert f"{environment.OLDEST} <= sys.version_info[:2] <= {environment.NEWEST}" in makefile
    assert 'requires-python = ">=3.10"' in (ROOT / "pyproject.toml").read_text()
