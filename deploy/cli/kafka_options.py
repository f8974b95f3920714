"""How commands say how Kafka's brokers are to be spoken to: the same flags everywhere, as in the settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from deploy.kafka.security import KafkaSecurity, Mechanism, SecurityProtocol

F = TypeVar("F", bound=Callable[..., Any])

_FLAGS = {
    "security_protocol": ("NAME", "PLAINTEXT, SSL (mutual TLS) or SASL_SSL (a password).  [PLAINTEXT]"),
    "sasl_mechanism": ("NAME", "SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN."),
    "sasl_username": ("NAME", "Who we are to the brokers."),
    "sasl_password_file": ("FILE", "File that holds the password."),
    "ca_file": ("FILE", "Authorities of brokers' certificates.  [the system's]"),
    "cert_file": ("FILE", "Our certificate for the brokers."),
    "key_file": ("FILE", "Its key."),
}
_CHOICES = {"security_protocol": get_args(SecurityProtocol), "sasl_mechanism": get_args(Mechanism)}


def kafka_options(function: F) -> F:
    """Gives a command the flags as they are, for settings to take: None where none was given."""
    for name, (metavar, text) in reversed(_FLAGS.items()):
        function = click.option(f"--kafka-{name.replace('_', '-')}", metavar=metavar, help=text)(function)
    return function


def kafka_access_options(function: F) -> F:
    """Gives a command that has no settings the flags, each also from the environment."""
    for name, (metavar, text) in reversed(_FLAGS.items()):
        kind: Any = click.Path(dir_okay=False, path_type=Path) if metavar == "FILE" else str
        function = click.option(
            f"--kafka-{name.replace('_', '-')}",
            metavar=metavar,
            type=click.Choice(_CHOICES[name]) if name in _CHOICES else kind,
            envvar=f"DPUPLANE_KAFKA_{name.upper()}",
            help=text,
        )(function)
    return function


def take_access(given: dict[str, Any]) -> KafkaSecurity:
    """The access that a command was given, taken out of its parameters. Raises UsageError."""
    named = {name: given.pop(f"kafka_{name}") for name in _FLAGS}
    access = KafkaSecurity(**{name: value for name, value in named.items() if value is not None})
    if fault := access.fault():
        raise click.UsageError(fault)
    return access
