"""Where a local run keeps what it made once: the Java launcher and the Delta jars."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ENVIRONMENT_MARK = "lakelabel-cache"
"""A file in the folder of a virtual environment that names the cache which was prepared with it."""


def cache_folder() -> Path:
    """Return the absolute path of the cache folder, which may not exist yet.

    The first of these that is set: `$LAKELABEL_CACHE`; the folder that the running environment was set up with;
    `$XDG_CACHE_HOME/lakelabel`; `~/.cache/lakelabel`.
    """
    if told := os.environ.get("LAKELABEL_CACHE"):
        return Path(told).absolute()
    mark = Path(sys.prefix) / ENVIRONMENT_MARK
    if mark.is_file():
        return Path(mark.read_text(encoding="utf-8").strip())
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).absolute() / "lakelabel"
    return Path.home() / ".cache" / "lakelabel"
