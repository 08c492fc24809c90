"""Read YAML into plain values; every mistake becomes a key, a value and a remedy.

YAML here is that of the 1.2 core schema: `no`, `on`, `2024-01-01`, `007` and `1:30` are text, which labels are more often
than they are booleans, dates, octal or sexagesimal numbers. A key that stands twice is an error, as is anything but
mappings with text keys, lists, text, numbers, true, false and null.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from lakelabel.canonical import public
from lakelabel.errors import Problem, SettingsError


class _CoreLoader(yaml.SafeLoader):
    """Composes nodes whose plain scalars are resolved by the 1.2 core schema."""


# A class that adds a resolver starts from its parent's, and those of 1.1 are what must not be there.
_CoreLoader.yaml_implicit_resolvers = {}


_SCALARS: dict[str, tuple[re.Pattern[str], Callable[[str], object]]] = {
    "tag:yaml.org,2002:null": (re.compile(r"(?:~|null|Null|NULL|)$"), lambda _: None),
    "tag:yaml.org,2002:bool": (re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), lambda text: text[0] in "tT"),
    "tag:yaml.org,2002:int": (re.compile(r"[-+]?(?:0|[1-9][0-9]*)$"), int),
    "tag:yaml.org,2002:float": (
        re.compile(
            r"(?:[-+]?(?:(?:0|[1-9][0-9]*)?\.[0-9]+|(?:0|[1-9][0-9]*)\.?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
        lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
    ),
}
for _tag, (_pattern, _) in _SCALARS.items():
    _CoreLoader.add_implicit_resolver(_tag, _pattern, None)

_TEXT = "tag:yaml.org,2002:str"


def read_mapping(path: Path, key: str, within: str = "") -> dict[str, Any]:
    """Return the mapping in the YAML file at `path`.

    key: the setting or argument that named the file. within: what stands before the keys inside it in messages.

    Raises SettingsError where there is no such file, or it is not UTF-8, not YAML, or not a mapping.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(key, path, f"save the file as UTF-8: byte {error.start} is not") from None
    except (OSError, ValueError) as error:
        # ValueError: a path with NUL in it.
        said = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(key, path, f"name a file that can be read ({said})") from None
    value = parse_yaml(text, key, path, within)
    if not isinstance(value, dict):
        found = "it is empty" if value is None else f"it is a {type(value).__name__}"
        raise SettingsError(key, path, f"write a mapping of settings there: {found}")
    return value


def parse_yaml(text: str, key: str, shown_as: object, within: str = "") -> Any:
    """Return the value that `text` spells in YAML; errors name `key` and show `shown_as`, or name a key `within`."""
    try:
        node = yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SettingsError(key, shown_as, f"mend the YAML{place}: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        raise SettingsError(key, shown_as, f"take out the character U+{error.character:04X}") from None
    except RecursionError:
        raise SettingsError(key, shown_as, "nest it less deeply") from None
    if node is None:
        return None
    problems: list[Problem] = []
    value = _plain(node, within, (), problems)
    if problems:
        raise SettingsError.of(problems)
    return value


def _plain(node: yaml.Node, key: str, above: tuple[int, ...], problems: list[Problem]) -> Any:
    """Turn a composed node into plain values, adding to `problems` whatever cannot be; `above` are its ancestors."""
    place = f"line {node.start_mark.line + 1}"
    here = key or place
    if id(node) in above:
        problems.append(Problem(here, "an alias", f"take the alias out: it stands inside what it names ({place})"))
        return None
    above = (*above, id(node))
    if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
        found: dict[str, Any] = {}
        for name_node, value_node in node.value:
            place = f"line {name_node.start_mark.line + 1}"
            if not isinstance(name_node, yaml.ScalarNode):
                problems.append(Problem(here, "{…}", f"quote the value if it begins with a brace ({place})"))
                continue
            name = name_node.value
            below = f"{key}.{name}" if key else name
            if name_node.tag != _TEXT:
                problems.append(Problem(below, name, f"make the key text: quote it ({place})"))
            elif name in found:
                again = value_node.value if isinstance(value_node, yaml.ScalarNode) else "…"
                problems.append(
                    Problem(below, public(again, below), f"give it once: this is the second time ({place})")
                )
            else:
                found[name] = _plain(value_node, below, above, problems)
        return found
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        return [_plain(item, f"{key}[{i}]", above, problems) for i, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode) and node.tag == _TEXT:
        if any("\ud800" <= c <= "\udfff" for c in node.value):
            problems.append(Problem(here, public(node.value, here), f"take out the half of a surrogate pair ({place})"))
        return node.value
    if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
        pattern, convert = _SCALARS[node.tag]
        if pattern.match(node.value):
            try:
                return convert(node.value)
            except ValueError:
                # Python refuses to turn more than some thousand digits into an int.
                problems.append(Problem(here, public(node.value, here), f"give a shorter number ({place})"))
                return None
    problems.append(Problem(here, node.tag, f"leave the tag out ({place})"))
    return None
