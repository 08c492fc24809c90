"""Where the demo's documents come from: the bundled set, or the package descriptions that apt keeps on a Debian machine."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BUNDLED = Path(__file__).parent / "documents.jsonl"

SECTIONS = ("database", "editors", "fonts", "games", "graphics", "mail", "math", "net", "sound", "web")
"""Sections of Debian that are well filled and that a reader could tell apart by a description; labels of the task."""

PACKAGES_PER_SECTION = 30

Document = tuple[str | None, ...]
"""One row of the source table, in the order of the corpus's columns; NULL where a value is None."""


class NoCorpusError(Exception):
    """The corpus asked for is not on this machine; the message says what would bring it."""


@dataclass(frozen=True)
class Corpus:
    """What is labelled, and by which settings file.

    columns: names of the source table's columns, all of them strings; `gold` is among them.
    failures: how many rows of quarantine each failure code must get; None where that is not known beforehand.
    """

    name: str
    conf: Path
    columns: tuple[str, ...]
    documents: tuple[Document, ...]
    failures: dict[str, int] | None = None


def bundled(path: Path = BUNDLED) -> Corpus:
    """Return the documents of `path`, JSON lines with doc_id, title, body, gold and lang.

    A line's `repeat` says how often its body is repeated here: the one document that must be too long for the model
    is kept short in the file.
    """
    columns = ("doc_id", "title", "body", "gold", "lang")
    documents = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        row["body"] *= row.get("repeat", 1)
        documents.append(tuple(row[column] for column in columns))
    return Corpus(
        name="bundled",
        conf=Path("conf/local.yml"),
        columns=columns,
        documents=tuple(documents),
        failures={"duplicate_doc_id": 1, "empty": 2, "missing_doc_id": 1, "too_long": 1},
    )


def debian() -> Corpus:
    """Return `PACKAGES_PER_SECTION` packages of each of `SECTIONS`: name, description, and the section as gold.

    Raises NoCorpusError where apt or its package lists are missing.
    """
    apt_cache = shutil.which("apt-cache")
    if apt_cache is None:
        raise NoCorpusError("there is no apt-cache here; --source debian needs a Debian or Ubuntu machine")
    # apt-cache reads the lists however they are compressed.
    dump = subprocess.run([apt_cache, "dumpavail"], capture_output=True, check=False)
    packages = sample(parse_packages(dump.stdout.decode("utf-8", errors="replace").splitlines()))
    if not packages:
        raise NoCorpusError("apt has no package lists here; fetch them with `apt-get update`, then start again")
    return Corpus(
        name="debian",
        conf=Path("conf/debian.yml"),
        columns=("package", "description", "gold"),
        documents=tuple(packages),
    )


def parse_packages(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (package, description, section) for each stanza of a Packages file that has all three.

    A long description's continuation lines are joined to the first; a section's component (`contrib/net`) is dropped.
    """
    fields: dict[str, str] = {}
    key = ""
    for line in [*lines, ""]:
        if not line.strip():
            package, section = fields.get("Package"), fields.get("Section")
            description = fields.get("Description-en") or fields.get("Description")
            if package and section and description:
                yield package, description, section.rpartition("/")[2]
            fields, key = {}, ""
        elif line[0].isspace():
            # A lone dot is the format's blank line.
            fields[key] = f"{fields.get(key, '')} {line.strip().removeprefix('.')}".rstrip()
        else:
            key, _, value = line.partition(":")
            fields[key] = value.strip()


def sample(packages: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Return those packages of each section whose names have the lowest digests: the same ones on every start.

    The first stanza of a name counts: a machine with security updates lists some packages twice.
    """
    by_section: dict[str, dict[str, tuple[str, str, str]]] = {section: {} for section in SECTIONS}
    for package in packages:
        if package[2] in by_section:
            by_section[package[2]].setdefault(package[0], package)
    chosen = []
    for section in SECTIONS:
        ordered = sorted(by_section[section].values(), key=lambda p: hashlib.sha256(p[0].encode()).digest())
        chosen += ordered[:PACKAGES_PER_SECTION]
    return chosen
