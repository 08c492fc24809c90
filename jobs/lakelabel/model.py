"""Which model a run uses, as the rows will say it: an id for people, and a revision that changes when the weights do."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from lakelabel.sections import Engine

_BLOCK, _BLOCKS = 2**16, 256
"""Of a large file 256 blocks of 64 KiB are read, spread over all of it: a 15 GB checkpoint is told from its fine-tuned
sister in a fraction of a second, not minutes. Up to 16 MiB a file is read whole."""

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
    return ModelName(folder.resolve().name, _digest(folder))


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _WEIGHTS_AND_WORDS for path in folder.glob(pattern)}):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        step = max(_BLOCK, (size - _BLOCK) // (_BLOCKS - 1))
        with path.open("rb") as file:
            for start in range(0, size, step):
                file.seek(start)
                digest.update(file.read(_BLOCK))
    return digest.hexdigest()[:16]
