"""The fake engine: deterministic, countable from outside."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from lakelabel_udfs.engines.fake import INFERENCES, LOADS, SICK, LoadedFake, fake_label, fake_scores
from lakelabel_udfs.engines.protocol import BadSettings, EngineDied
from lakelabel_udfs.outcome import Failure, Prediction
from lakelabel_udfs.specs import EngineSpec, LabelSpec, PromptSpec
from lakelabel_udfs.window import label_stream

LABELS = ("invoice", "contract", "other")
PROMPT = PromptSpec("v", "i", tuple(LabelSpec(name) for name in LABELS))


def spec(**changes: object) -> EngineSpec:
    return EngineSpec(**{"kind": "fake", "model": None, "model_id": "fake", "model_revision": None, **changes})  # type: ignore[arg-type]


def test_a_text_always_gets_the_same_label_and_all_labels_occur() -> None:
    """fake_label is the label of the engine's prediction, and scores are finite log-probabilities of a part of one."""
    engine = LoadedFake(spec()).bind(PROMPT)
    texts = [f"text {number}" for number in range(200)]
    outcomes = dict(label_stream(engine, iter([(text, text) for text in texts])))
    assert {text: outcome.label for text, outcome in outcomes.items() if isinstance(outcome, Prediction)} == {
        text: fake_label(text, LABELS) for text in texts
    }
    assert {fake_label(text, LABELS) for text in texts} == set(LABELS)
    for text in texts:
        assert 0.2 <= sum(map(math.exp, fake_scores(text, LABELS))) <= 0.9 + 1e-9


def test_inferences_and_loads_are_counted_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line an inference with the text's sha256, one a load with the process id; a failure costs no inference."""
    monkeypatch.setenv(INFERENCES, str(tmp_path / "inferences"))
    monkeypatch.setenv(LOADS, str(tmp_path / "loads"))
    engine = LoadedFake(spec(max_model_len=10)).bind(PROMPT)
    texts = ["a", "b", "a", "x" * 41, "x" * 40, "  \n"]
    outcomes = list(label_stream(engine, iter(enumerate(texts))))
    codes = {key: outcome.code for key, outcome in outcomes if isinstance(outcome, Failure)}
    assert codes == {3: "too_long", 5: "empty"}
    lines = (tmp_path / "inferences").read_text().splitlines()
    assert sorted(lines) == sorted(sha256(text.encode()).hexdigest() for text in ("a", "b", "a", "x" * 40))
    assert (tmp_path / "loads").read_text() == f"{os.getpid()}\n"


def test_an_overflow_policy_that_cuts_labels_long_texts() -> None:
    """Only `quarantine` makes a failure of a long text; its tokens are those that fit."""
    cutting = PromptSpec("v", "i", PROMPT.labels, overflow="head")
    ((_, outcome),) = label_stream(LoadedFake(spec(max_model_len=10)).bind(cutting), iter([(0, "x" * 100)]))
    assert isinstance(outcome, Prediction)
    assert outcome.prompt_tokens == 10


def test_an_unknown_setting_is_refused() -> None:
    """The message names the key."""
    with pytest.raises(BadSettings, match=r"engine\.extra\.speed"):
        LoadedFake(spec(extra='{"speed": 1}'))


_DIES = """
from lakelabel_udfs.engines.fake import LoadedFake
from lakelabel_udfs.specs import EngineSpec, LabelSpec, PromptSpec
spec = EngineSpec("fake", None, "fake", None, extra='{"poison": "@@"}')
engine = LoadedFake(spec).bind(PromptSpec("v", "i", (LabelSpec("a"), LabelSpec("b"))))
for key, text in enumerate(["third, never reached", TEXT, "second", "@@ alone, @@ kill and kill are no poison"]):
    engine.add(key, text)
engine.step()
"""


@pytest.mark.parametrize(
    ("way", "code"),
    [
        ("segfault", -signal.SIGSEGV),
        ("abort", -signal.SIGABRT),
        ("kill", -signal.SIGKILL),
        ("exit", 1),
        ("raise", 1),
    ],
)
def test_poison_ends_the_process_as_it_is_inferred(tmp_path: Path, way: str, code: int) -> None:
    """Each in its way; what the step had inferred before is counted, the poison and the rest are not."""
    program = _DIES.replace("TEXT", repr(f"first @@{way} last"))
    environment = os.environ | {INFERENCES: str(tmp_path / "inferences")}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert ended.returncode == code
    assert ("EngineDied: the fake engine was told to die" in ended.stderr) == (way == "raise")
    counted = (tmp_path / "inferences").read_text().splitlines()
    expected = ("@@ alone, @@ kill and kill are no poison", "second")
    assert counted == [sha256(text.encode()).hexdigest() for text in expected]


def test_poison_can_hang_the_step(tmp_path: Path) -> None:
    """It does not return, and nothing of it is counted."""
    program = _DIES.replace("TEXT", "'@@hang'")
    environment = os.environ | {INFERENCES: str(tmp_path / "inferences")}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        process.kill()
    assert len((tmp_path / "inferences").read_text().splitlines()) == 2


def test_without_a_mark_no_text_is_poison() -> None:
    """The words alone do nothing, and neither does another mark, which is no pattern."""
    for extra in ("{}", '{"poison": "."}'):
        engine = LoadedFake(spec(extra=extra)).bind(PROMPT)
        assert len(list(label_stream(engine, iter([(0, "@@raise"), (1, "@@hang")])))) == 2
    engine = LoadedFake(spec(extra='{"poison": "."}')).bind(PROMPT)
    with pytest.raises(EngineDied):
        list(label_stream(engine, iter([(0, "x.raise")])))


_SICK = """
import subprocess, sys
worker = '''
from lakelabel_udfs.engines.fake import LoadedFake
from lakelabel_udfs.specs import EngineSpec, LabelSpec, PromptSpec
engine = LoadedFake(EngineSpec("fake", None, "fake", None)).bind(PromptSpec("v", "i", (LabelSpec("a"), LabelSpec("b"))))
engine.add(0, "fine")
assert len(engine.step()) == 1
'''
print(*(subprocess.run([sys.executable, "-c", worker]).returncode for _ in range(2)))
"""


def test_one_executor_can_be_sick(tmp_path: Path) -> None:
    """Every worker of the daemon whose worker came first kills itself, with any document; those of another do not."""
    environment = os.environ | {SICK: str(tmp_path / "sick")}
    codes = []
    for _ in range(2):
        daemon = subprocess.run(
            [sys.executable, "-c", _SICK], capture_output=True, text=True, env=environment, timeout=60
        )
        codes.append(daemon.stdout.split())
    assert codes == [["-9", "-9"], ["0", "0"]]
    assert [path.name for path in tmp_path.iterdir()] == ["sick"]
