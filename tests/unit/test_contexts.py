"""Contexts: the content of the file, the order of flag, variable, context and default, and the commands for it."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.cli import cli
from deploy.cli.shared.contexts import Context, Contexts, contexts_file, load_contexts, save_contexts
from deploy.cli.shared.options import query_options

_LAB = "current-context: lab\ncontexts:\n  lab: {server: '127.0.0.1:1', as: alice}\n  other: {server: '127.0.0.1:2'}\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPUPLANE_CLIENT_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.delenv("DPUPLANE_SERVER", raising=False)
    return tmp_path / "config.yaml"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments])


def server_of(*arguments: str) -> str:
    """The server that a command tries to call. No process listens there."""
    ran = run("nodes", "list", *arguments)
    assert ran.exit_code == 3
    return ran.stderr.partition("listens at ")[2].partition(": ")[0]


def test_the_file_comes_from_the_variable_or_the_configuration_folder() -> None:
    assert contexts_file({"DPUPLANE_CLIENT_CONFIG": "/etc/c.yaml", "XDG_CONFIG_HOME": "/x"}) == Path("/etc/c.yaml")
    assert contexts_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/dpuplane/config.yaml")
    assert contexts_file({}) == Path.home() / ".config/dpuplane/config.yaml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "must be one mapping with the fields current-context and contexts"),
        ("contexts: {}\n---\ncontexts: {}\n", "must be one mapping"),
        ("context: {}", "'context' is not a known field"),
        ("contexts: [lab]", "contexts: must be a mapping of names to contexts"),
        ("contexts: {'la b': {}}", "contexts.name: 'la b' must be 1 to 128"),
        ("contexts: {7: {}}", "contexts.name: '7' must be text"),
        ("contexts: {lab: 7}", "contexts.lab: must be a mapping of fields"),
        ("contexts: {lab: {port: 7}}", "contexts.lab.'port' must be one of server, as, tls_cert, tls_key, tls_ca"),
        ("contexts: {lab: {server: 7}}", "contexts.lab.server: must be text, and not empty"),
        ("contexts: {lab: {server: ''}}", "contexts.lab.server: must be text, and not empty"),
        ("contexts: {lab: {server: plane}}", "contexts.lab.server: 'plane' must be HOST:PORT"),
        ("contexts: {lab: {as: 'a b'}}", "contexts.lab.as: 'a b' must be 1 to 128"),
        ("contexts: {lab: {tls_cert: a}}", "contexts.lab.tls_key: must be given with the other two"),
        ("contexts: {lab: {as: a, tls_cert: a, tls_key: b, tls_ca: c}}", "contexts.lab.as: must not be given with"),
        ("current-context: lab", "current-context: 'lab' is not one of the contexts"),
        ("current-context: [lab]", "current-context: "),
        ("contexts: {lab: {}, lab: {}}", "'lab' is given twice"),
        ("contexts: *a", "line 1: an alias must name an anchor"),
    ],
)
def test_an_invalid_file_is_refused_in_one_sentence_with_file_and_field(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    for arguments in (["nodes", "list"], ["config", "view"]):
        ran = run(*arguments)
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert f"Error: {file}: {said}" in ran.stderr.replace("\n  ", " ")


def test_an_unreadable_file_is_refused_with_the_reason(file: Path) -> None:
    file.write_bytes(b"contexts: \xff")
    assert "byte 11 is not UTF-8" in run("config", "view").stderr
    file.unlink()
    file.mkdir()
    assert "cannot be read: Is a directory" in run("config", "view").stderr
    assert run("config", "set-context", "lab", "--server", "127.0.0.1:1").exit_code == 2


def test_precedence_is_flag_variable_context_default(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert server_of() == "127.0.0.1:7080"
    file.write_text(_LAB)
    assert server_of() == "127.0.0.1:1"
    assert server_of("--context", "other") == "127.0.0.1:2"
    monkeypatch.setenv("DPUPLANE_CONTEXT", "other")
    assert server_of() == "127.0.0.1:2"
    assert server_of("--context", "lab") == "127.0.0.1:1"
    monkeypatch.setenv("DPUPLANE_SERVER", "127.0.0.1:3")
    assert server_of() == "127.0.0.1:3"
    assert server_of("--server", "127.0.0.1:4") == "127.0.0.1:4"


def test_files_of_a_context_are_relative_to_its_file(file: Path) -> None:
    file.write_text("current-context: s\ncontexts: {s: {tls_cert: a, tls_key: /k, tls_ca: sub/ca}}\n")
    ran = run("nodes", "list")
    assert ran.exit_code == 2
    assert str(file.parent / "a") in ran.stderr.replace("\n", "")


def test_an_unknown_context_is_refused_with_the_known_ones(file: Path) -> None:
    file.write_text(_LAB)
    ran = run("nodes", "list", "--context", "lba")
    assert (ran.exit_code, f"context: 'lba' is not in {file}; it has lab, other" in ran.stderr) == (2, True)
    assert "context: '' is not in" in run("nodes", "list", "--context", "").stderr
    for command in ("use-context", "delete-context"):
        assert run("config", command, "lba").exit_code == 2
    assert file.read_text() == _LAB


def test_contexts_are_set_chosen_listed_and_deleted(file: Path) -> None:
    assert run("config", "current-context").exit_code == 1
    assert run("config", "set-context", "lab", "--server", "127.0.0.1:1", "--as", "alice").exit_code == 0
    assert run("config", "current-context").stdout == "lab\n"
    files = ["--tls-cert", "me.pem", "--tls-key", "me.key", "--tls-ca", "ca.pem"]
    assert run("config", "set-context", "prod", "--server", "127.0.0.1:2", *files).exit_code == 0
    assert run("config", "use-context", "prod").exit_code == 0
    assert load_contexts(file).named["prod"].tls_cert == str(Path("me.pem").absolute())
    rows = json.loads(run("config", "get-contexts", "-o", "json").stdout)["contexts"]
    assert [(row["name"], row["current"], row["as"]) for row in rows] == [("lab", False, "alice"), ("prod", True, "")]
    assert run("config", "get-contexts", "-o", "name").stdout == "lab\nprod\n"
    assert "CURRENT" in run("config", "get-contexts").stdout
    assert "CURRENT" not in run("config", "get-contexts", "--no-headers").stdout
    assert str(Path("ca.pem").absolute()) in run("config", "get-contexts", "-o", "wide").stdout
    assert yaml.safe_load(run("config", "view").stdout) == load_contexts(file).to_dict()
    assert run("config", "delete-context", "prod").exit_code == 0
    assert run("config", "current-context").exit_code == 1


def test_an_omitted_field_stays_and_an_empty_one_is_removed(file: Path) -> None:
    run("config", "set-context", "lab", "--server", "127.0.0.1:1", "--as", "alice")
    assert run("config", "set-context", "lab", "--server", "127.0.0.1:2").exit_code == 0
    assert load_contexts(file).named["lab"] == Context("127.0.0.1:2", "alice")
    assert run("config", "set-context", "lab", "--as", "").exit_code == 0
    assert load_contexts(file).named["lab"] == Context("127.0.0.1:2")
    refused = run("config", "set-context", "lab", "--server", "plane")
    assert (refused.exit_code, "lab.server: 'plane' must be HOST:PORT" in refused.stderr) == (2, True)
    assert load_contexts(file).named["lab"] == Context("127.0.0.1:2")


def test_a_shell_completes_names_of_contexts_and_ignores_a_bad_file(file: Path) -> None:
    def completed(incomplete: str) -> list[str]:
        context = click.Context(click.Command("none"))
        return [item.value for item in parameter.shell_complete(context, incomplete)]

    command = cli.get_command(click.Context(cli), "config")
    assert isinstance(command, click.Group)
    parameter = command.commands["use-context"].params[0]
    file.write_text(_LAB)
    assert completed("o") == ["other"]
    file.write_text("[]")
    assert completed("o") == []

    @click.command()
    @query_options
    def listed(**_given: object) -> None:
        raise AssertionError("a completion runs no command")

    assert listed.make_context("listed", [], resilient_parsing=True).default_map is None


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
SERVERS = st.integers(1, 65_535).map(lambda port: f"host:{port}")
EMPTY = st.just("")
CONTEXTS = st.tuples(SERVERS | EMPTY, NAMES | EMPTY, EMPTY, EMPTY, EMPTY) | st.tuples(
    SERVERS, EMPTY, NAMES, NAMES, NAMES
)


@settings(max_examples=20, deadline=None)
@given(named=st.dictionaries(NAMES, CONTEXTS.map(Context._make), max_size=3), choose=st.booleans())
def test_saved_contexts_can_be_loaded(
    tmp_path_factory: pytest.TempPathFactory, named: dict[str, Context], choose: bool
) -> None:
    contexts = Contexts(next(iter(named), "") if choose else "", named)
    file = tmp_path_factory.mktemp("contexts") / "sub" / "config.yaml"
    save_contexts(file, contexts)
    assert load_contexts(file) == contexts
