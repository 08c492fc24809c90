from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakelabel import task as module
from lakelabel.errors import SettingsError
from lakelabel.task import Task, definition, load_task, prompt_digest, prompt_version

LEAST: dict[str, Any] = {"name": "document_type", "instruction": "What kind is it?", "labels": ["invoice", "other"]}
TEXT = "{{ body }}"


def loaded(folder: Path, **changes: object) -> Task:
    path = folder / "task.yml"
    path.write_text(yaml.safe_dump({**LEAST, **changes}, allow_unicode=True), encoding="utf-8")
    return load_task(path)


def complaints(folder: Path, **changes: object) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        loaded(folder, **changes)
    return str(caught.value).splitlines()


def test_the_least_task_has_the_documented_defaults(tmp_path: Path) -> None:
    """Name, instruction and labels suffice; labels may be plain words or have descriptions."""
    task = loaded(tmp_path, labels=["invoice", {"name": "other", "description": "all else"}])
    assert [(label.name, label.description) for label in task.labels] == [("invoice", ""), ("other", "all else")]
    assert (task.answer_prefix, task.scoring, task.examples, task.chat_template_kwargs) == ("Label:", "auto", (), {})


def test_outer_whitespace_of_prose_is_not_part_of_the_task(tmp_path: Path) -> None:
    """The newline that a YAML block scalar ends in does not change what is asked, nor the prompt_version."""
    block = loaded(
        tmp_path, instruction="What kind is it?\n", labels=["invoice", {"name": "other", "description": "\n"}]
    )
    assert block == loaded(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Document type"}, "task.name is 'Document type'; give a lower-case letter"),
        ({"name": "a" * 42}, "task.name is 'aaa"),
        ({"name": "a\n"}, r"task.name is 'a\n'; give a lower-case letter"),
        ({"name": ""}, "task.name is ''; give a lower-case letter"),
        ({"instruction": "  \n"}, "task.instruction is ''; give some text"),
        ({"labels": []}, "task.labels is []; give at least one label"),
        ({"labels": "invoice"}, "task.labels is 'invoice'; give a list"),
        ({"labels": ["a", " \t "]}, r"task.labels[1].name is ' \t '; give a name that can be seen"),
        ({"labels": ["a", ""]}, "task.labels[1].name is ''; give a name that can be seen"),
        ({"labels": ["a", "\u200b\u00a0"]}, r"task.labels[1].name is '\u200b\xa0'; give a name that can be seen"),
        ({"labels": ["a", " b"]}, "task.labels[1].name is ' b'; take the whitespace around it out"),
        ({"labels": ["a", "b\nc"]}, r"task.labels[1].name is 'b\nc'; take the line breaks and control characters out"),
        ({"labels": ["a", "b\u2028c"]}, r"task.labels[1].name is 'b\u2028c'; take the line breaks"),
        ({"labels": ["a", "b", "a"]}, "task.labels[2].name is 'a'; name each label once: 'a' is the same"),
        (
            {"labels": ["Straße", "STRASSE"]},
            "task.labels[1].name is 'STRASSE'; name each label once: 'Straße' is the same",
        ),
        ({"labels": ["caf\u00e9", "cafe\u0301"]}, "task.labels[1].name is 'cafe\u0301'; name each label once"),
        ({"labels": ["a", True]}, "task.labels[1] is true; give a name, or a mapping of name and description; quote"),
        ({"labels": ["a", {"description": "b"}]}, "task.labels[1].name is missing; give it"),
        (
            {"labels": ["a", {"name": "b", "descripton": "c"}]},
            "task.labels[1].descripton is 'c'; no such setting: did you mean task.labels[1].description?",
        ),
        (
            {"labels": ["a", {"name": "b", "x": "c"}]},
            "task.labels[1].x is 'c'; no such setting: take it out; task.labels[1] has name, description",
        ),
        ({"examples": [{"text": "x", "label": "bill"}]}, "task.examples[0].label is 'bill'; give the name of one of"),
        ({"examples": [{"text": "", "label": "other"}]}, "task.examples[0].text is ''; give some text"),
        ({"answer_prefix": "Label: "}, "task.answer_prefix is 'Label: '; take the whitespace at its end out"),
        ({"scoring": "constrained"}, "task.scoring is 'constrained'; give auto, label_token or trie"),
        ({"chat_template_kwargs": {"a": [1]}}, "task.chat_template_kwargs.a is [1]; give text, a number, true, false"),
        ({"chat_template_kwargs": {"a": float("nan")}}, "task.chat_template_kwargs.a is nan; give a finite number"),
        ({"chat_template_kwargs": {"tokenize": False}}, "task.chat_template_kwargs.tokenize is false; leave it out"),
        ({"multi_label": True}, "task.multi_label is true; no such setting"),
        ({"instructions": "x"}, "task.instructions is 'x'; no such setting: did you mean task.instruction?"),
    ],
)
def test_a_bad_task_is_refused_with_key_value_and_remedy(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Each mistake in a task file is one line that begins with its key, down to the label's number."""
    (line,) = complaints(tmp_path, **changes)
    assert line.startswith(message)


def test_all_mistakes_of_a_task_are_reported_at_once(tmp_path: Path) -> None:
    """Three mistakes give three lines; examples are not compared with labels that are wrong themselves."""
    lines = complaints(tmp_path, name="X", labels=["a", "A"], examples=[{"text": "t", "label": "a"}], scoring="x")
    assert [line.split(" ")[0] for line in lines] == ["task.name", "task.labels[1].name", "task.scoring"]


def test_unquoted_yes_and_no_are_labels(tmp_path: Path) -> None:
    """`no` is the word and not false, and 007 is the word and not 7: labels come as they are written."""
    path = tmp_path / "task.yml"
    path.write_text("name: t\ninstruction: q\nlabels: [yes, no, on, 007, 2024-01-01, 1_0, 1:30]\n")
    assert [label.name for label in load_task(path).labels] == ["yes", "no", "on", "007", "2024-01-01", "1_0", "1:30"]


def test_a_task_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The message holds the whole path, since it is relative to the settings file's folder."""
    with pytest.raises(SettingsError, match=re.escape(f"task is '{tmp_path}/none.yml'; name a file that can be read")):
        load_task(tmp_path / "none.yml")


def test_broken_yaml_in_a_task_names_its_key(tmp_path: Path) -> None:
    """A key given twice in a task file is named below `task`."""
    path = tmp_path / "task.yml"
    path.write_text("name: a\nname: b\n")
    with pytest.raises(SettingsError, match=r"^task.name is 'b'; give it once"):
        load_task(path)


def test_the_prompt_version_is_the_name_and_twelve_digits() -> None:
    """A known task has a known prompt_version: were it another tomorrow, every label would be paid for again."""
    task = Task.model_validate(LEAST)
    digest = prompt_digest(task, TEXT, "quarantine")
    assert digest == "0ce77282169a7b775792ebe2f8f848d15a33c73fc6e1920721d9476af5197ae4"
    assert prompt_version(task, TEXT, "quarantine") == f"document_type-{digest[:12]}"


@pytest.mark.parametrize(
    "changes",
    [
        {"instruction": "Which kind?"},
        {"labels": ["other", "invoice"]},
        {"labels": ["invoice", "other", "contract"]},
        {"labels": ["invoice", {"name": "other", "description": "x"}]},
        {"examples": [{"text": "t", "label": "other"}]},
        {"answer_prefix": "Answer:"},
        {"answer_prefix": ""},
        {"scoring": "trie"},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
)
def test_whatever_changes_the_prompt_changes_its_version(changes: dict[str, Any]) -> None:
    """Every part of a task, the order of its labels included, decides the prompt_version."""
    other = Task.model_validate({**LEAST, **changes})
    assert prompt_version(other, TEXT, "quarantine") != prompt_version(Task.model_validate(LEAST), TEXT, "quarantine")


def test_text_overflow_and_layout_are_part_of_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another template, another overflow policy or other fixed wording is another prompt."""
    task = Task.model_validate(LEAST)
    versions = {
        prompt_version(task, TEXT, "quarantine"),
        prompt_version(task, "{{ title }}", "quarantine"),
        prompt_version(task, TEXT, "head"),
    }
    monkeypatch.setattr(module, "PROMPT_LAYOUT", module.PROMPT_LAYOUT + 1)
    versions.add(prompt_version(task, TEXT, "quarantine"))
    assert len(versions) == 4


def test_the_version_does_not_depend_on_the_order_of_keys() -> None:
    """The same task written in another order is the same prompt."""
    one = Task.model_validate({**LEAST, "chat_template_kwargs": {"a": 1, "b": "x"}})
    two = Task.model_validate(dict(reversed({**LEAST, "chat_template_kwargs": {"b": "x", "a": 1}}.items())))
    assert prompt_digest(one, TEXT, "head") == prompt_digest(two, TEXT, "head")


def test_the_definition_says_everything_but_the_name() -> None:
    """The definition holds each field of a task: one that is added later cannot be forgotten here."""
    told = definition(Task.model_validate(LEAST), TEXT, "head")
    assert set(told) == {*Task.model_fields, "layout", "text", "overflow"} - {"name"}
    assert told["labels"] == [{"name": "invoice", "description": ""}, {"name": "other", "description": ""}]
