"""The task: what is asked about each document, and the prompt_version that a set of answers belongs to."""

from __future__ import annotations

import math
import re
import unicodedata
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from lakelabel.canonical import sha256_hex
from lakelabel.checking import validated, wrong, wrong_below
from lakelabel.errors import Problem
from lakelabel.reading import read_mapping

PROMPT_LAYOUT = 1
"""The fixed wording around a task's own words. Whoever changes that wording adds one, so that answers to the new prompt
get a prompt_version of their own."""

_NOT_IN_A_NAME = ("Cc", "Cs", "Zl", "Zp")
_CHAT_TEMPLATE_OWN = (
    *("chat_template", "conversation", "messages", "tokenize", "add_generation_prompt", "continue_final_message"),
    *("return_tensors", "return_dict", "return_assistant_tokens_mask", "padding", "truncation", "max_length"),
    "tokenizer_kwargs",
)


def _mapping_of(label: object) -> object:
    if isinstance(label, str):
        return {"name": label}
    if isinstance(label, dict | Label):
        return label
    raise wrong("give a name, or a mapping of name and description; quote a name like true or 12")


def _tuple_of(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _without_outer_whitespace(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


# YAML's block scalars end in a newline that nobody means, and that would change the prompt_version.
_Prose = Annotated[str, BeforeValidator(_without_outer_whitespace)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Label(_Frozen):
    """One of the answers: the word that the model gives and that the tables carry, and what it means."""

    name: str
    description: _Prose = ""

    @field_validator("name")
    @classmethod
    def _one_clean_line(cls, name: str) -> str:
        if all(c.isspace() or unicodedata.category(c) == "Cf" for c in name):
            raise wrong("give a name that can be seen")
        if name != name.strip():
            raise wrong("take the whitespace around it out")
        if any(unicodedata.category(c) in _NOT_IN_A_NAME for c in name):
            raise wrong("take the line breaks and control characters out")
        return name


class Example(_Frozen):
    """A document with its right label, shown to the model before the one that it is asked about."""

    text: str = Field(min_length=1)
    label: str


class Task(_Frozen):
    """What is asked about each document.

    name: begins every prompt_version. instruction: the question. labels: the answers, in the order in which the prompt
    lists them. answer_prefix: opens the assistant's turn, and the label follows it after one space. scoring: `auto` takes
    label tokens where the labels allow it and the token trie elsewhere. chat_template_kwargs: passed to the model's chat
    template, `{enable_thinking: false}` for instance.
    """

    name: str
    instruction: _Prose = Field(min_length=1)
    labels: Annotated[tuple[Annotated[Label, BeforeValidator(_mapping_of)], ...], BeforeValidator(_tuple_of)]
    examples: Annotated[tuple[Example, ...], BeforeValidator(_tuple_of)] = ()
    answer_prefix: str = "Label:"
    scoring: Literal["auto", "label_token", "trie"] = "auto"
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name):
            raise wrong("give a lower-case letter, then at most 40 lower-case letters, digits and underscores")
        return name

    @field_validator("labels")
    @classmethod
    def _told_apart(cls, labels: tuple[Label, ...]) -> tuple[Label, ...]:
        if not labels:
            raise wrong("give at least one label")
        first: dict[str, Label] = {}
        problems = []
        for i, label in enumerate(labels):
            alike = first.setdefault(unicodedata.normalize("NFKC", label.name).casefold(), label)
            if alike is not label:
                problems.append(Problem(f"[{i}].name", label.name, f"name each label once: {alike.name!r} is the same"))
        if problems:
            raise wrong_below(problems)
        return labels

    @field_validator("examples")
    @classmethod
    def _of_known_labels(cls, examples: tuple[Example, ...], info: ValidationInfo) -> tuple[Example, ...]:
        known = [label.name for label in info.data.get("labels", ())]
        # Without valid labels there is nothing to compare with, and that problem is reported already.
        problems = [
            Problem(f"[{i}].label", example.label, "give the name of one of the task's labels")
            for i, example in enumerate(examples)
            if known and example.label not in known
        ]
        if problems:
            raise wrong_below(problems)
        return examples

    @field_validator("answer_prefix")
    @classmethod
    def _ends_in_ink(cls, prefix: str) -> str:
        if prefix != prefix.rstrip():
            raise wrong(
                "take the whitespace at its end out: the space before a label belongs to the label's first token"
            )
        return prefix

    @field_validator("chat_template_kwargs")
    @classmethod
    def _scalars(cls, kwargs: dict[str, Any]) -> dict[str, Any]:
        problems = []
        for name, value in kwargs.items():
            if name in _CHAT_TEMPLATE_OWN:
                problems.append(Problem(f".{name}", value, "leave it out: it is set for every prompt"))
            elif value is not None and not isinstance(value, str | int | float):
                problems.append(Problem(f".{name}", value, "give text, a number, true, false or null"))
            elif isinstance(value, float) and not math.isfinite(value):
                problems.append(Problem(f".{name}", value, "give a finite number"))
        if problems:
            raise wrong_below(problems)
        return kwargs


def load_task(path: Path) -> Task:
    """Return the task in the YAML file at `path`; SettingsError, with keys that begin with `task`, for all its mistakes."""
    return validated(Task, read_mapping(path, "task", within="task"), prefix="task")


def definition(task: Task, text_template: str, overflow: str) -> dict[str, Any]:
    """Return everything that decides the prompt of a document, as JSON-like values: what a prompt_version stands for."""
    return {
        "layout": PROMPT_LAYOUT,
        "instruction": task.instruction,
        "labels": [{"name": label.name, "description": label.description} for label in task.labels],
        "examples": [{"text": example.text, "label": example.label} for example in task.examples],
        "answer_prefix": task.answer_prefix,
        "scoring": task.scoring,
        "chat_template_kwargs": task.chat_template_kwargs,
        "text": text_template,
        "overflow": overflow,
    }


def prompt_digest(task: Task, text_template: str, overflow: str) -> str:
    """Return the 64 hexadecimal digits of the definition's SHA-256."""
    return sha256_hex(definition(task, text_template, overflow))


def prompt_version(task: Task, text_template: str, overflow: str) -> str:
    """Return `<task name>-<first 12 hexadecimal digits of the digest>`: at most 54 characters of `[a-z0-9_-]`."""
    return f"{task.name}-{prompt_digest(task, text_template, overflow)[:12]}"
