"""completion: `gpupipe completion`, a script that completes the command in a shell."""

from __future__ import annotations

import argparse

from gpupipe.tools.completion import SHELLS, completion

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Print a script that completes subcommands, options and file names in a shell. To install it, run one of the
examples; shells that start after that complete `gpupipe`."""

EXAMPLES = (
    "mkdir -p ~/.local/share/bash-completion/completions && "
    "gpupipe completion bash > ~/.local/share/bash-completion/completions/gpupipe",
    "gpupipe completion bash >> ~/.bashrc          # without the package bash-completion",
    "gpupipe completion zsh > ~/.gpupipe.zsh && echo 'source ~/.gpupipe.zsh' >> ~/.zshrc   # after compinit",
    "gpupipe completion fish > ~/.config/fish/completions/gpupipe.fish",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `gpupipe completion`."""
    parser.add_argument("shell", choices=sorted(SHELLS), help="bash 4 or later, zsh or fish")


def run(parsed: argparse.Namespace) -> int:
    """Run `gpupipe completion`."""
    from gpupipe.cli import parser

    print(completion(parsed.shell, parser()))
    return 0
