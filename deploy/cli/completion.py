"""`dpuplane completion`: what a shell needs to complete commands, options, and the names that the plane knows."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "dpuplane"
VARIABLE = "_DPUPLANE_COMPLETE"
"""As click derives it from the program's name."""


@click.command(
    epilog="\b\nExamples:\n"
    "  dpuplane completion bash > ~/.local/share/bash-completion/completions/dpuplane\n"
    "  dpuplane completion zsh > ~/.zfunc/_dpuplane\n"
    "  dpuplane completion fish > ~/.config/fish/completions/dpuplane.fish"
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion of commands, options and names for a shell.

    Names of zones, nodes, DPUs, cliques and policies are asked of the plane (DPUPLANE_SERVER, or --server earlier in
    the line), which is waited for a second at most. For zsh the file must be in a folder of fpath.
    """
    from deploy.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None, f"click cannot complete for {shell}"
    click.echo(kind(cli, {}, PROGRAM, VARIABLE).source())
