"""The options of every client command. They follow the subcommand."""

from __future__ import annotations

import functools
import operator
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from google.protobuf.message import Message

from deploy.cli.shared import param_types
from deploy.cli.shared.client import Client
from deploy.cli.shared.contexts import use_context
from deploy.cli.shared.errors import SENT_COMMAND_IDS
from deploy.cli.shared.output import FORMATS, Output
from deploy.cli.shared.tls import certificates_of, tls_options
from deploy.cli.shared.watch import watch as watch_until_interrupted
from projections.field_checks import is_utf8, quoted
from projections.pages import MAX_PAGE

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=Message)

_ANSWER_S = 10.0

_SERVER = click.option(
    "--server",
    "servers",
    callback=param_types.addresses,
    metavar="HOST:PORT,...",
    envvar="DPUPLANE_SERVER",
    default="127.0.0.1:7080",
    show_default=True,
    show_envvar=True,
    help="API address of the plane; several are tried in order.",
)
_OUTPUTS = ("table", "json", "yaml")
_CONTEXT = click.option(
    "--context",
    is_eager=True,
    expose_value=False,
    callback=use_context,
    envvar="DPUPLANE_CONTEXT",
    metavar="NAME",
    help="Context with the address and certificate of a plane (`dpuplane config`).  [the current one]",
)
_AS = click.option(
    "--as",
    "principal",
    callback=param_types.principal,
    metavar="NAME",
    default="",
    help="Your name in the log (unauthenticated; loopback only).",
)
_TIMEOUT = click.option(
    "--timeout",
    type=param_types.Seconds(0.1, 30.0),
    default=10.0,
    show_default=True,
    help="Seconds to wait for a response, or a duration such as 5s.",
)
_MIN_POSITION = click.option(
    "--min-position",
    callback=param_types.position,
    metavar="TOKEN",
    default="",
    help="Wait until the server has folded this `position` of an earlier response.",
)
_AT = click.option(
    "--as-of",
    callback=param_types.as_of_text,
    metavar="POSITION|TIME",
    default="",
    help="Query the past: as of the `position` of an earlier response, a time (ISO 8601 or ms), or 10m for 10 "
    "minutes ago.",
)
_WATCH = click.option("--watch", is_flag=True, help="Print again after each change, until Ctrl-C.")
_NO_HEADERS = click.option("--no-headers", is_flag=True, help="Omit the heads of the columns.")
_LIMIT = click.option("--limit", type=click.IntRange(1, 10_000_000), metavar="N", help="List at most N items.")


def selector_option(what: str) -> Callable[[F], F]:
    """Pass the label selector of a command as `selector`; empty if not given."""
    return click.option(
        "--selector",
        "-l",
        callback=param_types.label_selector,
        default="",
        metavar="SELECTOR",
        help=f"Only {what}: K=V, K!=V, K in (A,B), K notin (A,B), K, !K; several with commas.",
    )


_WAIT = click.option(
    "--timeout",
    type=param_types.Seconds(0, 86_400),
    default=60.0,
    show_default=True,
    help="Maximum of seconds to wait, or a duration such as 5m; exit status 3 afterwards.",
)
_COMMAND_ID = click.option(
    "--command-id",
    callback=param_types.command_id,
    metavar="UUIDv7",
    default="",
    help="Id of the command: repeated commands with one id take effect at most once.  [a new id]",
)


def check_zone_of_id(client: Client, zone: str) -> None:
    """Raises UsageError for a command id without a zone: the id is bound to one zone, and a repeated lookup may find
    another zone."""
    if client.command_id and not zone:
        raise click.UsageError(
            "--command-id needs --zone here: an id is bound to one zone, and the looked-up zone may change"
        )


def print_located(zones: Iterable[str]) -> None:
    """Print every zone that was looked up, once. To repeat the command under its id, the caller must name the zone."""
    if unique := sorted(set(zones)):
        click.echo(f"looked up: zone {', '.join(unique)}", err=True)


def _output(*choices: str) -> Callable[[F], F]:
    return click.option(
        "--output",
        "-o",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        help="Format of the result.",
    )


def make_client(
    servers: list[str],
    principal: str,
    timeout: float,
    *,
    tls: Mapping[str, Path | None],
    command_id: str = "",
    min_position: str = "",
) -> Client:
    """The client of a command. Raises UsageError if both a certificate and --as name the principal."""
    certificates = certificates_of(**tls)
    if certificates is not None and principal:
        raise click.UsageError(f"--as: omit it, because your certificate names the principal, {certificates.principal}")
    return Client(
        certificates=certificates,
        servers=servers,
        principal=principal,
        timeout_s=timeout,
        command_id=command_id,
        min_position=min_position,
        now_ms=lambda: time.time_ns() // 1_000_000,
        rng=random.Random(),
    )


def _connection_options(function: F) -> F:
    """Add the options for the plane and the principal of a command. Refuse text that the API cannot encode."""

    @functools.wraps(function)
    def run(**given: Any) -> None:
        _check_utf8(click.get_current_context())
        function(**given)

    return _CONTEXT(_AS(_SERVER(tls_options(run))))  # type: ignore[return-value]


