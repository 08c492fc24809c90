"""Which model a run uses, as the rows will say it: an id for people, and a revision that changes when the weights do."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from lakelabel.sections import Engine

_EDGE = 2**20
"""Bytes read at each end of a large file: a 15 GB checkpoint is told from another in milliseconds, not minutes."""

_WEIGHTS_AND_WORDS = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model", "*.jinja")


@dataclass(frozen=True)
class ModelName:
    """``model_id`` and ``model_revision`` of the rows."""

    model_id: str
    model_revision: str | None


def name_model(engine: Engine) -> ModelName:
    """Name the model: of a folder its name and a digest of its files, of a hub id the id and the revision asked for."""
    if engine.kind == "fake":
        return ModelName("fake", engine.revision)
    assert engine.model is not None, "settings without a model were refused"
    folder = Path(engine.model)
    if not folder.is_dir():
        return ModelName(engine.model, engine.revision)
    return ModelName(folder.resolve().name, engine.revision or _digest(folder))


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _WEIGHTS_AND_WORDS for path in folder.glob(pattern)}):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(_EDGE))
            if size > _EDGE:
                file.seek(max(_EDGE, size - _EDGE))
                digest.update(file.read(_EDGE))
    return digest.hexdigest()[:16]
