"""verify: `gpupipe verify`, the bad records of TFRecord files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence

from gpupipe.cpus import cpu_count
from gpupipe.errors import PlanError
from gpupipe.extract.records.compression import Compression
from gpupipe.tools.files import DataFile, find_files, kind_at
from gpupipe.tools.image_files import check_no_manifest, checked_json, checked_text, image_files
from gpupipe.tools.verify import image_features, verify

__all__ = ["COMPRESSIONS", "DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Check every record of TFRecord files: the checksums of lengths and payloads, and with --decode the images in them,
by the rules that training follows. Uncompressed, gzip and zlib files are told apart by themselves. Of image files,
alone or all in a folder and below it: headers and ends, and with --decode the pixels.

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
    files = find_files(parsed.data)
    if all(kind_at(file.path).is_image for file in files):
        return _images(parsed, files)
    compression = COMPRESSIONS[parsed.compression]
    features = parsed.feature or (image_features(files, compression) if parsed.decode else [])
    report = verify(files, compression=compression, features=features, manifest=parsed.manifest, workers=parsed.workers)
    if parsed.json:
        print(json.dumps({**report.json(), "manifest": parsed.manifest}, indent=2))
    else:
        print(report.text())
        if parsed.manifest and report.bad:
            print(f"they are listed in {parsed.manifest}: Options(bad_records={parsed.manifest!r}) leaves them out")
    return 1 if report.bad else 0


def _images(parsed: argparse.Namespace, files: Sequence[DataFile]) -> int:
    check_no_manifest(parsed.manifest)
    if parsed.feature:
        raise PlanError("--feature needs TFRecord files, got image files")
    seen = image_files(files, decode=parsed.decode, workers=parsed.workers)
    if parsed.json:
        print(json.dumps(checked_json(seen, parsed.decode), indent=2))
    else:
        print(checked_text(seen, parsed.decode))
    return 1 if any(one.failure for one in seen) else 0
