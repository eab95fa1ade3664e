"""bench: `gpupipe bench`, the speed of this machine's executors on the user's data."""

from __future__ import annotations

import argparse

from gpupipe.cli.shared import add_contest, contest
from gpupipe.comparison.terminal import speed_of

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Measure what one chain costs on every executor of this machine: CPU time, throughput, time to the first batch, memory,
use of the GPU, what limits each. Of data, the chain is the README's; a dataset of your own is FILE.py:NAME. The first
images must be the same on all executors; `gpupipe compare` says where they differ. The status is 1 if they are not."""

EXAMPLES = (
    "gpupipe bench 'path/to/train-*.tfrecord'",
    "gpupipe bench train.py:ds --images 4000 --rate 2500 --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `gpupipe bench`."""
    add_contest(parser)


def run(parsed: argparse.Namespace) -> int:
    """Run `gpupipe bench`."""
    found = contest(parsed, steps=False)
    print(found.json() if parsed.json else speed_of(found))
    return 0 if found.equal else 1
