"""shared: arguments that several commands have."""

from __future__ import annotations

import argparse
from typing import Any

from gpupipe.comparison.comparison import Comparison
from gpupipe.comparison.contestants import EXECUTORS
from gpupipe.tools.contest_of import contest_of

__all__ = ["DATA", "add_contest", "add_data", "add_executor", "add_images", "add_size", "contest"]

DATA = (
    "images, alone, in a folder or in class directories; TFRecord files with image/encoded; tar archives of samples; "
    "Parquet files with a column of images (a file, a folder or a quoted wildcard)"
)
"""What commands that run the README's chain take, for their help."""


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add what is looked at: data or a dataset."""
    parser.add_argument(
        "data",
        metavar="DATA|FILE.py:NAME",
        help=f"{DATA}; or a dataset, or a function that returns one without arguments",
    )


def add_images(parser: argparse.ArgumentParser) -> None:
    """Add --images."""
    parser.add_argument(
        "--images", type=int, default=400, metavar="N", help="images of a pass at most (default: %(default)s)"
    )


def add_size(parser: argparse.ArgumentParser, size: int, of: str) -> None:
    """Add --size."""
    parser.add_argument("--size", type=int, default=size, metavar="PIXELS", help=f"{of} (default: %(default)s)")


def add_executor(parser: argparse.ArgumentParser) -> None:
    """Add --executor."""
    parser.add_argument(
        "--executor",
        action="append",
        choices=[executor.key for executor in EXECUTORS],
        help="run this one only; repeat for several (default: all)",
    )


def add_contest(parser: argparse.ArgumentParser) -> None:
    """Add what `contest` takes."""
    add_data(parser)
    add_images(parser)
    add_size(parser, 224, "of DATA: side after the crop")
    add_executor(parser)
    parser.add_argument(
        "--rate", type=float, metavar="R", help="images/s of your training: measure what share of its time it waits"
    )
    parser.add_argument("--core-hour", type=float, metavar="PRICE", help="what a CPU core costs you for an hour")
    parser.add_argument("--gpu-hour", type=float, metavar="PRICE", help="what a GPU costs you, in the same currency")
    parser.add_argument(
        "--json", action="store_true", help="print JSON: all figures, how each was measured, the verdict"
    )


def contest(parsed: argparse.Namespace, **more: Any) -> Comparison:
    """Compare the executors that were asked for; `more` as `contest_of` takes it."""
    prices = {"core_hour": parsed.core_hour, "gpu_hour": parsed.gpu_hour}
    return contest_of(
        parsed.data,
        executors=parsed.executor or (),
        images=parsed.images,
        size=parsed.size,
        rate=parsed.rate,
        prices={name: price for name, price in prices.items() if price is not None},
        **more,
    )
