"""The sections of the settings, each with its names, defaults and bounds."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from lakelabel.checking import wrong, wrong_below
from lakelabel.errors import SettingsError
from lakelabel.extra import problems_of_extra
from lakelabel.template import compile_template


def _columns(value: object) -> object:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _version(value: object) -> object:
    if value == "latest" or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise wrong("give latest, or the number of a version of the table, at least 0")


def _visible(value: str) -> str:
    if re.search(r"://[^/@]*:[^/@]*@", value):
        raise wrong("take user and password out of it: secrets come from the environment or a secret scope")
    if value.isprintable() and value == value.strip() and value:
        return value
    raise wrong("give text on one line, without whitespace around it")


def _not_yet(what: str) -> BeforeValidator:
    """Refuse anything but null: a setting that nothing reads would be a promise that nothing keeps."""

    def refuse(value: object) -> object:
        if value is not None:
            raise wrong(f"leave it null: {what} is not available in this version yet")
        return value

    return BeforeValidator(refuse)


def _only(default: object) -> AfterValidator:
    """Refuse anything but the default, for the same reason."""

    def refuse(value: object) -> object:
        if value != default:
            raise wrong(f"leave it at {default}: nothing reads it in this version yet")
        return value

    return AfterValidator(refuse)


_Name = Annotated[str, Field(min_length=1)]
_AtLeastOne = Annotated[int, Field(ge=1)]
_Share = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """Frozen; an unknown key, a number in quotes, NaN and infinities are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Source(Section):
    """What is labelled: a Delta table by name or path, the columns of its key, and the text made of its columns."""

    table: _Name
    id: Annotated[tuple[_Name, ...], BeforeValidator(_columns)]
    text: str
    where: str | None = None
    version: Annotated[int | Literal["latest"], BeforeValidator(_version)] = "latest"

    _table = field_validator("table")(_visible)

    @field_validator("id")
    @classmethod
    def _distinct(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        if not columns:
            raise wrong("name at least one column")
        if len({column.casefold() for column in columns}) < len(columns):
            raise wrong("name each column once")
        return columns

    @field_validator("text")
    @classmethod
    def _compiles(cls, text: str) -> str:
        try:
            compile_template(text)
        except SettingsError as error:
            raise wrong(error.problems[0].remedy) from None
        return text

    @field_validator("where")
    @classmethod
    def _says_something(cls, where: str | None) -> str | None:
        if where is not None and not where.strip():
            raise wrong("give a condition in SQL, or null for every row")
        return where


class Tables(Section):
    """Where the output tables stand, and for how many days what they say can be asked for."""

    root: _Name
    audit_days: Annotated[_AtLeastOne, _only(365)] = 365
    history_days: _AtLeastOne = 30
    deletion_vectors: bool = False

    @field_validator("root")
    @classmethod
    def _path_or_schema(cls, root: str) -> str:
        _visible(root)
        if root.startswith("~"):
            raise wrong("write the home folder out: no shell expands it here")
        if not is_path(root) and not re.fullmatch(r"[\w-]+\.[\w-]+", root):
            raise wrong("give a path (with a slash, or ./name) or catalog.schema")
        return root


def is_path(reference: str) -> bool:
    """Whether a table or root is a path: it has a slash, a leading dot or a scheme; everything else is a name."""
    return "/" in reference or reference.startswith(".") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", reference) is not None


class Engine(Section):
    """The model and how it is run; the names and the nulls are vLLM's own."""

    kind: Literal["vllm", "fake"] = "vllm"
    model: str | None = Field(default=None, validate_default=True)
    revision: _Name | None = None
    max_model_len: Annotated[int, Field(ge=16)] = 2048
    max_num_seqs: _AtLeastOne | None = None
    max_num_batched_tokens: _AtLeastOne | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.92
    tensor_parallel_size: _AtLeastOne = 1
    window: _AtLeastOne | None = None
    stall_seconds: Annotated[float, Field(gt=0)] = 600
    # Left out of repr, since a token for a model hub may stand in it.
    extra: dict[str, Any] = Field(default_factory=dict, repr=False)

    @field_validator("model")
    @classmethod
    def _named(cls, model: str | None, info: ValidationInfo) -> str | None:
        if model is None and info.data.get("kind") == "vllm":
            raise wrong("give the model's folder, or its id on the hub")
        return model if model is None else _visible(model)

    @field_validator("extra")
    @classmethod
    def _passed_through(cls, extra: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        # Where kind itself is wrong there are no rules to go by, and that problem is reported already.
        kind = info.data.get("kind")
        if kind and (problems := problems_of_extra(kind, extra, frozenset(cls.model_fields))):
            raise wrong_below(problems)
        return extra


class Queue(Section):
    """How the work is cut and kept; shard_tokens null means 180 s at the rate last measured."""

    shard_tokens: _AtLeastOne | None = None
    lease_seconds: Annotated[int, Field(ge=10)] = 180
    commit_every_seconds: _AtLeastOne = 60


class Stop(Section):
    """When a run that has gone wrong ends itself: once `after` documents are settled, at these shares; null never."""

    after: _AtLeastOne = 2000
    quarantined: _Share | None = 0.5
    one_label: _Share | None = None


class Quality(Section):
    """What is good enough for `labels`; overflow says what becomes of a document that does not fit the model."""

    min_confidence: _Share | None = None
    min_label_mass: _Share | None = None
    overflow: Literal["quarantine", "head", "tail", "head_tail"] = "quarantine"
    stop: Stop = Field(default_factory=Stop)


class Cost(Section):
    """What an hour of one engine slot costs, in any currency, and how much of it one run may spend."""

    price_per_slot_hour: Annotated[float, Field(ge=0)] | None = None
    budget: Annotated[float, Field(gt=0)] | None = None

    @field_validator("budget")
    @classmethod
    def _has_a_price(cls, budget: float | None, info: ValidationInfo) -> float | None:
        # A price that is wrong itself is missing here, and reported already.
        if budget is not None and not info.data.get("price_per_slot_hour", 1):
            raise wrong("give cost.price_per_slot_hour too, more than 0: spending is counted by it")
        return budget


class Mlflow(Section):
    """Where runs are tracked; null: nowhere."""

    tracking_uri: Annotated[str | None, _not_yet("MLflow tracking")] = None
    experiment: Annotated[str | None, _not_yet("MLflow tracking")] = None
