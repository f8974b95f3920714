"""The brokers of the compose file take over from a dead one as soon as those of `dpuplane kafka`."""

from __future__ import annotations

from pathlib import Path

import yaml

from deploy.kafka.broker_node import TAKEOVER

COMPOSE = Path(__file__).parents[2] / "deploy" / "docker" / "compose.yaml"


def test_the_compose_file_has_what_our_own_brokers_run_with() -> None:
    environment = yaml.safe_load(COMPOSE.read_text())["x-kafka-environment"]
    wanted = {f"KAFKA_{setting.upper().replace('.', '_')}": value for setting, value in TAKEOVER.items()}
    assert {name: environment.get(name) for name in wanted} == wanted
