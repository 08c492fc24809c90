from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakelabel import extra
from lakelabel.errors import Fenced, LakelabelError, LeaseHeld, Problem, RunFailed, SettingsError, Stopped
from lakelabel.sections import is_path as path_rule
from lakelabel.settings import Settings, check_model, load, result_digest
from lakelabel.task import Task

LEAST: dict[str, Any] = {
    "source": {"table": "data/documents", "id": "doc_id", "text": "{{ title }}\n\n{{ body }}"},
    "task": "tasks/document_type.yml",
    "tables": {"root": "data/lakelabel"},
    "engine": {"model": "org/name"},
}
TASK = Task.model_validate({"name": "kind", "instruction": "What is it?", "labels": ["invoice", "other"]})


def written(folder: Path, content: object) -> Path:
    path = folder / "settings.yml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def with_value(key: str, value: object) -> dict[str, Any]:
    """The least settings with `value` at the dotted `key`."""
    content = json.loads(json.dumps(LEAST))
    *sections, name = key.split(".")
    place = content
    for section in sections:
        place = place.setdefault(section, {})
    place[name] = value
    return content


def loaded(folder: Path, *overrides: str, content: object = LEAST) -> Settings:
    return load(written(folder, content), overrides)


def complaint(folder: Path, content: object, *overrides: str) -> list[Problem]:
    with pytest.raises(SettingsError) as caught:
        load(written(folder, content), overrides)
    message = str(caught.value)
    assert message.splitlines() == [str(problem) for problem in caught.value.problems]
    assert "pydantic" not in message and "https://" not in message and "Input should" not in message
    return list(caught.value.problems)


def test_defaults_are_those_of_the_design(tmp_path: Path) -> None:
    """The least settings load, and everything that they leave out has the documented default."""
    assert loaded(tmp_path).model_dump(mode="json") == {
        "source": {
            "table": "data/documents",
            "id": ["doc_id"],
            "text": "{{ title }}\n\n{{ body }}",
            "where": None,
            "version": "latest",
        },
        "task": str(tmp_path / "tasks" / "document_type.yml"),
        "tables": {"root": "data/lakelabel", "audit_days": 365, "history_days": 30, "deletion_vectors": False},
        "engine": {
            "kind": "vllm",
            "model": "org/name",
            "revision": None,
            "max_model_len": 2048,
            "max_num_seqs": None,
            "max_num_batched_tokens": None,
            "gpu_memory_utilization": 0.92,
            "tensor_parallel_size": 1,
            "window": None,
            "stall_seconds": 600,
            "extra": {},
        },
        "queue": {"shard_tokens": None, "lease_seconds": 180, "commit_every_seconds": 60},
        "quality": {
            "min_confidence": None,
            "min_label_mass": None,
            "overflow": "quarantine",
            "stop": {"after": 2000, "quarantined": 0.5, "one_label": None},
        },
        "cost": {"price_per_slot_hour": None, "budget": None},
        "mlflow": {"tracking_uri": None, "experiment": None},
    }


