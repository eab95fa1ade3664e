"""pack: `gpupipe pack`, images as shuffled TFRecord shards."""

from __future__ import annotations

import argparse
import json
import re
import sys
from fractions import Fraction

from gpupipe.errors import shown_name
from gpupipe.extract.finder import in_words
from gpupipe.progress import Progress
from gpupipe.tools.pack import Packed, pack

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Write images as shuffled TFRecord shards, with the features of TensorFlow's ImageNet scripts (image/encoded,
image/format, image/filename, image/height, image/width, image/class/label, image/class/text).

SOURCE is one of
  a folder    its directories, sorted by name, are the classes 0, 1, 2 ...; images at any depth below one belong
              to it; images in the folder itself are packed, without labels, where none lie in directories; names
              that start with a dot are left out
  tar         uncompressed; labels as in WebDataset (KEY.cls, or "label" or "cls" in KEY.json), else the directories
  Parquet     a binary column, or a struct with "bytes", as Hugging Face's image data sets have it, and a column of
              labels; needs pyarrow, and room in OUT for a copy of the images while it runs
or a folder of tar archives, a folder of Parquet files, a file, or a quoted wildcard for files of one kind, without
labels if they are images. What is left out is said.

Images are stored as they are: header and end are checked, nothing is decoded or encoded. With --resize-shorter, larger
images are decoded, shrunk with antialias, turned upright as their EXIF says, and encoded as JPEG 4:2:0; gray
images stay gray, all others become RGB. Images that are not larger stay as they are unless EXIF turns them.

With --decoded, every image is stored decoded and upright, as an uncompressed BMP of 3 bytes a pixel (1 of gray images):
no epoch decodes it again, and a crop is cut out of it. Shrink them, too, as they are ten times as large as JPEGs.
Chains with decode_jpeg or decode_image read both. Transparency is dropped; of 16 bits the upper 8 stay.
With --budget as many images are decoded as fit into so many bytes, the same part of each shard, and the others are
shrunk JPEGs; both forms of 256 images are measured first.

