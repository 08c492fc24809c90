"""vLLM in the worker's own process. Written against vLLM 0.32 (0.31 on Python 3.10); the one module that imports it."""

from __future__ import annotations

import inspect
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import count
from typing import Any

from lakelabel_udfs.device import cpu_flags, engine_environment, task_gpus
from lakelabel_udfs.engines.arguments import llm_arguments
from lakelabel_udfs.engines.protocol import BadSettings, EngineDied
from lakelabel_udfs.orphans import guard_children, guarded
from lakelabel_udfs.outcome import Failure, Outcome
from lakelabel_udfs.prompt import Prompt, load_tokenizer
from lakelabel_udfs.scoring import Query, Walk
from lakelabel_udfs.specs import EngineSpec, PromptSpec

_DEVICE_ERROR = re.compile(r"(?:CUDA|HIP|NCCL|cuBLAS|CUBLAS|cuDNN|CUDNN) ")


@dataclass(frozen=True)
class _Limits:
    """How much may be in flight: documents, and tokens that the prefix cache does not hold."""

    documents: int
    tokens: int
    fixed: bool


class LoadedVllm:
    """A vLLM engine with its model loaded. One a process: close it before another is made."""

    def __init__(self, spec: EngineSpec) -> None:
        """Load the model: seconds to minutes. Raises BadSettings for what vLLM refuses."""
        if spec.model is None:
            raise BadSettings("engine.model is missing; name a folder or a model's id")
        os.environ.update(engine_environment(spec.model, task_gpus(), os.environ))
        guard_children()
        # Here, since it takes seconds, and reads the environment that was set just now.
        import vllm
        from vllm.platforms import current_platform

        if current_platform.is_cpu():
            # vLLM compiles one small function of its sampler, which takes seconds a load and a C++ compiler.
            os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
            _do_without_lscpu()
        arguments = llm_arguments(spec, current_platform.is_cpu(), cpu_flags())
        known = {*inspect.signature(vllm.LLM.__init__).parameters, *(f.name for f in fields(vllm.EngineArgs))}
        for key in arguments:
            if key not in known:
                raise BadSettings(f"engine.extra.{key}: vLLM {vllm.__version__} does not know it; remove or rename it")
        _refuse_orphans(arguments)
        try:
            self._llm: Any = vllm.LLM(**arguments)
        except (ValueError, TypeError) as error:
            raise BadSettings(f"engine: vLLM {vllm.__version__} refuses these settings: {error}") from error
        self.name = f"vllm {vllm.__version__.partition('+')[0]}"
        self._spec = spec
        self.tokenizer = load_tokenizer(spec)
        self._numbers = count()

    def bind(self, prompt: PromptSpec) -> VllmEngine:
        """Bind a prompt. Raises BadPrompt."""
        engine = self._llm.llm_engine
        config = engine.vllm_config
        holds = _cache_tokens(config.cache_config)
        # A request that the cache cannot hold would wait in vLLM for ever.
        assembled = Prompt.of(self.tokenizer, prompt, min(config.model_config.max_model_len, holds))
        cached = assembled.cacheable(config.cache_config.block_size)
        steps = 3 * config.scheduler_config.max_num_batched_tokens
        limits = _Limits(
            documents=self._spec.window or 4 * config.scheduler_config.max_num_seqs,
            tokens=min(steps, holds - cached),
            fixed=self._spec.window is not None,
        )
        return VllmEngine(engine, assembled, limits, cached, self._numbers)

    def close(self) -> None:
        """End the engine and give its memory back, so that another can be loaded in this process."""
        import gc

        from vllm.distributed import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        gc.collect()
        cleanup_dist_env_and_memory()


def _of_a_device(error: Exception) -> str:
    """What a device's error says, which somebody must mend; any other text may quote a prompt."""
    first = str(error).partition("\n")[0][:200]
    return f": {first}" if _DEVICE_ERROR.match(first) else ""


def _cache_tokens(cache: Any) -> int:
    """How many tokens of one request vLLM's ``CacheConfig`` has room for. One block of the cache is never given out.

    vLLM knows better than blocks times their size for models that keep several caches; 0.31 does not say it.
    """
    told = getattr(cache, "kv_cache_size_tokens", None)
    return int(cache.num_gpu_blocks * cache.block_size if told is None else told) - int(cache.block_size)


def _refuse_orphans(arguments: Mapping[str, Any]) -> None:
    """Raise BadSettings for an engine of several processes that could outlive this one."""
    width = arguments["tensor_parallel_size"] * arguments.get("pipeline_parallel_size", 1)
    if (width > 1 or os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] != "0") and not guarded():
        raise BadSettings(
            "engine: its processes would outlive a worker that is killed, for vLLM cannot find lakelabel's plugin; "
            "install the wheel, or ship it whole, with its .dist-info folder"
        )


def _do_without_lscpu() -> None:
    """Let vLLM count processors by itself where the program that it asks is not installed, as it does on other systems."""
    if shutil.which("lscpu") is None:
        from vllm.utils import cpu_resource_utils as processors

        processors._get_cpu_list = processors._synthesize_cpu_list


@dataclass
class _Flight:
    """A document in the engine."""

    document: list[int]
    walk: Walk
    uncached: int
    requests: set[str]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    @property
    def tokens(self) -> tuple[int, int, int]:
        """Prompt, cached and completion tokens so far."""
        return self.prompt_tokens, self.cached_tokens, self.completion_tokens


