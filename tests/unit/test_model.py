"""The name and revision of a model."""

from __future__ import annotations

import os
from pathlib import Path

from lakelabel.model import name_model
from lakelabel.sections import Engine


def engine(model: str, revision: str | None = None) -> Engine:
    return Engine.model_validate({"kind": "vllm", "model": model, "revision": revision})


def test_a_folder_is_named_by_its_name_and_a_digest_of_its_files(tmp_path: Path) -> None:
    """Moving a model keeps its name and revision; changing a byte at either end of large weights changes the revision."""
    folder = tmp_path / "small-model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(3 * 2**20))
    first = name_model(engine(str(folder)))
    assert first.model_id == "small-model"
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    folder.rename(moved / "small-model")
    assert name_model(engine(str(moved / "small-model"))) == first
    with (moved / "small-model" / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    assert name_model(engine(str(moved / "small-model"))).model_revision != first.model_revision


def test_a_hub_id_is_taken_with_the_revision_asked_for() -> None:
    """A name that is no folder is the hub's, and nothing is looked up."""
    assert name_model(engine("org/model", "abc")).model_revision == "abc"
    assert name_model(engine("org/model")).model_id == "org/model"
