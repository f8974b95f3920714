"""The options of `serve` come from the model of settings, so each setting has exactly one option."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from deploy.cli import cli
from deploy.cli.operations.events import events
from deploy.cli.processes.serve import serve
from deploy.kafka.security import KafkaSecurity
from deploy.settings.settings import Settings, load_settings

OPTIONS = {param.name: param for param in serve.params if isinstance(param, click.Option)}
OTHERS = {"config", "log_level", "log_format"}
EXPORT = {param.name: param for param in events.commands["export"].params if isinstance(param, click.Option)}


def test_every_setting_has_its_option_and_every_option_its_setting() -> None:
    assert OPTIONS.keys() - OTHERS == Settings.model_fields.keys()


def test_a_help_is_the_description_with_flags_and_the_default() -> None:
    assert OPTIONS["tls_key"].help == "PEM file: the unencrypted key of --tls-cert."
    assert OPTIONS["calls_per_second"].help == "API calls per second of one principal, on average.  [50000]"
    assert OPTIONS["http"].help == "HTTP: the page, /metrics, /healthz, /readyz.  [127.0.0.1:7081]"
    assert str(OPTIONS["decisions"].help).endswith("  [true]")
    assert not any("`" in str(option.help) for option in OPTIONS.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [("data", "DIR"), ("kafka", "HOST:PORT,..."), ("tls_cert", "FILE"), ("partitions", "N"), ("listen", "HOST:PORT")],
)
def test_a_value_is_named_by_its_type(name: str, value: str) -> None:
    assert OPTIONS[name].metavar == value


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [(["--no-decisions"], "decisions", False), (["--no-insecure"], "insecure", False), (["--seed", "7"], "seed", 7)],
)
def test_an_option_overrides_the_environment(arguments: list[str], name: str, value: object) -> None:
    given = serve.make_context("serve", ["--data", "plane", *arguments]).params
    flags = {key: found for key, found in given.items() if key not in OTHERS}
    environment = {"DPUPLANE_DECISIONS": "true", "DPUPLANE_INSECURE": "true", "DPUPLANE_SEED": "1"}
    assert getattr(load_settings(flags, None, environment), name) == value


def test_source_clusters_are_a_repeatable_option() -> None:
    given = serve.make_context("serve", ["--data", "plane", "--kubeconfig", "east=e", "--kubeconfig", "w"]).params
    flags = {key: found for key, found in given.items() if key not in OTHERS}
    settings = load_settings(flags, None, {"DPUPLANE_KUBECONFIG": "ignored"})
    assert settings.source_clusters == (("east", "e"), ("cluster", "w"))
    absent = serve.make_context("serve", ["--data", "plane"]).params
    assert absent["kubeconfig"] is None, "the environment applies"


def test_an_invalid_value_is_refused_with_the_name_of_its_setting() -> None:
    ran = CliRunner().invoke(cli, ["serve", "--data", "plane", "--partitions", "no"])
    assert (ran.exit_code, "partitions: 'no' must be a number" in ran.output) == (2, True)


def test_commands_that_read_the_log_have_the_same_options_with_types_and_variables() -> None:
    for name in ("topic_prefix", *(f"kafka_{field}" for field in KafkaSecurity._fields)):
        assert EXPORT[name].help == OPTIONS[name].help
        assert EXPORT[name].envvar == f"DPUPLANE_{name.upper()}"
    protocol = EXPORT["kafka_security_protocol"].type
    assert isinstance(protocol, click.Choice) and list(protocol.choices) == ["PLAINTEXT", "SSL", "SASL_SSL"]
    mechanism = EXPORT["kafka_sasl_mechanism"].type
    assert isinstance(mechanism, click.Choice) and "PLAIN" in mechanism.choices
    assert EXPORT["kafka_ca_file"].type.convert("ca.pem", None, None) == Path("ca.pem")