def _check_utf8(context: click.Context) -> None:
    """Raises BadParameter for text that is not UTF-8, because protobuf cannot encode it. Python decodes invalid
    bytes of the command line as surrogates. Paths are not checked, because the name of a file may be any bytes."""
    for parameter in context.command.params:
        for text in _texts(context.params.get(parameter.name or "")):
            if not is_utf8(text):
                raise click.BadParameter(f"{quoted(text)} must be text in UTF-8", context, parameter)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from _texts(pair)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _texts(item)


def query_options(function: F) -> F:
    """Pass `client` and `output` to a command, and add their options."""
    return query_options_in(*_OUTPUTS)(function)


def query_options_in(*outputs: str) -> Callable[[F], F]:
    """Like `query_options`, for other output formats; the first is the default."""

    def decorated(function: F) -> F:
        @functools.wraps(function)
        def run(
            *, servers: list[str], principal: str, timeout: float, output: str, min_position: str, **given: Any
        ) -> None:
            with make_client(
                servers, principal, timeout, tls=_tls_options_taken(given), min_position=min_position
            ) as client:
                function(client=client, output=output, **given)

        return _MIN_POSITION(_TIMEOUT(_output(*outputs)(_connection_options(run))))  # type: ignore[return-value]

    return decorated


def show_options(function: F) -> F:
    """Like `query_options`, with `--as-of` and `--watch`: for commands that only query the state of the plane. `output`
    is an Output."""

    @functools.wraps(function)
    def run(*, client: Client, as_of: str, watch: bool, output: str, no_headers: bool = False, **given: Any) -> None:
        if as_of and watch:
            raise click.UsageError("--watch: must not be given with --as-of, because the past never changes")
        client.as_of = as_of
        show = functools.partial(function, client=client, output=Output(output, headers=not no_headers), **given)
        if watch:
            watch_until_interrupted(client, show)
        show()

    return query_options_in(*FORMATS)(_AT(_WATCH(run)))  # type: ignore[return-value]


def list_options(function: F) -> F:
    """Like `show_options`, with `--no-headers` and `--limit`: for commands that print a list."""
    return show_options(_NO_HEADERS(_LIMIT(function)))


def command_options(function: F) -> F:
    """Like `query_options`, with `--command-id`: for commands that change the plane."""

    @functools.wraps(function)
    def run(*, servers: list[str], principal: str, timeout: float, output: str, command_id: str, **given: Any) -> None:
        with make_client(servers, principal, timeout, tls=_tls_options_taken(given), command_id=command_id) as client:
            click.get_current_context().meta[SENT_COMMAND_IDS] = client.sent_command_ids
            function(client=client, output=output, **given)

    return _COMMAND_ID(_TIMEOUT(_output(*_OUTPUTS)(_connection_options(run))))  # type: ignore[return-value]


def wait_options(function: F) -> F:
    """Like `query_options`, but `timeout` limits the whole wait, not one response."""

    @functools.wraps(function)
    def run(*, servers: list[str], principal: str, timeout: float, output: str, **given: Any) -> None:
        with make_client(
            servers, principal, min(timeout, _ANSWER_S) or _ANSWER_S, tls=_tls_options_taken(given)
        ) as client:
            function(client=client, output=output, timeout=timeout, **given)

    return _WAIT(_output(*_OUTPUTS)(_connection_options(run)))  # type: ignore[return-value]


def _tls_options_taken(given: dict[str, Any]) -> dict[str, Path | None]:
    """Take the options of `tls_options` out of the parameters of a command."""
    return {name: given.pop(name) for name in ("tls_cert", "tls_key", "tls_ca")}


def key_values(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Callback of repeatable K=V options and arguments."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{quoted(text)} must be KEY=VALUE")
        if key in found:
            raise click.BadParameter(f"{quoted(key)} is given twice")
        found[key] = value
    return found


def list_all_pages(
    client: Client,
    method: str,
    request: Any,
    kind: type[M],
    field: str,
    *,
    by: tuple[str, ...] = (),
    limit: int | None = None,
) -> M:
    """All pages of a list as one message, sorted by the fields `by`; without `by`, in the order of the server. With a
    limit, the message has at most that many items, and a note is printed to stderr if the server has more."""
    whole = kind()
    items = getattr(whole, field)
    while True:
        if limit is not None:
            request.page_size = min(limit - len(items), MAX_PAGE)
        page = client.query(method, request)
        items.extend(getattr(page, field))
        whole.position = page.position  # type: ignore[attr-defined]
        if (limit is not None and len(items) >= limit) or not page.next_page_token:
            break
        request.page_token = page.next_page_token
    if limit is not None and page.next_page_token:
        click.echo(f"there are more than {limit} {field}: --limit cut the list", err=True)
    if by:
        items.sort(key=operator.attrgetter(*by))
    return whole
