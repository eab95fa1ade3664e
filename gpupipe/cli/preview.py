"""preview: `gpupipe preview`, a contact sheet of augmented images."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from gpupipe.cli.shared import add_data, add_size
from gpupipe.progress import Progress
from gpupipe.tools.preview import save_preview

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Save a picture of augmented images. Of data: each row is an original, with the windows of its crops marked, and
what the README's chain makes of it in the first epochs. Of a dataset of your own (FILE.py:NAME): each row is an
element's images in the first epochs."""

EXAMPLES = (
    "gpupipe preview 'path/to/train-*.tfrecord'",
    "gpupipe preview path/to/class-directories --rows 4 --draws 6 --out augmented.png",
    "gpupipe preview train.py:ds",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `gpupipe preview`."""
    add_data(parser)
    parser.add_argument("--out", type=Path, default=Path("preview.png"), help="picture (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=8, metavar="N", help="images to show (default: %(default)s)")
    parser.add_argument("--draws", type=int, default=4, metavar="N", help="epochs of each (default: %(default)s)")
    add_size(parser, 192, "side of each image")
    parser.add_argument("--json", action="store_true", help="print JSON: what the picture shows, with all windows")


def run(parsed: argparse.Namespace) -> int:
    """Run `gpupipe preview`."""
    with Progress() as progress:
        progress.start("augmenting")
        preview = save_preview(
            parsed.data, parsed.out, parsed.rows, parsed.draws, parsed.size,
            lambda done, total: progress.update(done, total, "images"),
        )  # fmt: skip
    if parsed.json:
        print(json.dumps({"out": str(parsed.out), **asdict(preview)}, indent=2))
    else:
        print(f"saved {parsed.out}: {preview.rows} rows of {preview.columns}", *preview.lines, sep="\n")
    return 0
