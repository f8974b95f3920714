"""The entry point of the image apache/kafka, reproduced: it maps KAFKA_* settings, prepares the folder and runs the
broker.
"""

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
    """KAFKA_LOG_DIRS maps to log.dirs; two underscores map to one, three to a dash."""
    name = variable.removeprefix("KAFKA_").lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def main() -> None:
    """Replace this process with the broker."""
    given = {setting(name): value for name, value in os.environ.items() if name.startswith("KAFKA_")}
    SETTINGS.write_text("".join(f"{name}={value}\n" for name, value in sorted(given.items())))
    prepare = ("format", "--ignore-formatted", "-t", os.environ["CLUSTER_ID"], "-c", str(SETTINGS))
    subprocess.run([*JAVA, "kafka.tools.StorageTool", *prepare], check=True)
    os.execv(JAVA[0], [*JAVA, "kafka.Kafka", str(SETTINGS)])


main()
