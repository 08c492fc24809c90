"""A job: settings and task bound to a session, checked whole before anything is touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakelabel.canonical import canonical_json, sha256_hex
from lakelabel.errors import PromptRefused, RunUnfinished, SettingsError
from lakelabel.facts import Gate
from lakelabel.ledger import Ledger, Run
from lakelabel.model import ModelName, name_model
from lakelabel.plan import Scope
from lakelabel.settings import Settings, check_model, result_digest
from lakelabel.source import Source, open_source
from lakelabel.tables import Tables, in_list
from lakelabel.task import Task, definition, prompt_digest, prompt_version
from lakelabel_udfs.schema import RUNS
from lakelabel_udfs.specs import EngineSpec, LabelSpec, PromptSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIER = "first"


@dataclass(frozen=True)
class Options:
    """What the command line says beside the settings; ``retry`` are the failure codes that a retry takes up, none for
    classify."""

    limit: int | None = None
    allow_model_change: bool = False
    allow_source_change: bool = False
    retry: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """Everything that a run is made from."""

    settings: Settings
    task: Task
    options: Options
    tables: Tables
    source: Source
    model: ModelName
    have_tables: bool

    @property
    def prompt_version(self) -> str:
        """The prompt_version that this job labels under."""
        return prompt_version(self.task, self.settings.source.text, self.settings.quality.overflow)

    @property
    def prompt_digest(self) -> str:
        """The whole digest that the prompt_version begins."""
        return prompt_digest(self.task, self.settings.source.text, self.settings.quality.overflow)

    @property
    def prompt_definition(self) -> Mapping[str, Any]:
        """What the digest is of."""
        return definition(self.task, self.settings.source.text, self.settings.quality.overflow)

    @property
    def settings_digest(self) -> str:
        """Digest of everything that can change a result; an unfinished run with another one is not continued."""
        digest = result_digest(self.settings, self.task, self.options.limit, TIER)
        retry = [["retry", *self.options.retry]] if self.options.retry else []
        return sha256_hex([digest, self.model.model_id, self.model.model_revision, *retry])

    @property
    def public_json(self) -> str:
        """The settings as ``runs`` keeps them, canonical JSON without secrets. Beside them stands what bounds the scope:
        ``limit`` and, of a retry, its codes as ``retry``; without both, a run is about its whole source."""
        bounds = {"limit": self.options.limit, "retry": list(self.options.retry)}
        return canonical_json({**self.settings.public(), **{name: bound for name, bound in bounds.items() if bound}})

    @property
    def scope(self) -> Scope:
        """What plan is told."""
        return Scope(
            self.source,
            self.settings.source,
            self.options.limit,
            self.prompt_version,
            self.model.model_id,
            self.model.model_revision,
            self.settings.engine.max_model_len,
            self.gate.settles(),
            self.options.retry,
        )

    @property
    def gate(self) -> Gate:
        """The quality gate of every fact of a model."""
        quality = self.settings.quality
        return Gate(quality.min_confidence, quality.min_label_mass, self.options.retry)

    @property
    def engine_spec(self) -> EngineSpec:
        """What travels to the executors about the engine."""
        return engine_spec(self.settings, self.model)

    @property
    def prompt_spec(self) -> PromptSpec:
        """What travels to the executors about the prompt."""
        return prompt_spec(self.task, self.prompt_version, self.settings)


def open_job(spark: SparkSession, settings: Settings, task: Task, options: Options) -> Job:
    """Check everything that can be checked without writing, and bind it. Raises SettingsError."""
    check_model(settings)
    if options.limit is not None and options.limit < 1:
        raise SettingsError("--limit", options.limit, "give at least 1, or leave it out")
    tables = Tables(settings.tables.root, settings.tables.deletion_vectors, settings.tables.history_days)
    source = open_source(spark, settings.source, tables)
    tables.check(spark)
    job = Job(settings, task, options, tables, source, name_model(settings.engine), tables.exists(spark))
    if options.retry:
        check_ready_to_retry(spark, job)
    if job.have_tables:
        check_unchanged(spark, job)
        runs = Ledger(spark, tables).runs(job.prompt_version)
        if any(run.settings_digest == job.settings_digest for run in runs):
            return job  # an earlier start has checked this prompt with this model
    if settings.engine.kind == "vllm":
        _check_prompt(job)
    return job


def check_ready_to_retry(spark: SparkSession, job: Job) -> None:
    """Raise RunUnfinished where a run of classify has not ended: it will say itself what becomes of its documents, and a
    retry would close it. Raises SettingsError where there are no tables."""
    if not job.have_tables:
        raise SettingsError("tables.root", job.tables.root, "it holds no tables; run classify first")
    unfinished = (
        job.tables.read(spark, RUNS)
        .where(f"prompt_version = {in_list([job.prompt_version])} AND state = 'ready'")
        .where("get_json_object(settings, '$.retry') IS NULL")
        .select("run_id")
        .orderBy("seq")
        .collect()
    )
    if unfinished:
        raise RunUnfinished(
            f"run {unfinished[0]['run_id']} is unfinished; run classify first, which ends it, then retry"
        )


def engine_spec(settings: Settings, model: ModelName) -> EngineSpec:
    """The spec of the settings' engine."""
    engine = settings.engine
    return EngineSpec(
        kind=engine.kind,
        # A relative folder means nothing in the working directory of an executor.
        model=str(Path(engine.model).absolute()) if engine.model and Path(engine.model).is_dir() else engine.model,
        model_id=model.model_id,
        model_revision=model.model_revision,
        revision=engine.revision,
        max_model_len=engine.max_model_len,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        tensor_parallel_size=engine.tensor_parallel_size,
        window=engine.window,
        stall_seconds=engine.stall_seconds,
        extra=canonical_json(engine.extra),
    )


