"""The Delta jars: fetched once into a folder that is complete or absent. The resolver is replaced by one that writes files."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from lakelabel import jars
from lakelabel.jars import NoDeltaJars, delta_coordinate, delta_jar_conf, delta_jars


class Resolver:
    """Puts two jars where Spark's resolver puts them, and counts how often it is asked."""

    def __init__(self) -> None:
        self.times = 0
        self.breaks: BaseException | None = None

    def __call__(self, ivy: Path) -> None:
        self.times += 1
        (ivy / "jars").mkdir()
        (ivy / "jars" / "a b,c.jar").write_bytes(b"12345")
        if self.breaks is not None:
            raise self.breaks
        (ivy / "jars" / "z.jar").write_bytes(b"1")


@pytest.fixture
def resolver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolver:
    monkeypatch.setenv("LAKELABEL_CACHE", str(tmp_path / "the cache"))
    resolver = Resolver()
    monkeypatch.setattr(jars, "_resolve", resolver)
    return resolver


def test_they_are_fetched_once(resolver: Resolver, tmp_path: Path) -> None:
    """The first call fetches, the second reads; nothing else is left in the cache."""
    first = delta_jars()
    assert [jar.name for jar in first] == ["a b,c.jar", "z.jar"] and all(jar.is_file() for jar in first)
    assert delta_jars() == first and resolver.times == 1
    assert list((tmp_path / "the cache" / "jars").iterdir()) == [first[0].parent]


def test_the_setting_separates_by_commas_alone(resolver: Resolver) -> None:
    """spark.jars is a list separated by commas: a space or comma in a path is escaped."""
    conf = delta_jar_conf()
    assert list(conf) == ["spark.jars"]
    first, second = conf["spark.jars"].split(",")
    assert first.startswith("file:///") and first.endswith("/a%20b%2Cc.jar") and second.endswith("/z.jar")


@pytest.mark.parametrize("breaks", [KeyboardInterrupt(), NoDeltaJars("no network")])
def test_an_interrupted_fetch_leaves_nothing(resolver: Resolver, tmp_path: Path, breaks: BaseException) -> None:
    """Half of the jars are never taken for all of them."""
    resolver.breaks = breaks
    with pytest.raises(type(breaks)):
        delta_jars()
    assert list((tmp_path / "the cache" / "jars").iterdir()) == []
    resolver.breaks = None
    assert len(delta_jars()) == 2


def test_a_jar_that_was_cut_or_deleted_is_fetched_again(resolver: Resolver) -> None:
    """The list of sizes tells a folder that is whole from one that is not."""
    cut = delta_jars()[0]
    cut.write_bytes(b"1")
    assert delta_jars()[0].read_bytes() == b"12345"
    cut.unlink()
    assert len(delta_jars()) == 2 and resolver.times == 3


def test_a_resolver_that_finds_nothing_is_an_error(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    """No jars is not a success with an empty list: Spark would start without Delta."""
    monkeypatch.setattr(jars, "_resolve", lambda ivy: (ivy / "jars").mkdir())
    with pytest.raises(NoDeltaJars):
        delta_jars()


def test_the_coordinate_fits_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names Spark's minor version and Delta's full one."""
    versions = {"pyspark": "4.1.1", "delta-spark": "4.3.1"}
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    assert delta_coordinate() == "io.delta:delta-spark_4.1_2.13:4.3.1"


def test_a_missing_package_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without delta-spark the message names it and the extra that brings it; exit code 2."""

    def version(name: str) -> str:
        if name == "delta-spark":
            raise importlib.metadata.PackageNotFoundError(name)
        return "4.2.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(NoDeltaJars, match=r"delta-spark is not installed; .* extra 'spark'") as raised:
        delta_coordinate()
    assert raised.value.exit_code == 2


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the folder and the variable that moves it."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAKELABEL_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(NoDeltaJars, match=r"cache folder .*file/cache cannot be written .*set LAKELABEL_CACHE"):
        delta_jars()


def test_only_the_default_central_resolver_is_asked() -> None:
    """The settings for ivy name one resolver and no address."""
    text = importlib.resources.files("lakelabel").joinpath("ivysettings.xml").read_text(encoding="utf-8")
    tree = ElementTree.fromstring(text)
    resolvers = tree.find("resolvers")
    assert resolvers is not None
    assert [(resolver.tag, dict(resolver.attrib)) for resolver in resolvers] == [
        ("ibiblio", {"name": "central", "m2compatible": "true"})
    ]
    assert "://" not in text
