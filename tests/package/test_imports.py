"""What importing costs: no engine, no tracking, and nothing that Python 3.10 lacks."""

from __future__ import annotations

import ast
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import lakelabel_udfs
from tests.package.conftest import ROOT

HEAVY = ("vllm", "torch", "mlflow", "transformers")


def _udf_modules() -> list[str]:
    found = pkgutil.walk_packages(lakelabel_udfs.__path__, "lakelabel_udfs.")
    return ["lakelabel_udfs", *(module.name for module in found)]


def _sources() -> list[Path]:
    return sorted(path for root in ("jobs", "udfs", "tools") for path in (ROOT / root).rglob("*.py"))


@pytest.mark.parametrize("name", ["lakelabel", "lakelabel.cli", *_udf_modules()])
def test_importing_pulls_in_nothing_heavy(name: str) -> None:
    """Neither the driver's command nor any module of the executors imports an engine or tracking before it needs one."""
    program = f"import sys, json, {name}; print(json.dumps(sorted(m.split('.')[0] for m in sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": ""}
    )
    assert ended.returncode == 0, ended.stderr
    assert set(json.loads(ended.stdout)).isdisjoint(HEAVY)


@pytest.mark.parametrize("path", _sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_python_3_10_can_read_it(path: Path) -> None:
    """No syntax that is newer than the oldest Python that the wheel accepts."""
    ast.parse(path.read_text(encoding="utf-8"), filename=str(path), feature_version=(3, 10))


def test_setup_runs_without_an_environment() -> None:
    """The program that makes the environment needs the standard library alone, except the part that runs inside it."""
    program = "import sys; sys.path.insert(0, '.'); import tools.setup.__main__; print(*sorted(sys.modules))"
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    tops = {name.split(".")[0] for name in ended.stdout.split()} - {"__main__", "tools"}
    assert {top for top in tops if top not in sys.stdlib_module_names and not top.startswith("_")} == set()
