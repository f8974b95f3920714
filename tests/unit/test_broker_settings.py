"""The settings of brokers. Those of the compose file fail over as fast as those of brokers that the plane runs."""

from __future__ import annotations

from pathlib import Path

import yaml

from deploy.kafka.broker_node import TAKEOVER, Node, properties

COMPOSE = Path(__file__).parents[2] / "deploy" / "docker" / "compose.yaml"


def test_the_compose_file_has_the_takeover_settings_of_our_own_brokers() -> None:
    environment = yaml.safe_load(COMPOSE.read_text())["x-kafka-environment"]
    wanted = {f"KAFKA_{setting.upper().replace('.', '_')}": value for setting, value in TAKEOVER.items()}
    assert {name: environment.get(name) for name in wanted} == wanted


def settings_of(node: Node, nodes: list[Node]) -> dict[str, str]:
    lines = properties(node, nodes, Path("logs")).splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_brokers_are_controllers_unless_there_are_separate_ones() -> None:
    both = [Node(1, 1001, 2001), Node(2, 1002, 2002)]
    settings = settings_of(both[1], both)
    assert settings["process.roles"] == "broker,controller"
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1002,CONTROLLER://127.0.0.1:2002"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:2001,2@127.0.0.1:2002"
    assert settings["default.replication.factor"] == "2"

    broker, controller = Node(1, 1001, 0), Node(2, 0, 2002)
    of_broker, of_controller = settings_of(broker, [broker, controller]), settings_of(controller, [broker, controller])
    assert (of_broker["process.roles"], of_controller["process.roles"]) == ("broker", "controller")
    assert of_broker["listeners"] == of_broker["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1001"
    assert of_controller["listeners"] == "CONTROLLER://127.0.0.1:2002"
    assert "advertised.listeners" not in of_controller
    for settings in (of_broker, of_controller):
        assert settings["controller.quorum.voters"] == "2@127.0.0.1:2002"
        assert settings["default.replication.factor"] == "1"
    assert (broker.name, controller.name) == ("broker 1", "controller 2")
