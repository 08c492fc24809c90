"""Bad input: one line with key, value and remedy, exit code 2, nothing touched, never a stack trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakelabel import cli
from tests.road import Road


def start(road: Road, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command line in this process; its exit code, stdout and stderr."""
    (road.folder / "task.yml").write_text(yaml.safe_dump(road.task))
    (road.folder / "conf.yml").write_text(yaml.safe_dump(road.settings))
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main(["classify", "--conf", str(road.folder / "conf.yml"), *arguments])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def plain_folder(road: Road) -> str:
    folder = road.folder / "plain"
    road.spark.createDataFrame([("a", "b")], "id STRING, text STRING").write.parquet(str(folder))
    return str(folder)


CASES: dict[str, tuple[list[str], str, str]] = {
    # name: (--set overrides, key named, part of the remedy); {folder} is the road's folder.
    "unknown setting": (["engine.modle=x"], "engine.modle", "engine.model"),
    "wrong type": (["engine.max_model_len=many"], "engine.max_model_len", "many"),
    "no source table": (["source.table={folder}/nowhere"], "source.table", "name one that is"),
    "no named table": (["source.table=nowhere.nothing"], "source.table", "name one that is"),
    "not a Delta table": (["source.table={folder}/plain"], "source.table", "convert it to Delta"),
    "no id column": (["source.id=key"], "source.id", "it has id, text"),
    "unknown column in the template": (["source.text={{ body }}"], "source.text", "no column body"),
    "bad template": (["source.text={{ text | upper }}"], "source.text", "no column name"),
    "bad where": (["source.where=nope > 1"], "source.where", "give a condition"),
    "where that does not parse": (["source.where=id = 'a"], "source.where", "give a condition"),
    "model folder missing": (["engine.kind=vllm", "engine.model=./nowhere"], "engine.model", "name a folder"),
    "confidence outside 0 to 1": (["quality.min_confidence=1.5"], "quality.min_confidence", "1.5"),
    "unwritable root": (["tables.root={folder}/conf.yml/out"], "tables.root", "give another root"),
    "root that cannot be made": (["tables.root=/proc/lakelabel"], "tables.root", "give a"),
    "a file system that is not there": (["source.table=nofs://host/x"], "source.table", "cannot be looked at"),
    "a root that is not there": (["tables.root=nofs://host/x"], "tables.root", "cannot be looked at"),
    "model folder without a tokenizer": (
        ["engine.kind=vllm", "engine.model={folder}/model"],
        "engine.model",
        "tokenizer",
    ),
    "unreachable version": (["source.version=99"], "source.version", "give one that is still there"),
    "source is an output table": (["source.table={folder}/out/labels"], "source.table", "one of lakelabel's own"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_settings(road: Road, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """A wrong setting ends with exit 2 and a line that names key, value and remedy; no table comes to be."""
    overrides, key, remedy = CASES[name]
    road.write([("a", "one")])
    plain_folder(road)
    (road.folder / "model").mkdir()
    (road.folder / "model" / "config.json").write_text('{"model_type": "llama"}')
    before = sorted(str(path) for path in road.folder.rglob("*") if "plain" not in str(path))
    arguments = [argument for text in overrides for argument in ("--set", text.replace("{folder}", str(road.folder)))]
    code, out, err = start(road, capsys, *arguments)
    line = next(line for line in err.splitlines() if line.startswith("error: "))
    assert code == 2
    assert line.startswith(f"error: {key}")
    assert remedy in line
    assert "Traceback" not in err
    assert out == ""
    after = sorted(str(path) for path in road.folder.rglob("*") if "plain" not in str(path))
    assert [path for path in after if not path.endswith(".yml")] == [
        path for path in before if not path.endswith(".yml")
    ]


TASKS: dict[str, tuple[Any, str]] = {
    "no labels": ([], "task.labels"),
    "duplicate labels": (["a", "b", "a"], "task.labels[2].name"),
    "a label of whitespace": (["a", "  "], "task.labels[1].name"),
}


@pytest.mark.parametrize("name", TASKS)
def test_bad_tasks(road: Road, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """A wrong task ends the same way, before Spark is asked for anything."""
    labels, key = TASKS[name]
    road.task["labels"] = labels
    road.write([("a", "one")])
    code, _, err = start(road, capsys)
    assert code == 2
    assert f"error: {key}" in err
    assert not (road.folder / "out").exists()


def test_the_report_is_the_last_line_of_stdout(road: Road, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json stdout ends in one JSON object, and progress is on stderr; without pending rows it is still a success."""
    road.write([("a", "one"), ("b", "")])
    code, out, err = start(road, capsys, "--json")
    report = json.loads(out.splitlines()[-1])
    assert code == 0
    assert report["documents"]["labeled"] == 1
    assert report["quarantine"] == {"empty": 1}
    assert {"slots", "loads", "busy_ratio", "tokens_per_second", "documents_per_second"} <= set(report["engine"])
    assert "labelled 1 of 1 documents" in err
    code, out, _ = start(road, capsys, "--json")
    assert (code, json.loads(out.splitlines()[-1])["documents"]["pending"]) == (0, 0)
    code, out, _ = start(road, capsys, "--dry-run", "--json")
    assert (code, json.loads(out.splitlines()[-1])["documents"]["pending"]) == (0, 0)


def test_another_model_needs_a_word(road: Road, capsys: pytest.CaptureFixture[str]) -> None:
    """A changed model is refused under the same prompt_version until --allow-model-change is given."""
    road.write([("a", "one")])
    assert start(road, capsys)[0] == 0
    code, _, err = start(road, capsys, "--set", "engine.revision=second")
    assert (code, "--allow-model-change" in err) == (2, True)
    assert start(road, capsys, "--set", "engine.revision=second", "--allow-model-change")[0] == 0


def test_usage_errors_end_with_2(road: Road, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Unknown options and a missing settings file are usage errors."""
    road.write([("a", "one")])
    assert start(road, capsys, "--nonsense")[0] == 2
    assert start(road, capsys, "--limit", "0")[0] == 2
    with pytest.raises(SystemExit) as ended:
        cli.main(["classify", "--conf", str(tmp_path / "none.yml")])
    assert ended.value.code == 2
