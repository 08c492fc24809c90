"""Where the cache folder is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lakelabel.cache import ENVIRONMENT_MARK, cache_folder


def test_the_first_that_is_set_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LAKELABEL_CACHE, then what the environment was set up with, then XDG_CACHE_HOME, then HOME; always absolute."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("LAKELABEL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/someone/.cache/lakelabel")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/lakelabel")
    (tmp_path / ENVIRONMENT_MARK).write_text("/checkout/.cache\n")
    assert cache_folder() == Path("/checkout/.cache")
    monkeypatch.setenv("LAKELABEL_CACHE", "relative")
    assert cache_folder() == Path.cwd() / "relative"
