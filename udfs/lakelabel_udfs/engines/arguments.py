"""What vLLM's ``LLM`` is told: the spec's settings, what the processor asks for, and ``engine.extra``. Needs no vllm."""

from __future__ import annotations

import json
from typing import Any

from lakelabel_udfs.device import cpu_dtype
from lakelabel_udfs.specs import EngineSpec

CPU_BLOCK_SIZE = 32
"""Tokens of a cache block on a CPU. Only whole blocks of the shared head are cached: with vLLM's 128 a head of 90
caches nothing, and with 32, the least that its kernels like, labelling was 1.8 to 2.1 times as fast."""


def llm_arguments(spec: EngineSpec, on_cpu: bool, flags: frozenset[str]) -> dict[str, Any]:
    """The arguments of ``LLM``; vLLM's own defaults wherever nothing here knows better.

    ``engine.extra`` has the last word: which of its keys would spoil the scores or the prompts is checked on the driver,
    with the other settings.
    """
    arguments: dict[str, Any] = {
        "model": spec.model,
        "revision": spec.revision,
        "tokenizer_revision": spec.revision,
        "max_model_len": spec.max_model_len,
        "gpu_memory_utilization": spec.gpu_memory_utilization,
        "tensor_parallel_size": spec.tensor_parallel_size,
        "enable_prefix_caching": True,
        "use_tqdm_on_load": False,  # a bar of its own would break through the progress of the run
    }
    if spec.max_num_seqs is not None:
        arguments["max_num_seqs"] = spec.max_num_seqs
    if spec.max_num_batched_tokens is not None:
        arguments["max_num_batched_tokens"] = spec.max_num_batched_tokens
    if on_cpu:
        arguments.update(dtype=cpu_dtype(flags), block_size=CPU_BLOCK_SIZE, enforce_eager=True)
    return {**arguments, **json.loads(spec.extra)}
