"""`millstream completion bash`: print the script for shell completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script for shell completion.

    \b
    bash:  eval "$(millstream completion bash)"       in ~/.bashrc
    zsh:   eval "$(millstream completion zsh)"        in ~/.zshrc
    fish:  millstream completion fish | source        in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root().command
    click.echo(kind(root, {}, "millstream", "_MILLSTREAM_COMPLETE").source())
