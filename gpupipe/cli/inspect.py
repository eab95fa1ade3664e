"""inspect: `gpupipe inspect`, what is in TFRecord files, image files and archives of images."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpupipe.cli.verify import COMPRESSIONS
from gpupipe.errors import PlanError, shown_name
from gpupipe.extract.finder import DataFile, find
from gpupipe.extract.storage.output import check_output
from gpupipe.tools.image_files import image_files, images_text
from gpupipe.tools.inspect_records import survey_text
from gpupipe.tools.pack.find import inputs_of
from gpupipe.tools.pack.inputs import Inputs
from gpupipe.tools.survey import survey
from gpupipe.tools.text import counted
from gpupipe.tools.thumbnails import write_thumbnails

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Say what is in data files. TFRecord files, compressed or not: how many records of which size, whether their checksums
match, where they are damaged, which features they have, and the dict for parse_single_example. Images, also those in
uncompressed tar archives and Parquet files: size, subsampling, colour, orientation, and whether they can be decoded.
Every record is read once. Of more than 40 images there is a summary: kinds, sizes and folders. A folder without
TFRecord files or archives means its class folders and all images below them, or the images in it; what is left out
is said.

Exit status: 0 nothing is damaged, 1 something is, 2 wrong usage."""

EXAMPLES = (
    "gpupipe inspect train-00000-of-01024",
    "gpupipe inspect 'path/to/train-*.tfrecord' --thumbnails sheet.png",
    "gpupipe inspect photograph.jpg",
    "gpupipe inspect path/to/class-directories",
    "gpupipe inspect path/to/folder --json | jq -r .records.parse_single_example",
)

THUMBNAILS = 48
"""Images on a contact sheet, at most."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `gpupipe inspect`."""
    parser.add_argument("data", nargs="+", metavar="FILE", help="files, quoted wildcards, folders or URLs")
    parser.add_argument(
        "--sample", type=int, default=1000, metavar="N", help="records to parse at most (default: %(default)s)"
    )
    parser.add_argument(
        "--thumbnails", type=Path, metavar="PNG", help=f"write a contact sheet of up to {THUMBNAILS} images"
    )
    parser.add_argument(
        "--compression",
        choices=list(COMPRESSIONS),
        default="auto",
        help="of the TFRecord files (default: find out for each)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(parsed: argparse.Namespace) -> int:
    """Run `gpupipe inspect`."""
    if parsed.sample < 1:
        raise PlanError(f"--sample needs 1 or more, got {parsed.sample}")
    found = find(parsed.data, "inspect")
    if parsed.thumbnails is not None:
        check_output("--thumbnails", parsed.thumbnails, "PNG", found.paths)
    pairs = list(zip(found.files, found.forms, strict=True))
    records = [file for file, form in pairs if form == "TFRecord files"]
    images: list[DataFile] | Inputs = [file for file, form in pairs if form == "images"]
    if len(records) + len(images) < len(pairs):
        images = inputs_of(found, parsed.data[0], "inspect", lambda task, done, total: None)
    thumbnails = 0 if parsed.thumbnails is None else THUMBNAILS
    seen = image_files(images, keep=thumbnails)
    looked = survey(records, COMPRESSIONS[parsed.compression], parsed.sample, 4 * thumbnails) if records else None
    if parsed.json:
        out: dict[str, Any] = {
            "images": [one.json() for one in seen],
            "records": None if looked is None else looked.json(),
            "left_out": dict(found.left_out),
        }
        print(json.dumps(out, indent=2))
    else:
        texts = [images_text(seen) if seen else "", survey_text(looked) if looked else "", found.left_out_text]
        print("\n\n".join(filter(None, texts)))
    if parsed.thumbnails is not None:
        kept = [one.data for one in seen if one.data] + ([] if looked is None else looked.images)
        _sheet(parsed.thumbnails, kept, len(seen) + (0 if looked is None else looked.records))
    good = all(not one.failure for one in seen) and (looked is None or looked.whole)
    return 0 if good else 1


def _sheet(path: Path, images: Sequence[bytes], of: int) -> None:
    if not images:
        raise PlanError(f"--thumbnails needs images, and the sample has none; {str(path)!r} is not written")
    count = min(THUMBNAILS, len(images))
    good = write_thumbnails(path, [images[number * len(images) // count] for number in range(count)])
    grey = f", {count - good} of them grey: they cannot be decoded" if good < count else ""
    print(f"contact sheet of {count} of {counted(of, 'image')}{grey}: {shown_name(str(path))}", file=sys.stderr)
