"""What vLLM is told, without vLLM."""

from __future__ import annotations

import json

from lakelabel_udfs.engines.arguments import llm_arguments
from lakelabel_udfs.specs import EngineSpec


def spec(**changes: object) -> EngineSpec:
    return EngineSpec(**{"kind": "vllm", "model": "m", "model_id": "m", "model_revision": None, **changes})  # type: ignore[arg-type]


def test_on_a_gpu_vllm_keeps_its_own_defaults() -> None:
    """Only what the settings say is passed on."""
    assert llm_arguments(spec(revision="abc"), False, frozenset()) == {
        "model": "m",
        "revision": "abc",
        "tokenizer_revision": "abc",
        "max_model_len": 2048,
        "gpu_memory_utilization": 0.92,
        "tensor_parallel_size": 1,
        "enable_prefix_caching": True,
        "use_tqdm_on_load": False,
    }


def test_on_a_cpu_dtype_follows_the_processor_and_blocks_are_small() -> None:
    """Blocks of 32 tokens cache most of a short head."""
    arguments = llm_arguments(spec(max_num_seqs=8, max_num_batched_tokens=4096), True, frozenset({"avx2"}))
    assert (arguments["dtype"], arguments["block_size"], arguments["enforce_eager"]) == ("float32", 32, True)
    assert (arguments["max_num_seqs"], arguments["max_num_batched_tokens"]) == (8, 4096)
    assert llm_arguments(spec(), True, frozenset({"avx512_bf16"}))["dtype"] == "bfloat16"


def test_extra_passes_through_and_wins() -> None:
    """Whatever else vLLM takes is the user's to set."""
    extra = json.dumps({"dtype": "float32", "block_size": 128, "quantization": "fp8"})
    arguments = llm_arguments(spec(extra=extra), True, frozenset({"avx512_bf16"}))
    assert (arguments["dtype"], arguments["block_size"], arguments["quantization"]) == ("float32", 128, "fp8")
