"""One worker for all engine tests: its engine is loaded once and changed only where a test asks for another model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scores import Reference, reference
from benchmarks.tiny_model import make_model
from lakelabel_udfs import classify
from lakelabel_udfs.engines.vllm import VllmEngine
from lakelabel_udfs.specs import EngineSpec, PromptSpec

Bind = Callable[[PromptSpec], VllmEngine]


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The small real model that setup prepares."""
    cache = Path(os.environ.get("LAKELABEL_CACHE") or Path(__file__).parents[2] / ".cache")
    folder = cache / "models" / "SmolLM2-135M-Instruct"
    assert (folder / "tokenizer.json").is_file(), f"{folder} is missing; run make setup"
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Path:
    """Two random layers with the small model's tokenizer."""
    return make_model(tmp_path_factory.mktemp("models") / "tiny", smollm2)


@pytest.fixture(scope="session")
def spec(tiny_model: Path) -> EngineSpec:
    """The tiny model in float32, in which scores do not depend on the batch."""
    return EngineSpec("vllm", str(tiny_model), "tiny", None, max_model_len=2048, extra='{"dtype": "float32"}')


@pytest.fixture(scope="session")
def bind(spec: EngineSpec) -> Iterator[Bind]:
    """Binds a prompt to the worker's engine, loading it as a task would."""

    def bound(prompt: PromptSpec) -> VllmEngine:
        engine, _ = classify._bound(spec, prompt, dict.fromkeys(("loads", "load_seconds"), 0.0))
        assert isinstance(engine, VllmEngine)
        return engine

    yield bound
    classify._loaded.close()


@pytest.fixture(scope="session")
def logprobs(tiny_model: Path) -> Reference:
    """The tiny model by transformers."""
    return reference(str(tiny_model), "float32")


@pytest.fixture(scope="session")
def tokenizer(tiny_model: Path) -> Any:
    """The small model's tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_model)
