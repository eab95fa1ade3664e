"""contest_arguments: the arguments that `gpupipe compare` and `gpupipe bench` share."""

from __future__ import annotations

import argparse

from gpupipe.comparison.contestants import EXECUTORS

__all__ = ["add_contest_arguments", "prices_of"]


def add_contest_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument(
        "data",
        metavar="DATA|FILE.py:NAME",
        help="TFRecord files with image/encoded (a quoted wildcard, a file or a folder), a folder of JPEGs or of class "
        "directories with JPEGs; or a dataset, or a function that returns one without arguments",
    )
    parser.add_argument(
        "--images", type=int, default=400, metavar="N", help="images of a pass at most (default: %(default)s)"
    )
    parser.add_argument(
        "--size", type=int, default=224, metavar="PIXELS", help="of DATA: side after the crop (default: %(default)s)"
    )
    parser.add_argument(
        "--executor",
        action="append",
        choices=[executor.key for executor in EXECUTORS],
        help="measure this one only; repeat for several (default: all)",
    )
    parser.add_argument(
        "--rate", type=float, metavar="R", help="images/s of your training: measure what share of its time it waits"
    )
    parser.add_argument("--core-hour", type=float, metavar="PRICE", help="what a CPU core costs you for an hour")
    parser.add_argument("--gpu-hour", type=float, metavar="PRICE", help="what a GPU costs you, in the same currency")
    parser.add_argument(
        "--json", action="store_true", help="print JSON: all figures, how each was measured, the verdict"
    )


def prices_of(parsed: argparse.Namespace) -> dict[str, float]:
    """The prices that were given."""
    given = {"core_hour": parsed.core_hour, "gpu_hour": parsed.gpu_hour}
    return {name: price for name, price in given.items() if price is not None}
