"""The flags for the connection to Kafka, the same for every command and as in the settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from deploy.kafka.security import KafkaSecurity, Mechanism, SecurityProtocol

F = TypeVar("F", bound=Callable[..., Any])

_FLAGS = {
    "security_protocol": ("NAME", "PLAINTEXT, SSL (mutual TLS) or SASL_SSL (password).  [PLAINTEXT]"),
    "sasl_mechanism": ("NAME", "SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN."),
    "sasl_username": ("NAME", "User name for the brokers."),
    "sasl_password_file": ("FILE", "File with the password."),
    "ca_file": ("FILE", "Certificate authorities of the brokers.  [the system's]"),
    "cert_file": ("FILE", "Certificate for the brokers."),
    "key_file": ("FILE", "Its key."),
}
_CHOICES = {"security_protocol": get_args(SecurityProtocol), "sasl_mechanism": get_args(Mechanism)}


def kafka_options(function: F) -> F:
    """Add the flags to a command that has settings; None for a flag that was not given."""
    for name, (metavar, text) in reversed(_FLAGS.items()):
        function = click.option(f"--kafka-{name.replace('_', '-')}", metavar=metavar, help=text)(function)
    return function


def kafka_access_options(function: F) -> F:
    """Add the flags, with their environment variables, to a command without settings."""
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
    """Take the Kafka flags out of the parameters of a command. Raises UsageError."""
    named = {name: given.pop(f"kafka_{name}") for name in _FLAGS}
    access = KafkaSecurity(**{name: value for name, value in named.items() if value is not None})
    if fault := access.fault():
        raise click.UsageError(fault)
    return access
