"""The options for the namespace of a command about objects."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from deploy.cli.resources.manifests import DEFAULT_NAMESPACE
from deploy.cli.shared import param_types

F = TypeVar("F", bound=Callable[..., Any])

namespace_option = click.option(
    "--namespace",
    "-n",
    callback=param_types.not_empty,
    default="",
    metavar="NAMESPACE",
    help=f"Namespace of the objects.  [{DEFAULT_NAMESPACE}]",
)
_ALL_NAMESPACES = click.option("--all-namespaces", "-A", is_flag=True, help="Objects of every namespace.")


def namespaces_option(function: F) -> F:
    """Pass the namespace of a list as `namespace`; empty for all namespaces."""

    @functools.wraps(function)
    def run(*, namespace: str, all_namespaces: bool, **given: Any) -> None:
        if namespace and all_namespaces:
            raise click.UsageError("--namespace: must not be given with --all-namespaces")
        function(namespace="" if all_namespaces else namespace or DEFAULT_NAMESPACE, **given)

    return namespace_option(_ALL_NAMESPACES(run))  # type: ignore[return-value]
