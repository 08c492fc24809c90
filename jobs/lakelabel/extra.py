"""What `engine.extra` may hold: vLLM's settings that leave the meaning of scores, and our adapter, alone."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib.util
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lakelabel.errors import Problem

_SCORES = "leave it out: it changes what the scores mean"
_PROMPT = "leave it out: prompts are token ids made with the model's own tokenizer"
_CLASSIFIER = "leave it out: labels are scored by a causal model's next token, not by a pooling head"
_SHARDS = "leave it out: Spark's tasks are the replicas, one engine each, on the device Spark gave them"
_QUEUE = "leave it out: engine.window bounds what is in flight, and a refused request is a lost document"
_SAMPLING = "leave it out: the sampling parameters are fixed, and it would have no effect"

_REFUSED = {
    "logprobs_mode": _SCORES,
    "logits_processors": _SCORES,
    "speculative_config": _SCORES,
    "spec_method": _SCORES,
    "spec_model": _SCORES,
    "spec_tokens": _SCORES,
    "diffusion_config": _SCORES,
    # Not a text watermark but a share of the KV cache; named here because the prefix below would give a false reason.
    "watermark": "leave it out: it holds KV cache back for decoding, and labelling only prefills",
    "max_logprobs": "leave it out: it follows from the number of labels",
    "tokenizer": _PROMPT,
    "tokenizer_mode": _PROMPT,
    "tokenizer_revision": _PROMPT,
    "skip_tokenizer_init": _PROMPT,
    "chat_template": f"{_PROMPT} and its chat template; chat_template_kwargs stand in the task",
    "model_weights": "leave it out: engine.model names the weights, and every row records it",
    "runner": _CLASSIFIER,
    "convert": _CLASSIFIER,
    "task": _CLASSIFIER,
    "pooler_config": _CLASSIFIER,
    "enable_lora": "leave it out: requests name no adapter; merge it into the weights and name those in engine.model",
    "device_ids": _SHARDS,
    "max_num_queued_reqs": _QUEUE,
    "max_num_queued_tokens": _QUEUE,
    "generation_config": _SAMPLING,
    "override_generation_config": _SAMPLING,
}
_REFUSED_PREFIXES = {"watermark": _SCORES, "data_parallel": _SHARDS}
_HF_OVERRIDES = ("rope_parameters", "rope_scaling", "rope_theta", "max_position_embeddings")
"""Overrides of a model's config that stretch its context; any other could make it another model."""

_DEEPEST = 16


def problems_of_extra(kind: str, extra: dict[str, Any], own: frozenset[str]) -> list[Problem]:
    """Return what is wrong with `engine.extra` for an engine of `kind`; keys begin with `.`, below `engine.extra`.

    own: the names of the settings of `engine` itself, which `extra` may not give a second time.
    """
    found = [problem for name, value in extra.items() for problem in _not_json(f".{name}", value)]
    rules = _fake if kind == "fake" else _vllm
    return found + [Problem(f".{name}", extra[name], remedy) for name, remedy in rules(extra, own)]


def _fake(extra: dict[str, Any], _own: frozenset[str]) -> Iterator[tuple[str, str]]:
    for name, value in extra.items():
        if name == "poison":
            if not isinstance(value, str) or not value:
                yield name, "give the mark of the texts that the fake engine dies of"
        elif name != "milliseconds_per_document":
            yield name, "take it out: the fake engine knows milliseconds_per_document and poison"
        elif isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            yield name, "give a number of at least 0"


def _vllm(extra: dict[str, Any], own: frozenset[str]) -> Iterator[tuple[str, str]]:
    known = vllm_settings() if extra else None
    for name, value in extra.items():
        prefix = next((p for p in _REFUSED_PREFIXES if name.startswith(p)), None)
        if name in own:
            yield name, f"give it as engine.{name}"
        elif name in _REFUSED:
            yield name, _REFUSED[name]
        elif prefix is not None:
            yield name, _REFUSED_PREFIXES[prefix]
        elif name == "hf_overrides":
            if not isinstance(value, dict) or not set(value) <= set(_HF_OVERRIDES):
                yield name, f"give a mapping of {', '.join(_HF_OVERRIDES)} alone: others make it another model"
        elif known is not None and name not in known:
            near = difflib.get_close_matches(name, known - own - set(_REFUSED), n=1, cutoff=0.75)
            yield (
                name,
                f"no such vLLM setting: did you mean {near[0]}?" if near else "no such vLLM setting: take it out",
            )


@functools.lru_cache(maxsize=1)
def vllm_settings() -> frozenset[str] | None:
    """Return the names of the installed vLLM's settings, or None where it is not installed or is laid out otherwise.

    They are read from its source: importing it takes seconds and brings torch along, and a driver that only plans
    has neither. Where they cannot be known, an unknown name is left for the engine to refuse.
    """
    try:
        spec = importlib.util.find_spec("vllm")
    except ValueError:
        return None
    if spec is None or spec.origin is None:
        return None
    try:
        tree = ast.parse(Path(spec.origin).with_name("engine").joinpath("arg_utils.py").read_bytes())
    except (OSError, SyntaxError):
        return None
    names = {
        line.target.id
        for found in tree.body
        if isinstance(found, ast.ClassDef) and found.name == "EngineArgs"
        for line in found.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    return frozenset(name for name in names if not name.startswith("_")) or None


def _not_json(key: str, value: object, depth: int = 0) -> Iterator[Problem]:
    if depth > _DEEPEST:
        yield Problem(key, "…", "nest it less deeply")
    elif isinstance(value, dict):
        for name, item in value.items():
            if isinstance(name, str):
                yield from _not_json(f"{key}.{name}", item, depth + 1)
            else:
                yield Problem(key, name, "make its keys text")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _not_json(f"{key}[{i}]", item, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        yield Problem(key, value, "give a finite number")
    elif value is not None and not isinstance(value, str | int | float):
        yield Problem(key, value, "give text, a number, true, false, null, a list or a mapping")
