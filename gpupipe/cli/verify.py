"""verify: `gpupipe verify`, the bad records of TFRecord files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence

from gpupipe.cpus import cpu_count
from gpupipe.errors import PlanError
from gpupipe.extract.finder import DataFile, Found, find
from gpupipe.extract.records.compression import Compression
from gpupipe.tools.image_files import check_no_manifest, checked_json, checked_text, image_files
from gpupipe.tools.pack.find import inputs_of
from gpupipe.tools.pack.inputs import Inputs
from gpupipe.tools.verify import image_features, verify

__all__ = ["COMPRESSIONS", "DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Check every record of TFRecord files: the checksums of lengths and payloads, and with --decode the images in them,
by the rules that training follows. Uncompressed, gzip and zlib files are told apart by themselves. Of images, in files,
folders, uncompressed tar archives or Parquet files: headers and ends, and with --decode the pixels. What of a folder is
left out is said.

Exit status: 0 all records or images are good, 1 some are bad or something failed, 2 wrong usage."""

EXAMPLES = (
    "gpupipe verify 'path/to/train-*.tfrecord'",
    'gpupipe verify path/to/folder --decode --manifest bad.jsonl    # then: gp.Options(bad_records="bad.jsonl")',
    "gpupipe verify path/to/class-directories --decode",
    "gpupipe verify path/to/folder --json | jq .bad",
)

COMPRESSIONS: Mapping[str, Compression | None] = {"auto": None, "none": "", "gzip": "GZIP", "zlib": "ZLIB"}
"""What `--compression` may be, and the name of it in tf.data."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `gpupipe verify`."""
    parser.add_argument("data", nargs="+", metavar="GLOB", help="files, quoted wildcards, folders or URLs")
    parser.add_argument("--decode", action="store_true", help="also decode the image of every record")
    parser.add_argument(
        "--feature",
        action="append",
        metavar="NAME",
        help="the feature that holds the image; repeat for several (default: those with an image in the first records)",
    )
    parser.add_argument(
        "--manifest",
        metavar="FILE",
        help="write the bad records as JSON lines, for Options.bad_records; an older manifest is replaced",
    )
    parser.add_argument("--workers", type=int, default=cpu_count(), metavar="N", help="CPUs to use (default: all)")
    parser.add_argument(
        "--compression", choices=list(COMPRESSIONS), default="auto", help="of all files (default: find out for each)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(parsed: argparse.Namespace) -> int:
    """Run `gpupipe verify`."""
    if parsed.workers < 1:
        raise PlanError(f"--workers needs 1 or more, got {parsed.workers}")
    if parsed.feature and not parsed.decode:
        raise PlanError("--feature needs --decode: it names the image to decode")
    found = find(parsed.data, "verify")
    if found.only("verify", "TFRecord files", "images", "tar archives", "Parquet files") != "TFRecord files":
        return _images(parsed, found)
    files = found.files
    compression = COMPRESSIONS[parsed.compression]
    features = parsed.feature or (image_features(files, compression) if parsed.decode else [])
    report = verify(files, compression=compression, features=features, manifest=parsed.manifest, workers=parsed.workers)
    if parsed.json:
        print(json.dumps({**report.json(), "manifest": parsed.manifest, "left_out": dict(found.left_out)}, indent=2))
    else:
        print(report.text())
        if parsed.manifest and report.bad:
            print(f"they are listed in {parsed.manifest}: Options(bad_records={parsed.manifest!r}) leaves them out")
        _say_left_out(found)
    return 1 if report.bad else 0


def _images(parsed: argparse.Namespace, found: Found) -> int:
    check_no_manifest(parsed.manifest)
    form = found.forms[0]
    column, *more = parsed.feature or [None]
    if more or (column is not None and form != "Parquet files"):
        raise PlanError(f"--feature needs TFRecord files, or one column of Parquet files, got {form}")
    images: Sequence[DataFile] | Inputs = found.files
    if form != "images":
        images = inputs_of(found, parsed.data[0], "verify", lambda task, done, total: None, column)
    seen = image_files(images, decode=parsed.decode, workers=parsed.workers)
    if parsed.json:
        print(json.dumps({**checked_json(seen, parsed.decode), "left_out": dict(found.left_out)}, indent=2))
    else:
        print(checked_text(seen, parsed.decode))
        _say_left_out(found)
    return 1 if any(one.failure for one in seen) else 0


def _say_left_out(found: Found) -> None:
    if found.left_out:
        print(found.left_out_text)
