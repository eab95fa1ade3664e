"""cli: the `gpupipe` command.

Each subcommand is a file of this folder, imported when it is asked for, so that the command itself starts at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from types import FrameType
from typing import NoReturn, Protocol, TextIO, cast

import gpupipe
from gpupipe.errors import GpupipeError, PlanError, Terminated, io_reason, shown_text
from gpupipe.tools.text import Shown

__all__ = ["COMMANDS", "main"]

FAILED, USER_ERROR, INTERRUPTED = 1, 2, 130  # as in shells: 128 + SIGINT

COMMANDS: Mapping[str, str] = {
    "demo": "run one training chain on every executor of this machine and compare them",
    "compare": "compare executors on your own data or chain: cost, pixels step by step, a verdict",
    "bench": "measure this machine's executors on your own data or chain: speed alone",
    "inspect": "say what is in data files: records, schema, checksums, images",
    "verify": "check every record of TFRecord files, or image files, and list the bad ones",
    "index": "write down where every record of TFRecord files starts, for data that is far away",
    "pack": "write images of a folder, tar or Parquet as shuffled TFRecord shards",
    "explain": "show how a chain of your own will run, and what in it is probably a mistake",
    "preview": "save a picture of augmented images beside their originals",
    "doctor": "check driver, libraries and limits of this machine; print what mends them",
    "completion": "print a script that completes this command in bash, zsh or fish",
}
"""Subcommand -> what it does, in the order of `gpupipe --help`. Each is the file of its name in this folder."""


class Command(Protocol):
    """What the file of a subcommand has.

    Attributes:
        DESCRIPTION: the paragraph at the head of its help.
        EXAMPLES: command lines, shown at the end of its help.
    """

    DESCRIPTION: str
    EXAMPLES: Sequence[str]

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add its arguments to its parser."""

    @staticmethod
    def run(parsed: argparse.Namespace) -> int:
        """Run it and return the exit status; results go to stdout, progress to stderr."""
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the arguments after the command's name; None means those of this process.

    Returns:
        The exit status: 0 success, 1 a failure while running, 2 wrong usage, 130 after Ctrl-C, 143 after SIGTERM, 129
        after SIGHUP.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by who started it: `gpupipe verify ... >&-`
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115 - open as long as the process is
    name = given[0] if given and given[0] in COMMANDS else ""
    before = {one: signal.signal(one, _terminate) for one in _ENDING if signal.getsignal(one) is not signal.SIG_IGN}
    try:
        top = parser((name,) if name else ())
        parsed, more = top.parse_known_args(given)
        if more and os.path.exists(more[0]):
            raise PlanError(f"several paths, {more[0]!r} is one too many; quote a pattern, or name the folder")
        if more:
            top.error(f"unrecognized arguments: {' '.join(more)}")
        with redirect_stdout(cast(TextIO, Shown(sys.stdout))):
            status = command(parsed.command).run(parsed)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        # Python ends by SIGINT, whatever is returned here, if the interrupt came within an exec() of a text, as when a
        # module with dataclasses is imported; the next exec() makes it forget that.
        exec("")
        print("gpupipe: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `gpupipe demo | head` closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that Python's last flush succeeds
        return FAILED
    except (GpupipeError, OSError) as error:
        print(shown_text(f"gpupipe {name}: {_text(error)}"), file=sys.stderr)
        return USER_ERROR if isinstance(error, PlanError) else FAILED
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def command(name: str) -> Command:
    """Import the file of a subcommand."""
    return cast("Command", importlib.import_module(f"{__name__}.{name}"))


class _Parser(argparse.ArgumentParser):
    """A parser whose messages show what was typed as all others do."""

    def error(self, message: str) -> NoReturn:
        super().error(shown_text(message))


def parser(full: Sequence[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """Make the parser.

    Args:
        full: subcommands whose arguments are added, which imports their files; the others have their help line only.
    """
    top = _Parser(
        prog="gpupipe",
        description="Feed image training: compare executors, look into data, check and convert it.",
        epilog="`gpupipe COMMAND --help` shows the options of a command, and examples.",
    )
    top.add_argument("--version", action="version", version=f"gpupipe {gpupipe.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_line in COMMANDS.items():
        if name not in full:
            commands.add_parser(name, help=help_line)
            continue
        module = command(name)
        one = commands.add_parser(
            name,
            help=help_line,
            description=module.DESCRIPTION,
            epilog="\n".join(["examples:", *(f"  {line}" for line in module.EXAMPLES)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(one)
    return top


def _text(error: Exception) -> str:
    """An error for people; one of the system without its number."""
    if not isinstance(error, OSError) or isinstance(error, GpupipeError) or error.errno is None:
        return str(error)
    return io_reason(error) if error.filename is None else f"{io_reason(error)}: {os.fsdecode(error.filename)!r}"


_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals whose default action would leave temporary folders behind; Windows has no SIGHUP, and nohup ignores it."""


def _terminate(number: int, _frame: FrameType | None) -> None:
    for one in _ENDING:
        signal.signal(one, signal.SIG_IGN)  # a second one would interrupt the tidying up
    raise Terminated(128 + number)
