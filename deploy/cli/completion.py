"""`dpuplane completion`: shell completion of commands, options, and names of the plane."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "dpuplane"
VARIABLE = "_DPUPLANE_COMPLETE"
"""The variable that click derives from the program's name."""


@click.command(
    epilog="\b\nExamples:\n"
    "  dpuplane completion bash > ~/.local/share/bash-completion/completions/dpuplane\n"
    "  dpuplane completion zsh > ~/.zfunc/_dpuplane\n"
    "  dpuplane completion fish > ~/.config/fish/completions/dpuplane.fish"
)
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and names in a shell: bash, zsh or fish.

    Names of zones, nodes, DPUs, cliques and policies come from the plane (DPUPLANE_SERVER, or --server earlier in the
    line), with a timeout of one second. For zsh the file must be in a folder of fpath.
    """
    from deploy.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None, f"click cannot complete for {shell}"
    click.echo(kind(cli, {}, PROGRAM, VARIABLE).source())