Equal images and options give equal shards, byte for byte, for any number of workers. After Ctrl-C, a full disk or a
crash the same command goes on: finished shards, listed in OUT/pack.jsonl, stay."""

EXAMPLES = (
    "gpupipe pack imagenet/train packed/train --shards 1024 --resize-shorter 256",
    "gpupipe pack imagenet/train prepared --shards 1024 --resize-shorter 256 --decoded",
    "gpupipe pack imagenet/train prepared --shards 1024 --resize-shorter 256 --decoded --budget 200GB",
    "gpupipe pack imagenet/val packed/val --shards 64 --name validation",
    "gpupipe pack 'webdataset/*.tar' packed --shards 128 --on-error skip --json",
    "gpupipe pack cifar.parquet packed --shards 8 --image-column img --label-column fine_label",
)

_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?) ?(?:([kmgt])(i?)b?|b)?", re.IGNORECASE)
_SHOWN = 10  # images that were left out; pack.jsonl has all of them


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `gpupipe pack`."""
    parser.add_argument("source", metavar="SOURCE", help="a folder, tar archives or Parquet files, see above")
    parser.add_argument("out", metavar="OUT", help="folder for the shards: new, empty, or of an earlier run")
    parser.add_argument("--shards", type=int, required=True, metavar="N", help="number of files")
    parser.add_argument(
        "--resize-shorter", type=int, metavar="PIXELS", help="shrink larger images to this shorter side"
    )
    parser.add_argument(
        "--quality", type=int, metavar="1..100", help="of the shrunk JPEGs (default: 90); not with --decoded alone"
    )
    parser.add_argument("--decoded", action="store_true", help="store images decoded, as BMPs: large, and fast to read")
    parser.add_argument(
        "--budget", type=_bytes, metavar="SIZE", help="that all shards may take: decode as many as fit (500MB, 1.5TB)"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides the order (default: %(default)s)")
    parser.add_argument("--name", default="train", help="NAME-00000-of-0000N.tfrecord (default: %(default)s)")
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="end at an image that cannot be decoded, or leave it out and list it (default: %(default)s)",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="threads (default: one for each CPU)")
    parser.add_argument("--image-column", metavar="NAME", help="of Parquet files (default: image, or the only one)")
    parser.add_argument(
        "--label-column", metavar="NAME", help="of Parquet files (default: label, or the only integers)"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def _bytes(text: str) -> int:
    """A number of bytes, with or without a unit: ``200GB``, ``1.5 TiB``, ``4096``."""
    if (found := _SIZE.fullmatch(text.strip())) is None:
        raise argparse.ArgumentTypeError(f"needs bytes, such as 200GB, 1.5TiB or 4096, got {text!r}")
    number, prefix, binary = found.groups()
    power = "kmgt".index(prefix.lower()) + 1 if prefix else 0
    return int(Fraction(number) * (1024 if binary else 1000) ** power)


def run(parsed: argparse.Namespace) -> int:
    """Run `gpupipe pack`."""
    try:
        with Progress() as progress:
            packed = _packed(parsed, progress)
    except KeyboardInterrupt:
        print("gpupipe pack: the same command goes on from here", file=sys.stderr)
        raise
    if parsed.budget is not None and packed.bytes > parsed.budget:
        print(f"over the budget: by {(packed.bytes - parsed.budget) / 1e6:,.1f} MB", file=sys.stderr)
    if parsed.json:
        print(json.dumps({**_summary(packed), "budget": parsed.budget}))
        return 0
    print(_sentence(packed, parsed.budget is not None))
    for one in packed.skipped[:_SHOWN]:
        print(f"left out: {one.image}: {one.reason}", file=sys.stderr)
    if len(packed.skipped) > _SHOWN:
        print(f"... and {len(packed.skipped) - _SHOWN:,} more, in {shown_name(parsed.out)}/pack.jsonl", file=sys.stderr)
    return 0


def _packed(parsed: argparse.Namespace, progress: Progress) -> Packed:
    current = ""

    def show(task: str, done: int, total: int) -> None:
        nonlocal current
        if task != current:
            progress.start(task)
            current = task
        progress.update(done, total, "images")

    return pack(
        parsed.source,
        parsed.out,
        parsed.shards,
        resize_shorter=parsed.resize_shorter,
        quality=parsed.quality,
        decoded=parsed.decoded,
        budget=parsed.budget,
        seed=parsed.seed,
        name=parsed.name,
        on_error=parsed.on_error,
        workers=parsed.workers,
        image_column=parsed.image_column,
        label_column=parsed.label_column,
        progress=show,
    )


def _summary(packed: Packed) -> dict[str, object]:
    return {
        "shards": len(packed.files),
        "records": packed.records,
        "bytes": packed.bytes,
        "decoded": packed.decoded,
        "skipped": [{"image": one.image, "reason": one.reason} for one in packed.skipped],
        "classes": packed.classes,
        "class_names": list(packed.class_names),
        "ignored": sum(packed.left_out.values()),
        "left_out": dict(packed.left_out),
        "found": packed.found,
        "files": [str(path) for path in packed.files],
    }


def _sentence(packed: Packed, some_decoded: bool) -> str:
    classes = f"of {_count(packed.classes, 'class', 'classes')}" if packed.classes else "without labels"
    shards = _count(len(packed.files), "shard", "shards")
    text = f"{_count(packed.records, 'image', 'images')} {classes} in {shards}, {packed.bytes / 1e6:,.1f} MB"
    if some_decoded:
        text += f", {packed.decoded:,} of them decoded"
    notes = (
        (packed.found, "shard was finished before", "shards were finished before"),
        (len(packed.skipped), "image was left out", "images were left out"),
    )
    said = "".join(f"; {_count(*note)}" for note in notes if note[0])
    if packed.left_out:
        said += f"; left out: {in_words(packed.left_out)}"
    return f"{text}{said}\n{packed.files[0]}{' ...' if len(packed.files) > 1 else ''}"


def _count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"