def prompt_spec(task: Task, version: str, settings: Settings) -> PromptSpec:
    """The spec of the task's prompt."""
    return PromptSpec(
        prompt_version=version,
        instruction=task.instruction,
        labels=tuple(LabelSpec(label.name, label.description) for label in task.labels),
        examples=tuple((example.text, example.label) for example in task.examples),
        answer_prefix=task.answer_prefix,
        scoring=task.scoring,
        chat_template_kwargs=tuple(sorted(task.chat_template_kwargs.items())),
        overflow=settings.quality.overflow,
    )


def _check_prompt(job: Job) -> None:
    """Assemble the prompt once with the model's tokenizer, where this machine has both; else the executors do it first."""
    from importlib.util import find_spec

    if find_spec("transformers") is None or not Path(str(job.settings.engine.model)).is_dir():
        return
    from lakelabel_udfs.engines.protocol import BadSettings
    from lakelabel_udfs.prompt import Prompt, load_tokenizer

    spec = job.engine_spec
    try:
        tokenizer = load_tokenizer(spec)
    except Exception as error:  # a broken file raises whatever its parser does
        remedy = (
            f"its tokenizer cannot be loaded ({type(error).__name__}); give a folder with tokenizer.json and its config"
        )
        raise SettingsError("engine.model", spec.model, remedy) from error
    try:
        Prompt.of(tokenizer, job.prompt_spec, spec.max_model_len)
    except BadSettings as error:
        raise PromptRefused(str(error)) from error
    except Exception as error:  # a chat template is a program, and fails as one
        remedy = f"its chat template fails ({type(error).__name__}); mend it, or task.chat_template_kwargs"
        raise SettingsError("engine.model", spec.model, remedy) from error


def check_unchanged(spark: SparkSession, job: Job) -> None:
    """Raise SettingsError where this prompt_version was labelled by another model, or from another source, and the options
    do not allow it."""
    last = Ledger(spark, job.tables).newest_writer(job.prompt_version)
    if last is None:
        return
    if not _is_of_model(job, last):
        raise SettingsError(
            "engine.model",
            job.settings.engine.model,
            f"{job.prompt_version} was labelled by {last.model_id} (revision {last.model_revision}) and this is "
            f"{job.model.model_id} (revision {job.model.model_revision}); go back to it, or give --allow-model-change",
        )
    if not _is_of_source(job, last):
        raise SettingsError(
            "source.table",
            job.settings.source.table,
            f"{job.prompt_version} labels {last.source_table}; go back to it, or give --allow-source-change",
        )


def may_stand_beside(job: Job, run: Run) -> bool:
    """Whether what another run has written may be labels of this job's prompt_version as well: see ``check_unchanged``."""
    return _is_of_model(job, run) and _is_of_source(job, run)


def _is_of_model(job: Job, run: Run) -> bool:
    same = (job.model.model_id, job.model.model_revision) == (run.model_id, run.model_revision)
    return same or job.options.allow_model_change


def _is_of_source(job: Job, run: Run) -> bool:
    return job.source.table == run.source_table or job.options.allow_source_change