def test_empty_sections_are_their_defaults(tmp_path: Path) -> None:
    """A section whose every line is commented out is null in YAML, and means its defaults."""
    assert loaded(tmp_path, content={**LEAST, "queue": None, "mlflow": None}) == loaded(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("engine.max_model_len", 0, "engine.max_model_len is 0; give at least 16"),
        ("engine.max_model_len", "2048", "engine.max_model_len is '2048'; give a whole number, without quotes"),
        ("engine.max_model_len", 20.5, "engine.max_model_len is 20.5; give a whole number"),
        ("engine.max_model_len", True, "engine.max_model_len is true; give a whole number"),
        ("engine.max_num_seqs", 0, "engine.max_num_seqs is 0; give at least 1"),
        ("engine.max_num_batched_tokens", -1, "engine.max_num_batched_tokens is -1; give at least 1"),
        ("engine.window", 0, "engine.window is 0; give at least 1"),
        ("engine.tensor_parallel_size", 0, "engine.tensor_parallel_size is 0; give at least 1"),
        ("engine.gpu_memory_utilization", 0, "engine.gpu_memory_utilization is 0; give more than 0"),
        ("engine.gpu_memory_utilization", 1.5, "engine.gpu_memory_utilization is 1.5; give at most 1"),
        ("engine.gpu_memory_utilization", "most", "engine.gpu_memory_utilization is 'most'; give a number"),
        ("engine.stall_seconds", 0, "engine.stall_seconds is 0; give more than 0"),
        ("engine.kind", "vlm", "engine.kind is 'vlm'; give vllm or fake"),
        ("engine.model", None, "engine.model is null; give the model's folder, or its id on the hub"),
        ("engine.model", " ", "engine.model is ' '; give text on one line"),
        ("engine.revision", "", "engine.revision is ''; give some text"),
        ("engine.extra", ["a"], "engine.extra is ['a']; give a mapping"),
        ("engine", "vllm", "engine is 'vllm'; give a mapping"),
        ("queue.shard_tokens", 0, "queue.shard_tokens is 0; give at least 1"),
        ("queue.lease_seconds", 9, "queue.lease_seconds is 9; give at least 10"),
        ("queue.commit_every_seconds", 0, "queue.commit_every_seconds is 0; give at least 1"),
        ("quality.min_confidence", 1.01, "quality.min_confidence is 1.01; give at most 1"),
        ("quality.min_confidence", -0.1, "quality.min_confidence is -0.1; give at least 0"),
        ("quality.min_confidence", float("nan"), "quality.min_confidence is nan; give a finite number"),
        ("quality.min_label_mass", float("inf"), "quality.min_label_mass is inf; give a finite number"),
        ("quality.overflow", "cut", "quality.overflow is 'cut'; give quarantine, head, tail or head_tail"),
        ("quality.stop.after", 0, "quality.stop.after is 0; give at least 1"),
        ("tables.audit_days", 7, "tables.audit_days is 7; leave it at 365"),
        ("quality.stop.quarantined", 50, "quality.stop.quarantined is 50; give at most 1"),
        ("quality.stop.one_label", -0.1, "quality.stop.one_label is -0.1; give at least 0"),
        ("cost.price_per_slot_hour", -1, "cost.price_per_slot_hour is -1; give at least 0"),
        ("cost.budget", 0, "cost.budget is 0; give more than 0"),
        ("cost.budget", 10, "cost.budget is 10; give cost.price_per_slot_hour too, more than 0"),
        ("cost", {"budget": 10, "price_per_slot_hour": 0}, "cost.budget is 10; give cost.price_per_slot_hour too"),
        ("cost", {"budget": 10, "price_per_slot_hour": -1}, "cost.price_per_slot_hour is -1; give at least 0"),
        ("mlflow.tracking_uri", "file:x", "mlflow.tracking_uri is 'file:x'; leave it null"),
        ("mlflow.experiment", "x", "mlflow.experiment is 'x'; leave it null"),
        ("tables.audit_days", 0, "tables.audit_days is 0; give at least 1"),
        ("tables.history_days", 0, "tables.history_days is 0; give at least 1"),
        ("tables.deletion_vectors", "yes", "tables.deletion_vectors is 'yes'; give true or false"),
        (
            "tables.root",
            "lakelabel",
            "tables.root is 'lakelabel'; give a path (with a slash, or ./name) or catalog.sch",
        ),
        ("tables.root", "a.b.c", "tables.root is 'a.b.c'; give a path"),
        ("tables.root", "a.b ", "tables.root is 'a.b '; give text on one line, without whitespace around it"),
        ("tables.root", "~/tables", "tables.root is '~/tables'; write the home folder out"),
        ("tables.root", "", "tables.root is ''; give some text"),
        ("source.table", "", "source.table is ''; give some text"),
        ("source.table", "a\nb", r"source.table is 'a\nb'; give text on one line"),
        ("source.id", [], "source.id is []; name at least one column"),
        ("source.id", ["a", "A"], "source.id is ['a', 'A']; name each column once"),
        ("source.id", 7, "source.id is 7; give a list"),
        ("source.id", ["a", 7], "source.id[1] is 7; give text"),
        ("source.id", ["a", ""], "source.id[1] is ''; give some text"),
        ("source.version", -1, "source.version is -1; give latest, or the number of a version"),
        ("source.version", "newest", "source.version is 'newest'; give latest"),
        ("source.version", True, "source.version is true; give latest"),
        ("source.where", " ", "source.where is ' '; give a condition in SQL, or null"),
        ("source.text", "no column", "source.text is 'no column'; name at least one column"),
        (
            "source.text",
            "{{ a | upper }}",
            "source.text is '{{ a | upper }}'; {{ a | upper }} at character 1 is no col",
        ),
        ("task", 3, "task is 3; give a path"),
        ("task", "", "task is ''; give a path"),
    ],
)
def test_a_bad_value_is_named_with_its_key_and_a_remedy(tmp_path: Path, key: str, value: object, message: str) -> None:
    """Each wrong value ends loading with one line: the key as written, the value, and what to do."""
    problems = complaint(tmp_path, with_value(key, value))
    assert len(problems) == 1
    assert str(problems[0]).startswith(message)


