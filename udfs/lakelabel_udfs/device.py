"""What the engine must be told about the machine that it is on, before it is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # the last is how Arm's processors say it


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The flags of the first processor; none where the file is missing or says none."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return next(
        (frozenset(line.partition(":")[2].split()) for line in lines if line.startswith(("flags", "Features"))),
        frozenset(),
    )


def cpu_dtype(flags: frozenset[str]) -> str:
    """``bfloat16`` where the processor multiplies it, else ``float32``: elsewhere bfloat16 takes a reference path that
    does not end in any useful time (AVX2 alone), and float32 runs at the processor's own limit."""
    return "float32" if _BFLOAT16_FLAGS.isdisjoint(flags) else "bfloat16"


def task_gpus() -> tuple[str, ...]:
    """The addresses of the GPUs that Spark gave this task; none outside a task, or where Spark schedules no GPUs."""
    # Here, since engines also run where pyspark is not.
    try:
        from pyspark import TaskContext
    except ImportError:
        return ()
    context = TaskContext.get()
    gpus = context.resources().get("gpu") if context is not None else None
    return tuple(gpus.addresses) if gpus is not None else ()


def engine_environment(model: str, gpus: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to set before vllm or torch is imported. What ``environ`` has already stays as it is, but for the
    GPUs, which Spark decides.

    The engine's core stays in this process: 1.1 ms a document instead of 2.0 on two cores, and it cannot outlive a
    worker that Spark ends without ceremony.
    """
    wanted = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        # Its warnings are hundreds of lines a load, one for each weight that changes dtype; what matters is raised.
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    if Path(model).is_dir():
        wanted["HF_HUB_OFFLINE"] = "1"
    wanted = {name: value for name, value in wanted.items() if name not in environ}
    if gpus:
        wanted["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return wanted
