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

from deploy.cli.shared.errors import SENT_COMMAND_IDS, unknown_outcome_note
from deploy.settings.environment import unknown_variables
from projections.field_checks import quoted


class Subcommand(NamedTuple):
    """The module of a subcommand, below this package, and its line in the list of commands."""

    module: str
    attribute: str
    summary: str


SUBCOMMANDS = {
    "demo": Subcommand("processes.demo", "demo", "Run the whole plane in one process, and let a fleet join it."),
    "serve": Subcommand("processes.serve", "serve", "Run a process of the plane."),
    "simulator": Subcommand("processes.simulator", "simulator", "Run simulated DPUs against relays."),
    "agent": Subcommand("processes.agent", "agent", "Run the agent of one DPU against relays."),
    "host-agent": Subcommand("processes.host_agent", "host_agent", "Run the agent of a host: its DPUs, its reboots."),
    "clique-agent": Subcommand("processes.clique_agent", "clique_agent", "Run a clique's daemon on its index."),
    "kafka": Subcommand("processes.kafka", "kafka", "Run local Kafka brokers with the recommended settings."),
    "topics": Subcommand("operations.topics", "topics", "Print the permissions that each role needs in Kafka."),
    "import": Subcommand("fleet.inventory", "import_file", "Join the nodes of an inventory file."),
    "nodes": Subcommand("fleet.nodes", "nodes", "List, show, join and remove nodes."),
    "zones": Subcommand("fleet.zones", "zones", "List, show, label and limit zones."),
    "rules": Subcommand("fleet.rules", "rules", "Print the rule table of a zone."),
    "cliques": Subcommand("fleet.cliques", "cliques", "Claim and release clique indices; print index tables."),
    "apply": Subcommand("resources.apply", "apply", "Create or change the objects of manifests."),
    "diff": Subcommand("resources.apply", "diff", "Show what apply would change."),
    "get": Subcommand("resources.get", "get", "List objects of a kind, or print some of them."),
    "describe": Subcommand("resources.get", "describe", "Show objects in detail."),
    "delete": Subcommand("resources.delete", "delete", "Delete objects by name, or those of manifests."),
    "annotate": Subcommand("resources.annotate", "annotate", "Set and remove annotations of an object."),
    "rollout": Subcommand("changes.rollout", "rollout", "Watch, pause, resume and undo rollouts of DPUSets."),
    "dpus": Subcommand("fleet.dpus", "dpus", "Register DPUs and drive their lifecycle."),
    "networks": Subcommand("changes.networks", "networks", "Watch, pause, resume and undo staged changes of networks."),
    "policies": Subcommand("changes.policies", "policies", "List, apply and delete rule policies."),
    "holds": Subcommand("changes.holds", "holds", "Approve or reject changes over their budget."),
    "budgets": Subcommand("changes.budgets", "budgets", "Limit the changes that need no approval."),
    "freeze": Subcommand("changes.freezes", "freeze", "Stop all writes to devices of a zone, or of all zones."),
    "thaw": Subcommand("changes.freezes", "thaw", "End a freeze."),
    "commands": Subcommand("changes.commands", "commands", "Print the outcome of a command by its id."),
    "events": Subcommand("operations.events", "events", "Read the log's events."),
    "history": Subcommand("operations.history", "history_command", "Print all events of a node, DPU, clique or zone."),
    "explain": Subcommand("fleet.explain", "explain", "Explain why a DPU allows or denies a node."),
    "wait": Subcommand("fleet.wait", "wait", "Wait until a DPU, zone, node, clique or object has a state."),
    "replay": Subcommand("operations.replay", "replay_command", "Fold the log again, up to any position or time."),
    "verify": Subcommand("operations.verify", "verify", "Fold the log again and compare replicas and devices."),
    "checkpoint": Subcommand("operations.checkpoint", "checkpoint", "Sign the content of the log, to verify it later."),
    "backup": Subcommand("operations.backup", "backup", "Copy the whole log into a folder."),
    "restore": Subcommand("operations.backup", "restore", "Create a log of a later generation from a backup."),
    "upgrade": Subcommand("operations.upgrade", "upgrade", "Upgrade fold versions, once every process has the rules."),
    "doctor": Subcommand("operations.doctor", "doctor", "Check the environment of a process, and print what to fix."),
    "certs": Subcommand("operations.certs", "certs", "Issue development certificates; show and revoke certificates."),
    "config": Subcommand("config", "config", "Name planes and their certificates, and choose one."),
    "completion": Subcommand("completion", "completion", "Print the completion script of a shell."),
    "status": Subcommand("operations.status", "status", "Show replicas, positions, halted partitions and holds."),
}


class LazyGroup(click.Group):
    """A group that imports a subcommand when it is called. It lists all subcommands without an import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = SUBCOMMANDS.get(cmd_name)
        if found is None:
            return None
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{found.module}"), found.attribute)
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
