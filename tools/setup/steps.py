"""A step of setup: made once, told from a half-made one by a stamp that is written last."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


class StepFailed(Exception):
    """A step could not be done; the text says what was run, what it printed and what to do."""


@dataclass(frozen=True)
class Step:
    """One thing that setup makes.

    name: one word, also the name of the stamp. does: shown before it starts. folder: where the stamp stands; it must go when
    what was made goes. inputs: a digest of everything that the result depends on. make: makes it, from whatever a broken-off
    attempt has left, and returns the paths that have to exist for it to count as made.
    """

    name: str
    does: str
    folder: Path
    inputs: str
    make: Callable[[], Iterable[Path]]

    @property
    def stamp(self) -> Path:
        """The file that says that the step was done, and for which inputs."""
        return self.folder / f"{self.name}.json"

    def is_made(self) -> bool:
        """Whether the stamp is there, was written for the same inputs, and everything it lists still exists."""
        try:
            stamp = json.loads(self.stamp.read_text(encoding="utf-8"))
            return bool(stamp["inputs"] == self.inputs and all(Path(path).exists() for path in stamp["made"]))
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def run(self) -> None:
        """Make it, without a stamp while that lasts, and then write the stamp in one rename."""
        self.stamp.unlink(missing_ok=True)
        made = [str(path) for path in self.make()]
        missing = [path for path in made if not Path(path).exists()]
        if missing:
            raise StepFailed(f"{self.name}: {missing[0]} is not there after it was made")
        write(self.stamp, json.dumps({"inputs": self.inputs, "made": made}, indent=1))


def take(steps: Sequence[Step], say: Callable[[str], None]) -> None:
    """Take the steps in order, skipping those that are made. Raises StepFailed at the first that cannot be done."""
    started = time.monotonic()
    taken = 0
    for number, step in enumerate(steps, 1):
        head = f"setup {number}/{len(steps)} {step.name}"
        if step.is_made():
            say(f"{head}: done before")
            continue
        say(f"{head}: {step.does} …")
        begun = time.monotonic()
        step.run()
        taken += 1
        say(f"{head}: done in {time.monotonic() - begun:.1f} s")
    if taken:
        say(f"setup: {taken} of {len(steps)} steps taken in {time.monotonic() - started:.1f} s")


def digest(*parts: str | Path) -> str:
    """Return one digest of texts and of the contents of files."""
    total = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode()
        total.update(len(content).to_bytes(8, "big") + content)
    return total.hexdigest()


def write(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def empty(folder: Path) -> Path:
    """Remove a folder, whatever is in it, and make it anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def call(command: Sequence[str | Path], remedy: str, extra: Mapping[str, str] | None = None) -> str:
    """Run a program in the checkout and return its stdout; where it fails, StepFailed holds its last 40 lines and `remedy`."""
    words = [str(word) for word in command]
    try:
        ended = subprocess.run(
            words, env={**os.environ, **(extra or {})}, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise StepFailed(f"{words[0]} does not start ({error.strerror}); {remedy}") from error
    if ended.returncode != 0:
        said = "\n".join((ended.stdout + ended.stderr).strip().splitlines()[-40:])
        raise StepFailed(f"{said}\n{' '.join(words)} ended with {ended.returncode}; {remedy}")
    return ended.stdout


def say(text: str) -> None:
    """Print a line to stderr at once: stdout belongs to the program that setup prepares."""
    print(text, file=sys.stderr, flush=True)
