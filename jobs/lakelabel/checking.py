"""Check plain values against a pydantic model and say what is wrong in our own words, never in pydantic's."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from lakelabel.canonical import public
from lakelabel.errors import MISSING, Problem, SettingsError

Model = TypeVar("Model", bound=BaseModel)

_OURS = "lakelabel"


def validated(model: type[Model], value: object, prefix: str = "") -> Model:
    """Return `value` as a `model`, or raise one SettingsError with a problem for each mistake.

    prefix: what stands before every key in messages (`task` for a task file).
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = [p for detail in error.errors(include_url=False) for p in _problems(detail, model, prefix)]
        raise SettingsError.of(found) from None


def wrong(remedy: str) -> PydanticCustomError:
    """Return what a validator raises to say what to do about its own value."""
    return PydanticCustomError(_OURS, "{remedy}", {"remedy": remedy})


def wrong_below(problems: Sequence[Problem]) -> PydanticCustomError:
    """Return what a validator raises about parts of its value; each key begins with `.name` or `[index]`."""
    return PydanticCustomError(_OURS, "wrong", {"below": tuple(problems)})


def _problems(detail: ErrorDetails, model: type[BaseModel], prefix: str) -> Iterator[Problem]:
    key = prefix
    for step in detail["loc"]:
        key += f"[{step}]" if isinstance(step, int) else f".{step}" if key else str(step)
    value, context = detail["input"], detail.get("ctx", {})
    if detail["type"] == _OURS and "below" in context:
        for problem in context["below"]:
            below = f"{key}{problem.key}"
            yield Problem(below, public(problem.value, below), problem.remedy)
    elif detail["type"] == "missing":
        yield Problem(key, MISSING, "give it")
    elif detail["type"] == "extra_forbidden":
        yield Problem(key, public(value, key), _unknown(key, model, prefix))
    else:
        yield Problem(key, public(value, key), _remedy(detail["type"], context, value))


def _unknown(key: str, model: type[BaseModel], prefix: str) -> str:
    known = [f"{prefix}.{name}" if prefix else name for name in _keys(model)]
    section, _, leaf = key.rpartition(".")
    # Known keys have no indexes: the keys of a list's items are the same for each.
    bare = re.sub(r"\[\d+\]", "", section)
    here = [_leaf(name) for name in known if name.rpartition(".")[0] == bare]
    if near := difflib.get_close_matches(leaf, here, n=1, cutoff=0.7):
        return f"no such setting: did you mean {section + '.' if section else ''}{near[0]}?"
    if misplaced := difflib.get_close_matches(leaf, map(_leaf, known), n=1, cutoff=0.85):
        return f"no such setting: did you mean {next(name for name in known if _leaf(name) == misplaced[0])}?"
    return f"no such setting: take it out; {section or 'the file'} has {', '.join(here)}"


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield name
        for below in _models(field.annotation):
            yield from (f"{name}.{key}" for key in _keys(below))


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The models that a field holds: itself, or the items of its tuple."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _remedy(kind: str, context: dict[str, Any], value: object) -> str:
    if "remedy" in context:
        return str(context["remedy"])
    if kind in _WANTED:
        wanted = f"give {_WANTED[kind]}"
        return f"{wanted}, without quotes" if isinstance(value, str) and kind in _NOT_QUOTED else wanted
    if kind == "literal_error":
        return "give " + str(context["expected"]).replace("'", "")
    for bound, words in _BOUNDS.items():
        if bound in context:
            return f"give {words} {context[bound]}"
    return "give another value"


_NOT_QUOTED = ("int_type", "float_type", "bool_type")
_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text (quote it if it looks like a number, true, false or null)",
    "finite_number": "a finite number",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "string_too_short": "some text",
    "path_type": "a path",
    "is_instance_of": "a path",
    "tuple_type": "a list",
}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
