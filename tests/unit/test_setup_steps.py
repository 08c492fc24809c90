"""Setup's steps: what is made is skipped, what was broken off is made again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tools.setup.steps import Step, StepFailed, call, digest, take, write


class Maker:
    """Makes a file, counts how often, and can break off half-way."""

    def __init__(self, folder: Path) -> None:
        self.result = folder / "result"
        self.times = 0
        self.breaks: BaseException | None = None

    def __call__(self) -> Iterable[Path]:
        self.times += 1
        self.result.write_text("half")
        if self.breaks is not None:
            raise self.breaks
        self.result.write_text("whole")
        return [self.result]


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


def step(maker: Maker, inputs: str = "1") -> Step:
    return Step("thing", "the thing", maker.result.parent / "setup", inputs, maker)


def lines(*steps: Step) -> list[str]:
    said: list[str] = []
    take(steps, said.append)
    return said


def test_a_second_run_makes_nothing(maker: Maker) -> None:
    """A step is made once, says so and for how long; afterwards it is reported as done before."""
    first, second = lines(step(maker)), lines(step(maker))
    assert maker.times == 1
    assert first[0] == "setup 1/1 thing: the thing …"
    assert first[1].startswith("setup 1/1 thing: done in ") and first[1].endswith(" s")
    assert second == ["setup 1/1 thing: done before"]


@pytest.mark.parametrize("breaks", [KeyboardInterrupt(), StepFailed("no network"), OSError("disk full")])
def test_a_step_that_broke_off_is_made_again(maker: Maker, breaks: BaseException) -> None:
    """What an interrupted step left behind is never taken for done, although the file is there."""
    maker.breaks = breaks
    with pytest.raises(type(breaks)):
        lines(step(maker))
    assert maker.result.read_text() == "half" and not step(maker).is_made()
    maker.breaks = None
    lines(step(maker))
    assert maker.times == 2 and maker.result.read_text() == "whole"


def test_a_step_that_broke_off_when_made_anew_is_not_done(maker: Maker) -> None:
    """The stamp of an earlier success is gone before the step begins again."""
    lines(step(maker, "1"))
    maker.breaks = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        lines(step(maker, "2"))
    assert not step(maker, "1").is_made() and not step(maker, "2").is_made()


def test_changed_inputs_make_it_again(maker: Maker) -> None:
    """A changed lock is a changed digest, and a changed digest is not done."""
    lines(step(maker, "1"))
    assert not step(maker, "2").is_made()
    lines(step(maker, "2"))
    assert maker.times == 2 and step(maker, "2").is_made()


@pytest.mark.parametrize(
    "stamp", ["", "{", "[]", '{"inputs": "1"}', '{"inputs": "1", "made": 3}', '{"made": []}', "null"]
)
def test_a_damaged_stamp_is_no_stamp(maker: Maker, stamp: str) -> None:
    """A stamp that cannot be read means that the step is made, not that setup ends with a traceback."""
    write(step(maker).stamp, stamp)
    assert not step(maker).is_made()


def test_what_was_deleted_is_made_again(maker: Maker) -> None:
    """A stamp vouches only for what still exists."""
    lines(step(maker))
    maker.result.unlink()
    assert not step(maker).is_made()


def test_a_step_that_made_less_than_it_says_fails(tmp_path: Path) -> None:
    """A step whose result is not there after it was made ends setup and leaves no stamp."""
    empty_handed = Step("thing", "the thing", tmp_path, "1", lambda: [tmp_path / "absent"])
    with pytest.raises(StepFailed, match="absent is not there"):
        lines(empty_handed)
    assert not empty_handed.stamp.exists()


def test_a_failed_step_stops_the_ones_after_it(maker: Maker, tmp_path: Path) -> None:
    """Later steps rest on earlier ones, so none of them starts."""
    other = Maker(tmp_path / "setup")
    maker.breaks = StepFailed("no network")
    with pytest.raises(StepFailed, match="no network"):
        take([step(maker), step(other)], lambda line: None)
    assert other.times == 0


def test_a_failed_program_is_shown_with_the_remedy(tmp_path: Path) -> None:
    """StepFailed holds what the program printed, its exit code and what to do."""
    with pytest.raises(StepFailed) as failed:
        call(["sh", "-c", "echo out; echo err >&2; exit 3"], "look at the cable")
    assert str(failed.value).splitlines()[:2] == ["out", "err"]
    assert "ended with 3; look at the cable" in str(failed.value)
    with pytest.raises(StepFailed, match=r"does not start .*; look at the cable"):
        call([tmp_path / "no-such-program"], "look at the cable")


def test_digests_tell_contents_and_their_order_apart(tmp_path: Path) -> None:
    """Neither moving a boundary between two parts nor swapping them gives the same digest; a file counts by its content."""
    file = tmp_path / "lock"
    file.write_text("a")
    assert digest(file, "b") == digest("a", "b")
    assert len({digest("a", "b"), digest("ab", ""), digest("b", "a"), digest("ab")}) == 4
