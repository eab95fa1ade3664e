"""compare: `gpupipe compare`, one chain on every executor of this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpupipe.cli.shared import add_contest, contest

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Run one chain on every executor of this machine and compare cost and pixels: CPU time, throughput and memory of each,
how far their images are apart after each op, what limits each, how many cores a GPU saves. Of data, the chain is the
README's; a dataset of your own is FILE.py:NAME. Each executor has a process of its own. The status is 1 if an
executor fails, or differs beyond the stated tolerances."""

EXAMPLES = (
    "gpupipe compare 'path/to/train-*.tfrecord'",
    "gpupipe compare path/to/class-directories --rate 2500 --html comparison.html",
    "gpupipe compare train.py:ds --rate 2500 --core-hour 0.04 --gpu-hour 2.5 --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `gpupipe compare`."""
    add_contest(parser)
    parser.add_argument(
        "--compared", type=int, default=64, metavar="N", help="images whose pixels are compared (default: %(default)s)"
    )
    parser.add_argument("--no-steps", action="store_true", help="compare delivered images only, not step by step")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots and pairs of images")


def run(parsed: argparse.Namespace) -> int:
    """Run `gpupipe compare`."""
    found = contest(parsed, compared=parsed.compared, steps=not parsed.no_steps, out=parsed.html)
    print(found.json() if parsed.json else found, flush=True)
    if parsed.html:
        found.save(parsed.html)
    if parsed.html and not parsed.json:
        print(f"\nsaved {parsed.html}")
    return 0 if found.equal else 1