@pytest.mark.parametrize("key", ["source.table", "source.id", "source.text", "tables.root", "task"])
def test_a_missing_setting_is_named(tmp_path: Path, key: str) -> None:
    """A required setting that is not given is missed by its full name."""
    content = with_value(key, None)
    *sections, name = key.split(".")
    place = content
    for section in sections:
        place = place[section]
    del place[name]
    assert [str(problem) for problem in complaint(tmp_path, content)] == [f"{key} is missing; give it"]


def test_every_mistake_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    """An empty mapping lacks five settings, and all five are named, with the model."""
    keys = [problem.key for problem in complaint(tmp_path, "{}")]
    assert keys == ["source.table", "source.id", "source.text", "task", "tables.root", "engine.model"]


@pytest.mark.parametrize(
    ("key", "guess"),
    [
        ("engine.max_model_length", "did you mean engine.max_model_len?"),
        ("quality.overflw", "did you mean quality.overflow?"),
        ("max_num_seqs", "did you mean engine.max_num_seqs?"),
        ("quality.after", "did you mean quality.stop.after?"),
        ("sorce", "did you mean source?"),
        ("queue.xyz", "queue has shard_tokens, lease_seconds, commit_every_seconds"),
        ("xyz", "the file has source, task, tables, engine, queue, quality, cost, mlflow"),
    ],
)
def test_an_unknown_setting_is_answered_with_the_nearest_known_one(tmp_path: Path, key: str, guess: str) -> None:
    """A misspelt or misplaced key is an error that names the key that was probably meant."""
    (problem,) = complaint(tmp_path, with_value(key, 1))
    assert problem.key == key
    assert guess in problem.remedy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source: {table: a, table: b}", "source.table is 'b'; give it once: this is the second time (line 1)"),
        ("a: 1\na: 2", "a is '2'; give it once: this is the second time (line 2)"),
        ("- a", "write a mapping of settings there: it is a list"),
        ("", "write a mapping of settings there: it is empty"),
        ("source: {text: {{ title }}}", "quote the value if it begins with a brace"),
        ("a: [1", "mend the YAML at line 1"),
        ("a: 1\n---\nb: 2", "mend the YAML at line 2"),
        ("1: a", "make the key text: quote it (line 1)"),
        ("a: !!python/object:os.system x", "leave the tag out (line 1)"),
        ("a: &a [*a]", "take the alias out"),
        ("a: \x01", "take out the character U+0001"),
        ('a: "\\ud800"', "take out the half of a surrogate pair"),
        ("a: " + "9" * 5000, "give a shorter number"),
        ("a: " + "[" * 5000, "nest it less deeply"),
    ],
)
def test_a_file_that_is_no_mapping_of_settings_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Duplicate keys, lists, broken YAML, tags and the like are settings errors, each with its place."""
    assert any(message in str(problem) for problem in complaint(tmp_path, text))


def test_a_file_that_cannot_be_read_is_a_settings_error(tmp_path: Path) -> None:
    """A missing file, a folder, and bytes that are no UTF-8 are told as such, by the path that was given."""
    bad = tmp_path / "bad.yml"
    bad.write_bytes(b"a: \xff")
    for path, said in [
        (tmp_path / "none.yml", "No such file"),
        (tmp_path, "Is a directory"),
        (bad, "byte 3 is not"),
        (Path("a\0b"), "null"),
    ]:
        with pytest.raises(SettingsError, match=said) as caught:
            load(path)
        assert caught.value.problems[0].key == "--conf"


def test_yaml_reads_as_the_core_schema_does(tmp_path: Path) -> None:
    """`no` is text and not false, a number may have an exponent alone, and a date is text."""
    text = yaml.safe_dump(LEAST) + "quality: {min_confidence: 5e-1}\n"
    assert loaded(tmp_path, content=text).quality.min_confidence == 0.5
    assert loaded(tmp_path, "source.where=no").source.where == "no"
    assert loaded(tmp_path, "engine.revision=2024-01-01").engine.revision == "2024-01-01"
    assert loaded(tmp_path, "engine.revision=0017").engine.revision == "0017"


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("engine.max_model_len=1024", "max_model_len", 1024),
        ("engine.window=null", "window", None),
        ("engine.window=", "window", None),
        ("engine.model=a=b", "model", "a=b"),
        ("engine.extra.enforce_eager=true", "extra", {"enforce_eager": True}),
        ("engine.extra={block_size: 32}", "extra", {"block_size": 32}),
    ],
)
def test_set_puts_a_yaml_value_over_the_file(tmp_path: Path, override: str, key: str, value: object) -> None:
    """`--set a.b=c` reads c as YAML and makes the sections on its way; all after the first = is the value."""
    assert loaded(tmp_path, override).engine.model_dump()[key] == value


def test_set_takes_a_template_and_the_last_word(tmp_path: Path) -> None:
    """A template need not be quoted for YAML as well as for the shell, and of two overrides the later one counts."""
    settings = loaded(tmp_path, "source.text={{ a }}", "source.version=3", "source.version=4", "source.id=[a, b]")
    assert (settings.source.text, settings.source.version, settings.source.id) == ("{{ a }}", 4, ("a", "b"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("engine.window", "--set is 'engine.window'; write key=value, as in engine.max_model_len=1024"),
        ("=1", "--set is '=1'; write key=value"),
        ("engine..window=1", "--set is 'engine..window=1'; write key=value"),
        ("engine.windw=1", "engine.windw is 1; no such setting: did you mean engine.window?"),
        ("task.name=x", "task.name is 'x'; take it out: task has no settings below it"),
        ("engine.window=[1", "engine.window is '[1'; mend the YAML at line 1"),
        ("engine.extra={a: 1, a: 2}", "engine.extra.a is '2'; give it once"),
        ("engine.window=0", "engine.window is 0; give at least 1"),
    ],
)
def test_a_bad_set_is_refused(tmp_path: Path, override: str, message: str) -> None:
    """An override without =, with an unknown key, broken YAML or a bad value is told like one in the file."""
    assert str(complaint(tmp_path, LEAST, override)[0]).startswith(message)


@pytest.mark.parametrize(
    ("root", "is_path"),
    [
        ("data/lakelabel", True),
        ("./tables", True),
        (".", True),
        ("/abs", True),
        ("s3://bucket/x", True),
        ("dbfs:/x", True),
        ("abfss://c@a.dfs.core.windows.net/x", True),
        ("main.lakelabel", False),
        ("my-catalog.ärzte", False),
    ],
)
def test_root_is_a_path_or_a_schema(tmp_path: Path, root: str, is_path: bool) -> None:
    """A slash, a leading dot or a scheme makes a path; exactly two names with a dot make catalog.schema."""
    assert path_rule(loaded(tmp_path, content=with_value("tables.root", root)).tables.root) is is_path


def test_a_fake_engine_needs_no_model(tmp_path: Path) -> None:
    """The fake engine loads without a model and knows milliseconds_per_document, at least 0, and poison alone."""
    engine = {"kind": "fake", "extra": {"milliseconds_per_document": 0.5, "poison": "@@"}}
    assert loaded(tmp_path, content={**LEAST, "engine": engine}).engine.model is None
    bad = {"kind": "fake", "extra": {"milliseconds_per_document": -1, "poison": "", "enforce_eager": True}}
    assert [problem.key for problem in complaint(tmp_path, {**LEAST, "engine": bad})] == [
        "engine.extra.milliseconds_per_document",
        "engine.extra.poison",
        "engine.extra.enforce_eager",
    ]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("logprobs_mode", "processed_logits", "changes what the scores mean"),
        ("speculative_config", {"method": "ngram"}, "changes what the scores mean"),
        ("spec_model", "x", "changes what the scores mean"),
        ("watermark_config", {"key": 1}, "changes what the scores mean"),
        ("watermark", 0.1, "labelling only prefills"),
        ("logits_processors", ["a.B"], "changes what the scores mean"),
        ("max_model_len", 10, "give it as engine.max_model_len"),
        ("model", "x", "give it as engine.model"),
        ("tokenizer", "x", "token ids"),
        ("runner", "pooling", "pooling head"),
        ("data_parallel_size", 2, "Spark's tasks are the replicas"),
        ("hf_overrides", {"architectures": ["LlamaForSequenceClassification"]}, "another model"),
        ("hf_overrides", "x", "another model"),
    ],
)
def test_extra_refuses_what_would_change_the_meaning_of_scores(
    tmp_path: Path, name: str, value: object, reason: str
) -> None:
    """vLLM's settings that change what scores mean, break the adapter or repeat our own are refused, with the reason."""
    (problem,) = complaint(tmp_path, with_value(f"engine.extra.{name}", value))
    assert problem.key == f"engine.extra.{name}"
    assert reason in problem.remedy


