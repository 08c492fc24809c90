"""The steps that make the Python environment: packages from the lock, then the project itself."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.setup.steps import Step, StepFailed, call, digest, write

OLDEST, NEWEST = (3, 10), (3, 14)
"""The Python versions that requirements.lock was resolved for."""

NETWORK = "check that this machine reaches the package index (pip's and uv's own settings apply), then start again"


def environment(root: Path) -> Step:
    """`.venv` with what requirements.lock names."""
    lock = root / "requirements.lock"
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return Step(
        name="environment",
        does=f".venv for Python {python} from requirements.lock (a minute or two and 7 GB when nothing is cached)",
        folder=root / ".venv" / "setup",
        # The folder's own path too: an environment that was copied elsewhere still points to where it came from.
        inputs=digest(lock, python, str(root)),
        make=lambda: _make(root, lock),
    )


def project(root: Path) -> Step:
    """The two packages and the console script, read from the checkout."""
    return Step(
        name="project",
        does="the packages of this checkout and the command lakelabel",
        folder=root / ".venv" / "setup",
        inputs=digest(root / "pyproject.toml", str(root)),
        make=lambda: _install_project(root),
    )


def _make(root: Path, lock: Path) -> Iterator[Path]:
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        raise StepFailed(
            f"Python {sys.version_info[0]}.{sys.version_info[1]} was found; "
            f"put a python3 from {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]} on the PATH, or name one: make PYTHON=…"
        )
    venv = root / ".venv"
    # What a broken-off installation left is not worth looking through: uv links a complete one from its cache in half a minute.
    shutil.rmtree(venv, ignore_errors=True)
    call(
        [_interpreter(), "-m", "venv", venv],
        "install Python's own venv and pip (on Debian: python3-venv), then start again",
    )
    python, uv = venv / "bin" / "python", venv / "bin" / "uv"
    call([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", _pinned("uv", lock)], NETWORK)
    install: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--no-deps",
        "--requirement",
        lock,
    ]
    call(install, NETWORK, certificates())
    # Read by lakelabel.cache, so that the command finds what setup prepared without a variable being set.
    write(venv / "lakelabel-cache", f"{root / '.cache'}\n")
    yield from (python, uv, venv / "lakelabel-cache")


def _install_project(root: Path) -> Iterator[Path]:
    programs = root / ".venv" / "bin"
    how = ["--quiet", "--offline", "--no-deps", "--no-build-isolation", "--reinstall-package", "lakelabel"]
    call(
        [programs / "uv", "pip", "install", "--python", programs / "python", *how, "--editable", root],
        "see above for what is wrong with pyproject.toml, then start again",
    )
    yield programs / "lakelabel"


def certificates() -> dict[str, str]:
    """Return the variables that let uv trust what this machine trusts, as pip does, and not its own list alone.

    Behind a proxy that signs for others only the machine's list holds the signer. Where the machine has none, uv keeps its own.
    """
    paths = ssl.get_default_verify_paths()
    # Either is None where there is no such path, whatever their types say.
    listed = bool(paths.cafile) or (bool(paths.capath) and any(Path(paths.capath).iterdir()))
    return {"UV_SYSTEM_CERTS": os.environ.get("UV_SYSTEM_CERTS", "true")} if listed else {}


def _interpreter() -> Path:
    """Return the Python to make the environment with, which never stands in an environment that may be removed."""
    if sys.prefix == sys.base_prefix:
        return Path(sys.executable)
    return Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")


def _pinned(package: str, lock: Path) -> str:
    """Return the line of the lock that pins `package`, such as `uv==0.13.9`."""
    found = re.search(rf"^{re.escape(package)}==\S+", lock.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise StepFailed(f"{lock.name} does not pin {package}; run make lock")
    return found[0]
