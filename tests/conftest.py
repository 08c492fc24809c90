"""One Spark session for all tests that need one, and a road on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakelabel.session import open_session
from tests.road import Road


@pytest.fixture(scope="session")
def spark(inferences_of_the_session: Path) -> Iterator[SparkSession]:
    session = open_session()
    # Tests run many small queries once each: compiling Java for them takes longer than interpreting them.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield session
    session.stop()


@pytest.fixture
def road(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inferences: Path) -> Road:
    return Road(spark, tmp_path, inferences)


@pytest.fixture(scope="session")
def inferences_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    # Python workers keep the environment that they were started with, so the file is one for the whole session.
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("fake") / "inferences"
        patch.setenv("LAKELABEL_FAKE_INFERENCES", str(path))
        yield path


@pytest.fixture
def inferences(inferences_of_the_session: Path) -> Path:
    inferences_of_the_session.write_text("")
    return inferences_of_the_session