class VllmEngine:
    """vLLM bound to one prompt: one forward pass a document, and one more for each branch of labels worth a look."""

    def __init__(self, engine: Any, prompt: Prompt, limits: _Limits, cached_head: int, numbers: Iterator[int]) -> None:
        """engine: vLLM's ``LLMEngine``; numbers: what its requests are called, unique for all prompts."""
        self._engine = engine
        self.prompt = prompt
        self._limits = limits
        self._cached_head = cached_head
        self._numbers = numbers
        self._flights: dict[int, _Flight] = {}
        self._requests: dict[str, tuple[int, Query]] = {}
        self._finished: list[tuple[int, Outcome]] = []
        self._parameters: dict[tuple[int, ...], Any] = {}
        self._uncached = 0

    @property
    def in_flight(self) -> int:
        """Documents that were added and not returned."""
        return len(self._flights) + len(self._finished)

    @property
    def window(self) -> int:
        """``engine.window`` where it is set. Else there is room for one more document until three steps' worth of
        uncached tokens are in flight, the cache is spoken for, or four times ``max_num_seqs`` documents are."""
        if self._limits.fixed:
            return self._limits.documents
        room = self._uncached < self._limits.tokens and self.in_flight < self._limits.documents
        return self.in_flight + 1 if room or not self.in_flight else self.in_flight

    def prepare(self, texts: Sequence[str]) -> list[list[int] | Failure]:
        """The document ids of each text; see ``Prompt.prepare``."""
        return self.prompt.prepare(texts)

    def add(self, key: int, prepared: list[int]) -> None:
        """Submit a document's first pass."""
        uncached = len(self.prompt.head) - self._cached_head + len(prepared) + len(self.prompt.tail)
        flight = self._flights[key] = _Flight(prepared, Walk(self.prompt.trie), uncached, set())
        self._uncached += uncached
        self._ask(key, flight)

    def step(self) -> list[tuple[int, Outcome]]:
        """One step of vLLM, and the documents that it settled."""
        if self._requests:
            try:
                outputs = self._engine.step()
            except Exception as error:  # whatever is raised in the core leaves it in an unknown state
                raise EngineDied(f"vLLM failed in a step: {type(error).__name__}{_of_a_device(error)}") from error
            for output in outputs:
                if output.finished:
                    self._take(output)
            if self._requests and not self._engine.has_unfinished_requests():
                raise EngineDied(f"vLLM lost {len(self._requests)} requests")
        finished, self._finished = self._finished, []
        return finished

    def abort(self) -> None:
        """Take back everything in flight."""
        self._engine.abort_request(list(self._requests))
        self._requests.clear()
        self._flights.clear()
        self._finished.clear()
        self._uncached = 0

    def _ask(self, key: int, flight: _Flight) -> None:
        """Submit the next round of a document's requests, or settle it."""
        queries = flight.walk.queries()
        if not queries:
            self._settle(key, flight.walk.outcome(flight.tokens))
        for query in queries:
            request, ids = str(next(self._numbers)), self.prompt.ids(flight.document, query.path)
            try:
                self._engine.add_request(
                    request, {"type": "token", "prompt_token_ids": ids}, self._sampling(query.candidates)
                )
            except ValueError as error:
                # Its text may quote the prompt, so only its name is kept.
                message = f"vLLM refused a request of {len(ids)} tokens: {type(error).__name__}"
                self._settle(key, Failure("rejected", message, *flight.tokens))
                return
            self._requests[request] = (key, query)
            flight.requests.add(request)
            flight.prompt_tokens += len(ids)

    def _settle(self, key: int, outcome: Outcome) -> None:
        flight = self._flights.pop(key)
        self._uncached -= flight.uncached
        if flight.requests:
            self._engine.abort_request(list(flight.requests))
            for request in flight.requests:
                del self._requests[request]
        self._finished.append((key, outcome))

    def _take(self, output: Any) -> None:
        """Take one finished request's scores. The sampled token's come with them, first, so they go by token id."""
        if output.request_id not in self._requests:
            raise EngineDied(f"vLLM returned request {output.request_id}, which is not in flight")
        key, query = self._requests.pop(output.request_id)
        flight = self._flights[key]
        flight.requests.remove(output.request_id)
        flight.cached_tokens += output.num_cached_tokens or 0
        flight.completion_tokens += 1
        scores = output.outputs[0].logprobs if output.outputs else None
        flight.walk.tell(query, dict(zip(scores.token_ids, scores.logprobs, strict=True)) if scores else {})
        if not flight.requests:
            self._ask(key, flight)

    def _sampling(self, candidates: tuple[int, ...]) -> Any:
        """Parameters that return the scores of ``candidates`` and nothing else; made once, as vLLM may reuse them."""
        if candidates not in self._parameters:
            from vllm import SamplingParams
            from vllm.sampling_params import RequestOutputKind

            self._parameters[candidates] = SamplingParams(
                max_tokens=1,
                temperature=0.0,
                logprob_token_ids=list(candidates),
                detokenize=False,
                flat_logprobs=True,
                output_kind=RequestOutputKind.FINAL_ONLY,
                skip_clone=True,
            )
        return self._parameters[candidates]
