"""The settings of a run: YAML and `--set key=value`, checked whole before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from lakelabel.canonical import MASK, masked, public, sha256_hex
from lakelabel.checking import validated
from lakelabel.errors import SettingsError
from lakelabel.reading import parse_yaml, read_mapping
from lakelabel.sections import Cost, Engine, Mlflow, Quality, Queue, Section, Source, Tables
from lakelabel.task import Task, prompt_digest


def _path(value: object) -> object:
    return Path(value) if isinstance(value, str) and value.strip() else value


class Settings(Section):
    """All settings of a run. `task` is the task file, absolute once `load` returned it."""

    source: Source
    task: Annotated[Path, BeforeValidator(_path)]
    tables: Tables
    engine: Engine = Field(default_factory=Engine)
    queue: Queue = Field(default_factory=Queue)
    quality: Quality = Field(default_factory=Quality)
    cost: Cost = Field(default_factory=Cost)
    mlflow: Mlflow = Field(default_factory=Mlflow)

    def public(self) -> dict[str, Any]:
        """Return all settings as JSON values, for the `runs` table, with what may be a secret masked."""
        return {name: masked(value, name) for name, value in self.model_dump(mode="json").items()}


def load(path: Path, overrides: Sequence[str] = ()) -> Settings:
    """Return the settings in the YAML file at `path`, with `overrides` (`a.b=value`, the value in YAML) put over them.

    A relative `task` is relative to the file's folder; every other path is left as written. One SettingsError carries
    all mistakes of the file.
    """
    given = _given(path, overrides)
    for name, field in Settings.model_fields.items():
        # A section that is empty or absent is its defaults, and a required key is then missed by its own name.
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section) and given.get(name) is None:
            given[name] = {}
    settings = validated(Settings, given)
    return settings.model_copy(update={"task": path.absolute().parent / settings.task})


def load_tables(path: Path, overrides: Sequence[str] = ()) -> Tables:
    """Return the section `tables` alone, for commands that read what is there whatever the rest of the file says."""
    return validated(Tables, _given(path, overrides).get("tables") or {}, prefix="tables")


def _given(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    given = read_mapping(path, "--conf")
    for override in overrides:
        _override(given, override)
    return given


def _override(given: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    steps = key.strip().split(".")
    if not equals or not all(steps):
        raise SettingsError(
            "--set", f"{key}{equals}{public(text, key)}", "write key=value, as in engine.max_model_len=1024"
        )
    # A template is not quoted twice, for the shell and for YAML, only because YAML reads two braces as a mapping.
    value = text if text.lstrip().startswith("{{") else parse_yaml(text, key, _shown(text, key), within=key)
    section = given
    for i, step in enumerate(steps[:-1]):
        if section.get(step) is None:
            section[step] = {}
        section = section[step]
        if not isinstance(section, dict):
            raise SettingsError(
                key, public(value, key), f"take it out: {'.'.join(steps[: i + 1])} has no settings below it"
            )
    section[steps[-1]] = value


def _shown(text: str, key: str) -> object:
    """What a message may show of YAML that cannot be read; a secret may stand under a key within it."""
    return MASK if masked(text, text) == MASK else public(text, key)


def result_digest(settings: Settings, task: Task, limit: int | None, tier: str = "first") -> str:
    """Return 64 hexadecimal digits of everything that can change a result: an unfinished run goes on only where equal.

    What changes speed or place alone (windows, shards, parallelism, memory, the tables' root, prices) is left out, as are
    the source's version, which a run pins for itself, and secrets.
    """
    engine, quality = settings.engine, settings.quality
    return sha256_hex(
        {
            "source": settings.source.model_dump(mode="json", include={"table", "id", "text", "where"}),
            "limit": limit,
            "prompt": [task.name, prompt_digest(task, settings.source.text, quality.overflow)],
            "engine": masked(engine.model_dump(mode="json", include=set(_RESULTS))),
            "quality": quality.model_dump(mode="json", exclude={"stop"}),
            "tier": tier,
        }
    )


_RESULTS = ("kind", "model", "revision", "max_model_len", "extra")


def check_model(settings: Settings) -> None:
    """Raise SettingsError where `engine.model` is a folder that is not there or holds no model; a hub id passes."""
    model = settings.engine.model
    if settings.engine.kind != "vllm" or model is None:
        return
    folder = Path(model)
    if not (model.startswith((".", "/", "~")) or model.count("/") > 1 or "://" in model or folder.exists()):
        return
    if not folder.is_dir():
        raise SettingsError("engine.model", model, "name a folder that is there, or a model's id on the hub")
    if not (folder / "config.json").is_file():
        raise SettingsError("engine.model", model, "name a folder that holds a config.json, with the weights beside it")
