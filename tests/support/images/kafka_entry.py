"""What the entry point of the image apache/kafka does: settings from KAFKA_*, the folder prepared, the broker run."""

import os
import subprocess
from pathlib import Path

JAVA = (
    "/opt/java/bin/java",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-cp",
    "/opt/kafka/*",
)
SETTINGS = Path("/tmp/server.properties")


def setting(variable: str) -> str:
    """KAFKA_LOG_DIRS is log.dirs; two underscores stand for one, three for a dash."""
    name = variable.removeprefix("KAFKA_").lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def main() -> None:
    """Become the broker."""
    given = {setting(name): value for name, value in os.environ.items() if name.startswith("KAFKA_")}
    SETTINGS.write_text("".join(f"{name}={value}\n" for name, value in sorted(given.items())))
    prepare = ("format", "--ignore-formatted", "-t", os.environ["CLUSTER_ID"], "-c", str(SETTINGS))
    subprocess.run([*JAVA, "kafka.tools.StorageTool", *prepare], check=True)
    os.execv(JAVA[0], [*JAVA, "kafka.Kafka", str(SETTINGS)])


main()
