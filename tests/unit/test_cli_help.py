"""Every command can be learned from its --help, and the list of commands costs no imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from deploy.cli import SUBCOMMANDS, cli
from deploy.reference.commands import Walked, example_of, walk
from tests.support.documents import calls, fault_of

CLIENT_COMMANDS = sorted(
    SUBCOMMANDS.keys() - {"demo", "serve", "simulator", "agent", "host-agent", "clique-agent", "kafka"}
)

LOCAL_COMMANDS = {"certs", "checkpoint", "completion", "config", "doctor", "restore", "topics"}
"""Commands that work on files and call no server."""

LOG_COMMANDS = {"backup", "events", "history", "import", "replay", "upgrade", "verify"}
"""Commands that read the log, or a file of many nodes."""


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from leaves(child, (*path, name))
    else:
        yield path, command


def client_leaves() -> list[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(cli)
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name in CLIENT_COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        found += leaves(command, (name,))
    return found


@pytest.mark.parametrize(
    ("path", "command"),
    client_leaves(),
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_every_help_has_an_example_of_its_command(path: tuple[str, ...], command: click.Command) -> None:
    result = CliRunner().invoke(cli, [*path, "--help"])
    assert result.exit_code == 0
    if "Examples:" in result.output:
        return
    example = f"Example: dpuplane {' '.join(path)}"
    assert example in result.output
    _, _, rest = result.output.partition(example)
    assert "" in rest.splitlines()[1:2] or rest.count("\n") == 1, (
        "an example must be one line, so that it can be copied"
    )


@pytest.mark.parametrize("walked", list(walk()), ids=lambda walked: " ".join(walked.path))
def test_every_command_and_group_has_valid_examples(walked: Walked) -> None:
    examples = example_of(walked.command)
    assert examples, "the help has no example"
    called = [words for line in examples for words in calls(line)]
    assert called, examples
    for words in called:
        assert fault_of(words) is None
    leaf = "" if isinstance(walked.command, click.Group) else " ".join(walked.path)
    assert any(" ".join(words).startswith(leaf) for words in called)


@pytest.mark.parametrize(
    ("path", "command"),
    [(path, command) for path, command in client_leaves() if path[0] not in LOCAL_COMMANDS],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_common_options_come_after_the_subcommand(path: tuple[str, ...], command: click.Command) -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--server", "--output", "--as", "--timeout", "--tls-cert", "--tls-key", "--tls-ca"} <= options


@pytest.mark.parametrize(
    ("path", "command"),
    client_leaves(),
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_numbers_beyond_the_range_of_their_field_are_refused(path: tuple[str, ...], command: click.Command) -> None:
    unbounded = [parameter.name for parameter in command.params if type(parameter.type) is click.types.IntParamType]
    assert not unbounded


def test_the_list_of_commands_imports_none_of_them() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from deploy.cli import cli;"
        "r = CliRunner().invoke(cli, ['--help']); assert r.exit_code == 0, r.output; print(r.output);"
        "assert not {'grpc', 'aiokafka', 'numpy', 'pydantic'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in SUBCOMMANDS:
        assert f"\n  {name} " in done.stdout


def test_commands_that_read_no_log_import_none_of_its_libraries() -> None:
    """The import of these libraries takes 0.3 s, longer than all the rest of a client command."""
    asking = sorted(set(CLIENT_COMMANDS) - LOCAL_COMMANDS - LOG_COMMANDS)
    code = (
        "import sys; from click import Context; from deploy.cli import cli; import deploy.cli.shared.client;"
        f"[cli.get_command(Context(cli), name) for name in {asking}];"
        "found = {'aiokafka', 'fastavro', 'numpy', 'rocksdict'} & set(sys.modules); assert not found, found"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["nodes", "join", "n1"],
        ["nodes", "join", "n1", "--zone", "z", "--label", "novalue"],
        ["nodes", "join", "n1", "--zone", "z", "--label", "a=1", "--label", "a=2"],
        ["nodes", "list", "--timeout", "60"],
        ["nodes", "list", "--output", "xml"],
        ["nodes", "join", "n1", "--zone", "z", "--command-id", "not-an-id"],
        ["cliques", "capacity", "d", "c", "many"],
        ["zones", "limit", "z"],
        ["budgets", "set", "other", "--permille", "1", "--min-addresses", "1"],
        ["cliques", "capacity", "d", "c", "99999999999"],
        ["cliques", "config", "d", "c", "--merge", "-", "--output", "json"],
        ["cliques", "config", "d", "c", "--merge", "-", "--file", "peers"],
        ["zones", "limit", "z", "--parallel-installs", "99999999999"],
        ["cliques", "claim", "d", "c", "n", "--uid", "u", "--created-ms", "99999999999999999999"],
        ["holds", "approve", "99999999999999999999", "--hash", "aa"],
        ["freeze"],
        ["freeze", ""],
        ["freeze", "rack7", "--all"],
        ["freeze", "--all", "--create"],
        ["thaw"],
        ["thaw", ""],
        ["thaw", "rack7", "--all"],
        ["nodes", "list", "--server", ""],
        ["nodes", "list", "--server", "plane"],
        ["nodes", "list", "--server", "plane:70000"],
        ["events", "export", "--kafka", "broker"],
        ["events", "export", "--type", "NodesJoinde"],
        ["events", "export", "--command", "not-an-id"],
        ["events", "export", "--since", "yesterday"],
        ["replay", "--as-of", "yesterday"],
        ["replay", "--as-of", ""],
        ["replay", "--as-of", "log:zones/0=1,"],
        ["nodes", "list", "--as-of", "log:zones/0=one"],
        ["nodes", "list", "--min-position", "foo"],
        ["nodes", "list", "--min-position", "log:zones/0=1,"],
        ["nodes", "list", "--zone", ""],
        ["nodes", "list", "--as", ""],
        ["nodes", "show", ""],
        ["nodes", "join", "n1", "--zone", ""],
        ["dpus", "list", "--phase", "foo"],
        ["dpus", "list", "--phase", ""],
        ["events", "export", "--subject", ""],
        ["events", "export", "--actor", ""],
        ["events", "tail", "--output", "json"],
        ["commands", "show", "not-an-id"],
        ["wait", "dpu", "d", "--for", "redy"],
        ["wait", "dpu"],
        ["wait", "dpu", "d", "--selector", "row=7"],
        ["wait", "zone"],
        ["wait", "zone", "z", "--selector", "row=7"],
        ["nodes", "list", "--selector", "row in"],
        ["nodes", "list", "--selector", ""],
        ["nodes", "list", "--limit", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert not result.stdout


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_plane_without_a_listener_is_unreachable(output: str) -> None:
    server = "127.0.0.1:1,127.0.0.1:2"
    result = CliRunner().invoke(cli, ["nodes", "list", "--server", server, "--output", output])
    assert (result.exit_code, result.stdout) == (3, "")
    assert server.replace(",", ", ") in result.stderr
    assert "dpuplane serve" in result.stderr


def test_a_command_without_a_listener_was_not_sent_and_has_no_unknown_outcome() -> None:
    result = CliRunner().invoke(cli, ["freeze", "--all", "--server", "127.0.0.1:1"])
    assert result.exit_code == 3
    assert "no process listens at 127.0.0.1:1" in result.stderr
    assert "command" not in result.stderr


@pytest.mark.parametrize(
    "arguments", [("nodes", "list", "--as-of"), ("nodes", "list", "--min-position"), ("freeze", "--command-id")]
)
def test_an_empty_option_is_refused(arguments: tuple[str, ...]) -> None:
    ran = CliRunner().invoke(cli, [*arguments, ""])
    assert (ran.exit_code, f"'{arguments[-1]}': must not be empty" in ran.output) == (2, True)


def test_an_argument_with_fixed_values_has_a_name_and_the_help_lists_them() -> None:
    """Without a name, an error would call the argument by the list of its values."""
    found = [
        (walked.command, param, param.type.choices)
        for walked in walk(cli)
        for param in walked.command.params
        if isinstance(param, click.Argument) and isinstance(param.type, click.Choice)
    ]
    assert len(found) >= 3
    for command, param, choices in found:
        assert (param.metavar or "").isupper(), param.name
        missing = [value for value in choices if value not in (command.help or "")]
        assert missing == [], param.name