def test_extra_lets_other_settings_of_vllm_through(tmp_path: Path) -> None:
    """Settings that only change speed, memory or precision pass, as does a longer context by rope."""
    given = {
        "enforce_eager": True,
        "dtype": "float32",
        "block_size": 32,
        "quantization": "fp8",
        "hf_overrides": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}},
    }
    assert loaded(tmp_path, content=with_value("engine.extra", given)).engine.extra == given


def test_extra_must_be_json(tmp_path: Path) -> None:
    """NaN anywhere inside a passed-through setting is refused by its full key."""
    (problem,) = complaint(tmp_path, with_value("engine.extra.hf_overrides", {"rope_theta": [1, float("nan")]}))
    assert problem.key == "engine.extra.hf_overrides.rope_theta[1]"


def test_extra_knows_the_settings_of_an_installed_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where vLLM's names are known a misspelt one is refused with a guess; where they are not, the engine decides."""
    monkeypatch.setattr(extra, "vllm_settings", lambda: frozenset({"enforce_eager", "block_size"}))
    (problem,) = complaint(tmp_path, with_value("engine.extra.enforce_eagr", True))
    assert problem.remedy == "no such vLLM setting: did you mean enforce_eager?"
    monkeypatch.setattr(extra, "vllm_settings", lambda: None)
    assert loaded(tmp_path, "engine.extra.enforce_eagr=true").engine.extra == {"enforce_eagr": True}


