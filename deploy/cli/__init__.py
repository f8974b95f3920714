"""The command line: `dpuplane`.

Subcommands are imported when they are used, so that `dpuplane --help` and each `nodes show` of a script do not import a
Kafka client. Exit status: 0 done, waiting or held (the output shows which); 1 refused, or an unknown name; 2 wrong
usage; 3 unknown (the outcome of a command) or unreachable. A script may repeat a command only after status 3.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from deploy.cli.errors import SENT_COMMAND_IDS, unknown_outcome_note
from deploy.settings.environment import unknown_variables
from projections.field_checks import quoted


class Subcommand(NamedTuple):
    """The module of a subcommand, and its line in the list of commands."""

    module: str
    attribute: str
    summary: str


SUBCOMMANDS = {
    "demo": Subcommand("deploy.cli.demo", "demo", "Run the whole plane in one process, and let a fleet join it."),
    "serve": Subcommand("deploy.cli.serve", "serve", "Run a process of the plane."),
    "simulator": Subcommand("deploy.cli.simulator", "simulator", "Run simulated DPUs against relays."),
    "agent": Subcommand("deploy.cli.agent", "agent", "Run the agent of one DPU against relays."),
    "host-agent": Subcommand("deploy.cli.host_agent", "host_agent", "Run the agent of a host: its DPUs, its reboots."),
    "clique-agent": Subcommand("deploy.cli.clique_agent", "clique_agent", "Run a clique's daemon on its index."),
    "kafka": Subcommand("deploy.cli.kafka", "kafka", "Run local Kafka brokers with the recommended settings."),
    "topics": Subcommand("deploy.cli.topics", "topics", "Print the permissions that each role needs in Kafka."),
    "import": Subcommand("deploy.cli.inventory", "import_file", "Join the nodes of an inventory file."),
    "nodes": Subcommand("deploy.cli.nodes", "nodes", "List, show, join and remove nodes."),
    "zones": Subcommand("deploy.cli.zones", "zones", "List, show, label and limit zones."),
    "rules": Subcommand("deploy.cli.rules", "rules", "Print the rule table of a zone."),
    "cliques": Subcommand("deploy.cli.cliques", "cliques", "Claim and release clique indices; print index tables."),
    "apply": Subcommand("deploy.cli.apply", "apply", "Create or change the objects of manifests."),
    "diff": Subcommand("deploy.cli.apply", "diff", "Show what apply would change."),
    "get": Subcommand("deploy.cli.get", "get", "List objects of a kind, or print some of them."),
    "describe": Subcommand("deploy.cli.get", "describe", "Show objects in detail."),
    "delete": Subcommand("deploy.cli.delete", "delete", "Delete objects by name, or those of manifests."),
    "annotate": Subcommand("deploy.cli.annotate", "annotate", "Set and remove annotations of an object."),
    "rollout": Subcommand("deploy.cli.rollout", "rollout", "Watch, pause, resume and undo rollouts of DPUSets."),
    "dpus": Subcommand("deploy.cli.dpus", "dpus", "Register DPUs and drive their lifecycle."),
    "networks": Subcommand(
        "deploy.cli.networks", "networks", "Watch, pause, resume and undo staged changes of networks."
    ),
    "policies": Subcommand("deploy.cli.policies", "policies", "List, apply and delete rule policies."),
    "holds": Subcommand("deploy.cli.holds", "holds", "Approve or reject changes over their budget."),
    "budgets": Subcommand("deploy.cli.budgets", "budgets", "Limit the changes that need no approval."),
    "freeze": Subcommand("deploy.cli.freezes", "freeze", "Stop all writes to devices of a zone, or of all zones."),
    "thaw": Subcommand("deploy.cli.freezes", "thaw", "End a freeze."),
    "commands": Subcommand("deploy.cli.commands", "commands", "Print the outcome of a command by its id."),
    "events": Subcommand("deploy.cli.events", "events", "Read the log's events."),
    "history": Subcommand("deploy.cli.history", "history_command", "Print all events of a node, DPU, clique or zone."),
    "explain": Subcommand("deploy.cli.explain", "explain", "Explain why a DPU allows or denies a node."),
    "wait": Subcommand("deploy.cli.wait", "wait", "Wait until a DPU, zone, node, clique or object has a state."),
    "replay": Subcommand("deploy.cli.replay", "replay_command", "Fold the log again, up to any position or time."),
    "verify": Subcommand("deploy.cli.verify", "verify", "Fold the log again and compare replicas and devices."),
    "checkpoint": Subcommand("deploy.cli.checkpoint", "checkpoint", "Sign the content of the log, to verify it later."),
    "backup": Subcommand("deploy.cli.backup", "backup", "Copy the whole log into a folder."),
    "restore": Subcommand("deploy.cli.backup", "restore", "Create a log of a later generation from a backup."),
    "upgrade": Subcommand("deploy.cli.upgrade", "upgrade", "Upgrade fold versions, once every process has the rules."),
    "doctor": Subcommand("deploy.cli.doctor", "doctor", "Check the environment of a process, and print what to fix."),
    "certs": Subcommand("deploy.cli.certs", "certs", "Issue development certificates; show and revoke certificates."),
    "config": Subcommand("deploy.cli.config", "config", "Name planes and their certificates, and choose one."),
    "completion": Subcommand("deploy.cli.completion", "completion", "Print the completion script of a shell."),
    "status": Subcommand("deploy.cli.status", "status", "Show replicas, positions, halted partitions and holds."),
}


class LazyGroup(click.Group):
    """A group that imports a subcommand when it is called. It lists all subcommands without an import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = SUBCOMMANDS.get(cmd_name)
        if found is None:
            return None
        command: click.Command = getattr(importlib.import_module(found.module), found.attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [
            CompletionItem(name, help=command.summary)
            for name, command in SUBCOMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found or super().shell_complete(ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and args[0] not in SUBCOMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], SUBCOMMANDS, n=3)
            meant = f"did you mean {' or '.join(close)}?" if close else "`dpuplane --help` lists them all"
            raise click.UsageError(f"unknown command {quoted(args[0])}: {meant}", ctx)
        if not ctx.resilient_parsing and args[0] != "serve":  # `serve` reports unknown variables in its log
            for sentence in unknown_variables(os.environ):
                click.echo(f"Warning: {sentence}", err=True)
        return super().resolve_command(ctx, args)

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        with _ending():  # `--help` is printed here
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with _ending(ctx):
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.summary) for name, found in SUBCOMMANDS.items()])


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a write to a file that has no space left, or has reached its maximum size."""


@contextmanager
def _ending(ctx: click.Context | None = None) -> Iterator[None]:
    """Sets the exit status after an interrupt or a failed write to stdout. Click would exit with the status of a
    refusal, or with a traceback."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of stdout has closed it (`| head`)
        _print_no_more()
        sys.exit(0)
    except OSError as error:
        if error.filename is not None or error.errno not in _NO_ROOM:  # the error of another file
            raise
        _print_no_more()
        stated = ctx.meta.get(SENT_COMMAND_IDS, ()) if ctx is not None else ()
        click.echo(f"Error: stdout: cannot be written: {error.strerror}{unknown_outcome_note(stated)}", err=True)
        sys.exit(3)


def _print_no_more() -> None:
    """Prevent further writes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: dpuplane serve --data plane --simulate 10",
)
@click.version_option(package_name="dpuplane")
def cli() -> None:
    """Event-sourced control plane for fleets of DPUs.

    Exit status: 0 done, waiting or held; 1 refused, or an unknown name; 2 wrong usage; 3 unknown (the outcome of a
    command) or unreachable.
    """


def _with_streams() -> None:
    """Open /dev/null in place of a stdout or stderr that the parent process has closed (`>&-`). Writes then succeed,
    and no other file, such as a file of the log, gets the descriptor of stdout or stderr."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def main() -> None:
    """Entry point of the console script."""
    _with_streams()
    # gRPC reads this variable when it is imported. By default it prints a line for each failed handshake of any peer.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    cli(prog_name="dpuplane")
