"""What the engine is told about the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelabel_udfs.device import cpu_dtype, cpu_flags, engine_environment, task_gpus


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_bf16\n", "bfloat16"),
        ("flags : avx2 amx_bf16 amx_tile\n", "bfloat16"),
        ("flags : avx avx2 fma\n", "float32"),
        ("processor : 0\nFeatures : fp asimd bf16 i8mm\n", "bfloat16"),
        ("Features : fp asimd\n", "float32"),
        ("", "float32"),
    ],
)
def test_bfloat16_is_chosen_only_where_the_processor_has_it(tmp_path: Path, text: str, dtype: str) -> None:
    """AVX2 alone takes minutes in bfloat16 for what takes seconds in float32."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(text)
    assert cpu_dtype(cpu_flags(cpuinfo)) == dtype


def test_a_machine_without_cpuinfo_has_no_flags(tmp_path: Path) -> None:
    """Other systems say it elsewhere: float32 is always right."""
    assert cpu_flags(tmp_path / "none") == frozenset()


def test_the_gpus_that_spark_gave_win_over_the_environment(tmp_path: Path) -> None:
    """Everything else that the environment says already stays as it is."""
    environ = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "VLLM_CPU_KVCACHE_SPACE": "4", "VLLM_LOGGING_LEVEL": "DEBUG"}
    wanted = engine_environment(str(tmp_path), ("2", "3"), environ)
    assert wanted == {
        "CUDA_VISIBLE_DEVICES": "2,3",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
    }


def test_a_model_that_is_no_folder_may_be_fetched() -> None:
    """HF_HUB_OFFLINE is set for folders alone, and without GPUs from Spark the environment's are left alone."""
    wanted = engine_environment("someone/some-model", (), {})
    assert "HF_HUB_OFFLINE" not in wanted
    assert "CUDA_VISIBLE_DEVICES" not in wanted
    assert wanted["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_outside_a_task_there_are_no_gpus() -> None:
    """A driver or a test is no task."""
    assert task_gpus() == ()
