"""demo: `gpupipe demo`, the README's chain on every executor."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpupipe.cli.shared import DATA, add_executor, add_images, add_size
from gpupipe.comparison.demo import run_demo

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Run the README's training chain on every executor of this machine; print what each costs and how far their
pixels are apart; save a contact sheet of augmented images."""

EXAMPLES = (
    "gpupipe demo",
    "gpupipe demo --data 'path/to/train-*.tfrecord' --images 1000",
    "gpupipe demo --data path/to/class-directories --executor numpy",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `gpupipe demo`."""
    parser.add_argument(
        "--data",
        metavar="GLOB",
        help=f"{DATA}; default: draw photographs into a temporary folder",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("contact-sheet.png"), help="contact sheet (default: %(default)s)"
    )
    add_images(parser)
    add_size(parser, 224, "side after the crop")
    add_executor(parser)


def run(parsed: argparse.Namespace) -> int:
    """Run `gpupipe demo`."""
    return run_demo(parsed.data, parsed.out, parsed.images, parsed.size, parsed.executor or ())
