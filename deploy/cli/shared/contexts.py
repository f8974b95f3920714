"""Contexts of the command line: named planes with the address, certificate and name to use for each.

The file is `$DPUPLANE_CLIENT_CONFIG`, or `dpuplane/config.yaml` in `$XDG_CONFIG_HOME` (`~/.config` by default). It is
not `$DPUPLANE_CONFIG`, which names the settings of a process: both may be set in one environment. A context has only
text fields, which are checked by hand: the import of pydantic would cost each command 0.2 s.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from deploy.cli.shared.errors import Refused
from deploy.settings.addresses import parse_addresses
from projections.field_checks import check_clique, quoted

FILE_VARIABLE = "DPUPLANE_CLIENT_CONFIG"
_CHARACTERS_MAX = 1 << 20
_TLS = ("tls_cert", "tls_key", "tls_ca")


class Context(NamedTuple):
    """A named plane. The file omits empty fields. Paths are absolute, or relative to the folder of the file."""

    server: str = ""
    principal: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""


_KEYS = {"server": "server", "as": "principal", **{name: name for name in _TLS}}
"""The fields of a context in the file, which are the names of the options without dashes."""


class Contexts(NamedTuple):
    """The content of the file: contexts by name, and the name of the current one (empty for none)."""

    current: str = ""
    named: Mapping[str, Context] = {}

    def to_dict(self) -> dict[str, Any]:
        """The content as it is in the file."""
        named = {
            name: {key: getattr(context, field) for key, field in _KEYS.items() if getattr(context, field)}
            for name, context in self.named.items()
        }
        return {"current-context": self.current, "contexts": named}


class BadContexts(click.UsageError):
    """The file of contexts is invalid, or has no context of a given name. The message names the file and the field."""


def contexts_file(environment: Mapping[str, str] = os.environ) -> Path:
    """The path of the file, which need not exist."""
    if given := environment.get(FILE_VARIABLE):
        return Path(given)
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "dpuplane" / "config.yaml"


def load_contexts(file: Path) -> Contexts:
    """The content of the file; without a file, no context. Raises BadContexts."""
    try:
        with file.open(encoding="utf-8") as stream:
            text = stream.read(_CHARACTERS_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as error:
        raise BadContexts(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadContexts(f"{file}: byte {error.start + 1} is not UTF-8") from error
    from deploy.settings.yaml_text import NotYaml, documents_of

    try:
        return _contexts([document for document in documents_of(text) if document is not None])
    except (NotYaml, click.UsageError) as error:
        raise BadContexts(f"{file}: {error}") from error


def save_contexts(file: Path, contexts: Contexts) -> None:
    """Replace the file. Raises Refused if it cannot be written."""
    import yaml

    from deploy.atomic_files import atomic_write
    from eventstore.errors import PermanentError

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as partial:
            partial.write_text(yaml.safe_dump(contexts.to_dict(), sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise Refused(f"{file.parent}: cannot be created: {error.strerror}") from error
    except PermanentError as error:
        raise Refused(str(error)) from error


def context_named(contexts: Contexts, name: str, file: Path) -> Context:
    """The context of this name. Raises BadContexts."""
    if name in contexts.named:
        return contexts.named[name]
    known = f"it has {', '.join(sorted(contexts.named))}" if contexts.named else "it has no context"
    raise BadContexts(f"context: {quoted(name)} is not in {file}; {known}")


def checked(name: str, fields: Mapping[Any, Any]) -> Context:
    """The context with these fields. Raises BadContexts."""
    given: dict[str, str] = {}
    for key, value in fields.items():
        if key not in _KEYS:
            raise BadContexts(f"{name}.{_word(key)} must be one of {', '.join(_KEYS)}")
        if not isinstance(value, str) or not value:
            raise BadContexts(f"{name}.{key}: must be text, and not empty")
        if fault := _FAULTS.get(key, _no_fault)(value):
            raise BadContexts(f"{name}.{key}: {fault}")
        given[_KEYS[key]] = value
    missing = [key for key in _TLS if key not in given]
    if len(missing) not in (0, len(_TLS)):
        raise BadContexts(f"{name}.{missing[0]}: must be given with the other two of {', '.join(_TLS)}")
    if "principal" in given and not missing:
        raise BadContexts(f"{name}.as: must not be given with tls_cert, because the certificate names the principal")
    return Context(**given)


def option_defaults(context: Context, folder: Path) -> dict[str, Any]:
    """Defaults for the options of a command from a context, by name of the parameter."""
    paths = {name: str(folder / value) for name in _TLS if (value := getattr(context, name))}
    texts = {"servers": context.server, "principal": context.principal}
    return {**{name: value for name, value in texts.items() if value}, **paths}


def use_context(command: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    """Callback of `--context`: the fields of the context become defaults, which flags and variables override."""
    file = contexts_file()
    try:
        contexts = load_contexts(file)
        name = given if given is not None else contexts.current
        context = context_named(contexts, name, file) if name or given is not None else Context()
    except BadContexts:
        if not command.resilient_parsing:  # click parses this way while a shell completes a line
            raise
        return given
    command.default_map = {**(command.default_map or {}), **option_defaults(context, file.parent)}
    return given


def _contexts(documents: list[Any]) -> Contexts:
    if not documents:
        return Contexts()
    found = documents[0]
    if len(documents) > 1 or not isinstance(found, Mapping):
        raise BadContexts("must be one mapping with the fields current-context and contexts")
    for key in found:
        if key not in ("current-context", "contexts"):
            raise BadContexts(f"{_word(key)} is not a known field; the fields are current-context and contexts")
    named, current = found.get("contexts") or {}, found.get("current-context") or ""
    if not isinstance(named, Mapping):
        raise BadContexts("contexts: must be a mapping of names to contexts")
    contexts: dict[str, Context] = {}
    for name, fields in named.items():
        if fault := name_fault(name):
            raise BadContexts(f"contexts.{fault}")
        if not isinstance(fields, Mapping):
            raise BadContexts(f"contexts.{name}: must be a mapping of fields")
        contexts[name] = checked(f"contexts.{name}", fields)
    if current and (not isinstance(current, str) or current not in contexts):
        raise BadContexts(f"current-context: {_word(current)} is not one of the contexts")
    return Contexts(current, contexts)


def name_fault(name: object) -> str | None:
    """Why this cannot be the name of a context."""
    return check_clique("name", name) if isinstance(name, str) else f"name: {_word(name)} must be text"


def _server_fault(value: str) -> str | None:
    try:
        parse_addresses(value)
    except ValueError as error:
        return str(error)
    return None


def _as_fault(value: str) -> str | None:
    fault = check_clique("as", value)
    return fault and fault.removeprefix("as: ")


def _no_fault(_value: str) -> str | None:
    return None


_FAULTS: Mapping[str, Callable[[str], str | None]] = {"server": _server_fault, "as": _as_fault}


def _word(value: object) -> str:
    return quoted(str(value))
