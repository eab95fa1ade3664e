"""cli: the `gpupipe` command.

A subcommand imports what it needs when it runs, so that the command itself starts at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import gpupipe

__all__ = ["main"]

USER_ERROR, INTERRUPTED, TERMINATED = 2, 130, 143  # as in shells: 128 + SIGINT, 128 + SIGTERM
EXECUTOR_KEYS = ("dali-gpu", "dali-cpu", "numpy")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the arguments after the command's name; None means those of this process.

    Returns:
        The exit status: 0 success, 1 a failure while running, 2 wrong usage, 130 after Ctrl-C, 143 after SIGTERM.
    """
    parsed = _parser().parse_args(arguments)
    before = signal.signal(signal.SIGTERM, _terminate)  # the default action would leave the temporary folder behind
    try:
        return _demo(parsed)
    except KeyboardInterrupt:
        print("gpupipe: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `gpupipe demo | head` closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that Python's last flush succeeds
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpupipe", description="Feed image training from TFRecords.")
    parser.add_argument("--version", action="version", version=f"gpupipe {gpupipe.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="run one training chain on every executor of this machine and compare them",
        description="Run the README's training chain on every executor of this machine; print what each costs and how "
        "far their pixels are apart; save a contact sheet of augmented images.",
    )
    demo.add_argument(
        "--data",
        metavar="GLOB",
        help="TFRecord files with image/encoded (a quoted wildcard, a file or a folder), or a folder of class "
        "directories with JPEGs; default: draw photographs into a temporary folder",
    )
    demo.add_argument(
        "--out", type=Path, default=Path("contact-sheet.png"), help="contact sheet (default: %(default)s)"
    )
    demo.add_argument(
        "--images", type=int, default=400, metavar="N", help="images to use at most (default: %(default)s)"
    )
    demo.add_argument(
        "--size", type=int, default=224, metavar="PIXELS", help="side after the crop (default: %(default)s)"
    )
    demo.add_argument(
        "--executor",
        action="append",
        choices=EXECUTOR_KEYS,
        help="run this one only; repeat for several (default: all)",
    )
    return parser


def _demo(parsed: argparse.Namespace) -> int:
    from gpupipe.compare.demo import run_demo
    from gpupipe.errors import GpupipeError, PlanError

    try:
        return run_demo(parsed.data, parsed.out, parsed.images, parsed.size, parsed.executor or ())
    except (GpupipeError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        print(f"gpupipe demo: {error}", file=sys.stderr)
        return USER_ERROR if isinstance(error, PlanError) else 1


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)
