"""index: `gpupipe index`, where every record of TFRecord files starts, in one manifest."""

from __future__ import annotations

import argparse
import json
import os

from gpupipe.cpus import cpu_count
from gpupipe.errors import PlanError, shown_name
from gpupipe.extract.finder import find
from gpupipe.extract.records.manifest import folder_of
from gpupipe.extract.records.manifest_writer import absolute, default_place, write_manifest
from gpupipe.extract.storage.glob import is_url
from gpupipe.extract.storage.output import check_output
from gpupipe.progress import Progress
from gpupipe.urls import without_secrets

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Write the manifest of TFRecord files: their names, sizes, versions and numbers of records, and where each record starts.
With it a chain has len(ds), ds[i] and shuffle(gp.ALL) over URLs, and a process starts without asking for any of the
files:

  ds = gp.TFRecordDataset.from_manifest("s3://bucket/train/files.gpindex")

The headers of all files are walked once; of local files nothing else is read, of files on a server most of their
bytes. Names are relative to the folder of the manifest, or the one that has all files. Files that change later are
errors: write new files beside the old ones, or run this again."""

EXAMPLES = (
    "gpupipe index 's3://bucket/train/*.tfrecord'                  # writes s3://bucket/train/files.gpindex",
    "gpupipe index 'https://host/train/*.tfrecord' --out train.gpindex",
    "gpupipe index path/to/folder --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `gpupipe index`."""
    parser.add_argument("data", nargs="+", metavar="GLOB", help="files, quoted wildcards, folders or URLs")
    parser.add_argument(
        "--out", metavar="FILE", help="path or URL of the manifest (default: files.gpindex in the folder of the files)"
    )
    parser.add_argument("--workers", type=int, default=cpu_count(), metavar="N", help="CPUs to use (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(parsed: argparse.Namespace) -> int:
    """Run `gpupipe index`."""
    if parsed.workers < 1:
        raise PlanError(f"--workers needs 1 or more, got {parsed.workers}")
    found = find(parsed.data, "index")
    found.only("index", "TFRecord files")
    paths = found.paths
    out = default_place(paths) if parsed.out is None else parsed.out
    if not is_url(out):
        check_output("--out", os.path.expanduser(out), "manifest of files", paths)
        out = absolute([os.path.expanduser(out)])[0]
    progress = Progress()
    progress.start("indexing")
    listed = write_manifest(paths, out, parsed.workers, lambda done: progress.update(done, len(paths), "files"))
    progress.finish()
    elsewhere = {} if listed.folder == folder_of(out) else {"folder": listed.folder}
    if parsed.json:
        shown = {"manifest": without_secrets(out), **listed._asdict(), "folder": without_secrets(listed.folder)}
        print(json.dumps(shown, indent=2))
        return 0
    damaged = f", {listed.damaged:,} of them damaged" if listed.damaged else ""
    print(f"{listed.files:,} files, {listed.records:,} records{damaged}: written to {shown_name(out)}")
    more = "".join(f", {name}={without_secrets(value)!r}" for name, value in elsewhere.items())
    print(f"read it with gp.TFRecordDataset.from_manifest({without_secrets(out)!r}{more})")
    return 0