def test_vllm_settings_are_read_from_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names are the annotated fields of EngineArgs in the package that is found; without one they are unknown."""
    package = tmp_path / "vllm"
    (package / "engine").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    source = package / "engine" / "arg_utils.py"
    source.write_text("class EngineArgs:\n    block_size: int | None = None\n    _own: int = 0\n    other = 1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    extra.vllm_settings.cache_clear()
    try:
        assert extra.vllm_settings() == {"block_size"}
        extra.vllm_settings.cache_clear()
        source.write_text("class Moved:\n    block_size: int = 0\n")
        assert extra.vllm_settings() is None
        extra.vllm_settings.cache_clear()
        source.unlink()
        assert extra.vllm_settings() is None
    finally:
        extra.vllm_settings.cache_clear()


def test_settings_are_frozen(tmp_path: Path) -> None:
    """No part of loaded settings can be assigned to."""
    settings = loaded(tmp_path)
    with pytest.raises(ValueError, match="frozen"):
        settings.engine.max_model_len = 1  # type: ignore[misc]


def test_public_json_masks_what_may_be_a_secret(tmp_path: Path) -> None:
    """Tokens, keys and passwords in engine.extra are masked at any depth; what merely sounds like one is not."""
    given = {
        "hf_token": "hf_abc",
        "max_num_scheduled_tokens": 512,
        "additional_config": {
            "apiKey": "k1",
            "nested": [{"password": 12345}],
            "url": "https://u:pw@host/x",
            "hfTokenFile": "t1",
            "tokens": ["t2"],
            "tokenizer_mode": "slow",
            "max_num_batched_tokens": "2k",
        },
        "kv_transfer_config": {"secrets": ["s1"], "credentials": {"user": "me"}},
    }
    settings = loaded(tmp_path, content=with_value("engine.extra", given))
    public = json.dumps(settings.public())
    assert json.loads(public)["engine"]["extra"] == {
        "hf_token": "***",
        "max_num_scheduled_tokens": 512,
        "additional_config": {
            "apiKey": "***",
            "nested": [{"password": "***"}],
            "url": "https://***@host/x",
            "hfTokenFile": "***",
            "tokens": ["***"],
            "tokenizer_mode": "slow",
            "max_num_batched_tokens": "2k",
        },
        "kv_transfer_config": {"secrets": ["***"], "credentials": "***"},
    }
    assert json.loads(public)["source"]["id"] == ["doc_id"]
    assert "hf_abc" not in repr(settings)


@pytest.mark.parametrize("key", ["source.table", "tables.root"])
def test_credentials_in_an_address_are_refused_and_not_repeated(tmp_path: Path, key: str) -> None:
    """They would stand in `runs` and in messages for ever."""
    with pytest.raises(SettingsError, match=r"take user and password out") as refused:
        loaded(tmp_path, content=with_value(key, "s3a://AKIA:hunter2@bucket/x"))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "override",
    [
        'engine.extra.hf_token="hf_secret',
        "engine.extra={hf_token: hf_secret",
        "engine.extra={hf_token: 1, hf_token: hf_secret}",
        'engine.extra.hf_token="hf_secret\\ud800"',
        "engine.extra.hf_token=!x hf_secret",
        "engine.window.hf_token=hf_secret",
        "engine..hf_token=hf_secret",
    ],
)
def test_a_secret_in_an_argument_that_is_wrong_is_not_printed(tmp_path: Path, override: str) -> None:
    """Whatever is wrong with it, or beside it."""
    with pytest.raises(SettingsError) as refused:
        loaded(tmp_path, override, content=with_value("engine.window", 4))
    assert "hf_secret" not in str(refused.value)


def test_a_misplaced_secret_is_not_printed(tmp_path: Path) -> None:
    """A token under an unknown key is an error whose message does not hold the token."""
    (problem,) = complaint(tmp_path, with_value("engine.hf_token", "hf_abc"))
    assert str(problem).startswith("engine.hf_token is '***'; no such setting")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source.table", "other"),
        ("source.id", ["doc_id", "page"]),
        ("source.text", "{{ body }}"),
        ("source.where", "lang = 'de'"),
        ("engine.model", "org/other"),
        ("engine.revision", "abc"),
        ("engine.max_model_len", 4096),
        ("engine.extra", {"dtype": "float32"}),
        ("engine.extra", {"additional_config": {"tokenizer_mode": "slow"}}),
        ("quality.min_confidence", 0.5),
        ("quality.min_label_mass", 0.5),
        ("quality.overflow", "head"),
    ],
)
def test_the_digest_changes_with_whatever_can_change_a_result(tmp_path: Path, key: str, value: object) -> None:
    """Another source, text, model or threshold is another digest, so an unfinished run is not continued under it."""
    changed = loaded(tmp_path, content=with_value(key, value))
    assert result_digest(changed, TASK, None) != result_digest(loaded(tmp_path), TASK, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source.version", 3),
        ("tables.root", "elsewhere/tables"),
        ("engine.window", 8),
        ("engine.max_num_seqs", 8),
        ("engine.gpu_memory_utilization", 0.5),
        ("engine.tensor_parallel_size", 2),
        ("queue.shard_tokens", 1000),
        ("cost", {"price_per_slot_hour": 2, "budget": 10}),
        ("quality.stop", {"after": 10, "quarantined": None, "one_label": 0.9}),
    ],
)
def test_the_digest_ignores_what_only_changes_speed_or_place(tmp_path: Path, key: str, value: object) -> None:
    """Moving a run to other machines or other shards is no reason to plan it anew."""
    changed = loaded(tmp_path, content=with_value(key, value))
    assert result_digest(changed, TASK, None) == result_digest(loaded(tmp_path), TASK, None)


def test_the_digest_covers_limit_tier_and_task_but_not_secrets_or_order(tmp_path: Path) -> None:
    """Limit, tier and every word of the task count; a rotated token and the order of keys do not."""
    settings = loaded(tmp_path)
    other = TASK.model_copy(update={"instruction": "Which?"})
    digests = {
        result_digest(settings, TASK, None),
        result_digest(settings, TASK, 5),
        result_digest(settings, TASK, None, "second"),
        result_digest(settings, other, None),
        result_digest(settings, TASK.model_copy(update={"name": "sort"}), None),
    }
    assert len(digests) == 5 and all(len(digest) == 64 for digest in digests)
    one = loaded(tmp_path, content=with_value("engine.extra", {"hf_token": "a", "dtype": "half", "seed": 1}))
    two = loaded(tmp_path, content=dict(reversed(with_value("engine.extra", {"seed": 1, "dtype": "half"}).items())))
    two = two.model_copy(
        update={"engine": two.engine.model_copy(update={"extra": {**two.engine.extra, "hf_token": "b"}})}
    )
    assert result_digest(one, TASK, None) == result_digest(two, TASK, None)


def test_check_model_wants_a_folder_with_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path must be a folder that holds config.json; a hub id is left to the hub; the fake engine needs neither."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    for model, said in [
        ("./none", "name a folder that is there"),
        ("/none/at/all", "name a folder that is there"),
        ("some/deep/none", "name a folder that is there"),
        ("s3://bucket/model", "name a folder that is there"),
        ("file", "name a folder that is there"),
        ("empty", "config.json"),
    ]:
        with pytest.raises(SettingsError, match=said) as caught:
            check_model(loaded(tmp_path, f"engine.model={model}"))
        assert (caught.value.problems[0].key, caught.value.problems[0].value) == ("engine.model", model)
    for fine in ("engine.model=model", f"engine.model={tmp_path}/model", "engine.model=org/name", "engine.kind=fake"):
        check_model(loaded(tmp_path, fine))
    check_model(loaded(tmp_path, "engine.kind=fake", "engine.model=./none"))


def test_errors_have_the_exit_codes_of_the_command_line() -> None:
    """1 failed and can be resumed, 2 bad input, 3 stopped on purpose; all are LakelabelError."""
    codes = {LakelabelError: 1, RunFailed: 1, SettingsError: 2, Stopped: 3, LeaseHeld: 3, Fenced: 3}
    for error, code in codes.items():
        assert issubclass(error, LakelabelError) and error.exit_code == code
    assert issubclass(LeaseHeld, Stopped) and issubclass(Fenced, Stopped)


def test_a_message_stays_on_one_short_line() -> None:
    """A value or remedy with newlines, control characters or 10,000 letters cannot forge or flood the output."""
    error = SettingsError("a.b", "x\n\u2028\x1b[0m" + "y" * 10_000, "say\nno")
    assert len(str(error).splitlines()) == 1 and len(str(error)) < 120
    assert str(error).startswith(r"a.b is 'x\n\u2028\x1b[0myyy") and str(error).endswith(r"yyy'; say\nno")


def test_a_settings_error_survives_pickling() -> None:
    """An error of several problems comes back from another process with all of them."""
    error = SettingsError.of([Problem("a", 1, "b"), Problem("c", None, "d")])
    back = pickle.loads(pickle.dumps(error))
    assert back.problems == error.problems and str(back) == "a is 1; b\nc is null; d"


def test_settings_import_neither_spark_nor_an_engine() -> None:
    """The modules that check settings pull in no pyspark, vllm, torch or mlflow, not even to know vLLM's settings."""
    code = (
        "import sys, lakelabel.settings, lakelabel.extra; lakelabel.extra.vllm_settings();"
        "print(sorted({'pyspark', 'vllm', 'torch', 'mlflow', 'pandas'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"
