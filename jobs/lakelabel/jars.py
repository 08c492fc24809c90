"""The Delta jars of a local Spark: fetched once, then read from the cache folder without asking any server."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lakelabel.cache import cache_folder
from lakelabel.errors import LakelabelError
from lakelabel.java import ensure_java
from lakelabel.truststore import PASSWORD, java_truststore, machine_certificates

_LIST = "jars.json"
"""Name and size in bytes of every jar in a folder, written before the folder gets its name."""


class NoDeltaJars(LakelabelError):
    """The Delta jars are not there and could not be fetched; nothing was touched."""

    exit_code = 2


def delta_jar_conf() -> dict[str, str]:
    """Return the Spark settings that put Delta on the class path of a local session: `spark.jars`.

    Fetches the jars first where the cache has none (5 to 30 s, once). Raises NoDeltaJars, and NoJava from there.
    """
    return {"spark.jars": ",".join(jar.as_uri() for jar in delta_jars())}


def delta_jars() -> list[Path]:
    """Return the absolute paths of the jars, sorted, having fetched them where the cache has none."""
    folder = cache_folder() / "jars" / delta_coordinate().split(":", 1)[1].replace(":", "-")
    listed = _listed(folder)
    if listed is None:
        _fetch(folder)
        listed = _listed(folder)
    if not listed:
        raise NoDeltaJars(f"{folder} does not hold the jars that were just fetched; delete it and start again")
    return listed


def delta_coordinate() -> str:
    """Return the Maven coordinate that fits the installed pyspark and delta-spark, such as
    `io.delta:delta-spark_4.2_2.13:4.4.0`.
    """
    try:
        spark, delta = importlib.metadata.version("pyspark"), importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError as error:
        raise NoDeltaJars(
            f"the package {error.name} is not installed; install lakelabel with its extra 'spark', or run on a cluster that has it"
        ) from error
    major, minor, *_ = spark.split(".")
    return f"io.delta:delta-spark_{major}.{minor}_2.13:{delta}"


def _listed(folder: Path) -> list[Path] | None:
    """Return the jars of a complete folder, or None where it is absent or not what it was when it was made."""
    try:
        sizes: dict[str, int] = json.loads((folder / _LIST).read_text(encoding="utf-8"))
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return None
    return [folder / name for name in sorted(sizes)] if whole else None


def _fetch(folder: Path) -> None:
    """Let Spark's own resolver fetch the jars into a folder beside `folder`, then give it that name."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
    except OSError as error:
        raise NoDeltaJars(
            f"the cache folder {cache_folder()} cannot be written ({error.strerror}); set LAKELABEL_CACHE to one that can"
        ) from error
    try:
        _resolve(part)
        fetched = part / "jars"
        sizes = {jar.name: jar.stat().st_size for jar in fetched.glob("*.jar")}
        (fetched / _LIST).write_text(json.dumps(sizes, indent=1, sort_keys=True), encoding="utf-8")
        if _listed(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
            try:
                fetched.rename(folder)
            except OSError:
                # Another process may have been first with the same jars.
                if _listed(folder) is None:
                    raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _resolve(ivy: Path) -> None:
    """Run spark-submit on an empty program: it resolves `spark.jars.packages` into `ivy`/jars before it starts anything."""
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or not pyspark.submodule_search_locations:
        raise NoDeltaJars("the package pyspark cannot be imported; install lakelabel with its extra 'spark'")
    home = Path(pyspark.submodule_search_locations[0])
    environment = os.environ | {"JAVA_HOME": ensure_java(), "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    # These belong to a Spark that may already run around this process, and would make spark-submit join it.
    for name in ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(name, None)
    command = _command(home, ivy)
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    if ended.returncode != 0 and "SSLHandshakeException" in ended.stdout + ended.stderr:
        # Java's own list does not know the signer; the machine's may. spark-submit's own JVM alone reads this variable.
        trusted = ivy / "trusted.jks"
        trusted.write_bytes(java_truststore(machine_certificates()))
        options = f'"-Djavax.net.ssl.trustStore={trusted}" -Djavax.net.ssl.trustStorePassword={PASSWORD}'
        environment["SPARK_SUBMIT_OPTS"] = f"{environment.get('SPARK_SUBMIT_OPTS', '')} {options}"
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    if ended.returncode != 0:
        said = "\n".join((ended.stdout + ended.stderr).strip().splitlines()[-25:])
        raise NoDeltaJars(
            f"{said}\nthe Delta jars {delta_coordinate()} could not be fetched; see above what the resolver says, "
            "and check that this machine reaches the central Maven repository"
        )


def _command(home: Path, ivy: Path) -> list[str]:
    settings, nothing = ivy / "ivysettings.xml", ivy / "nothing.py"
    settings.write_bytes(importlib.resources.files("lakelabel").joinpath("ivysettings.xml").read_bytes())
    nothing.touch()
    conf = {
        "spark.jars.packages": delta_coordinate(),
        "spark.jars.excludes": ",".join(f"*:{artifact}" for artifact in _shipped(home / "jars")),
        "spark.jars.ivySettings": settings.as_uri(),  # read as a URI: a space in a plain path is an error
        "spark.jars.ivy": ivy,
    }
    options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    return [str(home / "bin" / "spark-submit"), "--master", "local[1]", *options, str(nothing)]


def _shipped(jars: Path) -> list[str]:
    """Return the artifacts that Spark itself ships: its class loader would prefer its own copy to a fetched one anyway.

    Delta asks for Hadoop, Parquet and Jackson among others: 33 jars, 87 MB and 37 s with them, 8 jars, 13 MB and 13 s without.
    """
    found = (re.match(r"(.+?)-\d[^-]*(?:-[\w.]+)?\.jar$", jar.name) for jar in jars.glob("*.jar"))
    return sorted({match[1] for match in found if match})


if __name__ == "__main__":
    try:
        print(*delta_jars(), sep="\n")
    except LakelabelError as failed:
        sys.exit(f"error: {failed}")
