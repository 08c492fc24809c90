"""The command line before anything is loaded."""

from __future__ import annotations

from typing import get_args

import pytest

from lakelabel import cli
from lakelabel_udfs.outcome import FailureCode


@pytest.mark.parametrize("codes", ["nonsense", "crashed,nonsense", "", "crashed,"])
def test_an_unknown_code_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str], codes: str) -> None:
    """`retry --code` takes failure codes alone; anything else ends with exit 2 before the settings are even read."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["retry", "--conf", "nowhere.yml", "--code", codes])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith(f"error: --code is '{codes.split(',')[-1]}'; give one or several of ")
    assert all(code in said for code in get_args(FailureCode))
