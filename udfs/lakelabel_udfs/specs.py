"""Specs: the small, frozen, hashable values that travel to the executors and key their caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scalar = str | int | float | bool | None
Overflow = Literal["quarantine", "head", "tail", "head_tail"]
Scoring = Literal["auto", "label_token", "trie"]


@dataclass(frozen=True)
class LabelSpec:
    """One label: its exact name, and what it means (empty where the name says it)."""

    name: str
    description: str = ""


@dataclass(frozen=True)
class PromptSpec:
    """Everything that decides the prompt of a document, given a tokenizer.

    ``examples`` are (text, label) pairs; ``chat_template_kwargs`` are passed to the chat template as they are.
    """

    prompt_version: str
    instruction: str
    labels: tuple[LabelSpec, ...]
    examples: tuple[tuple[str, str], ...] = ()
    answer_prefix: str = "Label:"
    scoring: Scoring = "auto"
    chat_template_kwargs: tuple[tuple[str, Scalar], ...] = ()
    overflow: Overflow = "quarantine"

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels' names, in the order of the task."""
        return tuple(label.name for label in self.labels)


@dataclass(frozen=True)
class EngineSpec:
    """What a worker needs to build its engine; the key of its cache.

    ``model`` is a folder or a hub id; ``model_id`` and ``model_revision`` are what the rows will say of it.
    A step of the engine that takes longer than ``stall_seconds`` is taken for a hang.
    ``extra`` is canonical JSON (sorted keys), so that the spec stays hashable whatever vLLM takes.
    """

    kind: Literal["vllm", "fake"]
    model: str | None
    model_id: str
    model_revision: str | None
    revision: str | None = None
    max_model_len: int = 2048
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float = 0.92
    tensor_parallel_size: int = 1
    window: int | None = None
    stall_seconds: float = 600.0
    extra: str = "{}"
