"""helpers: what the notebooks share: data, the executors of this machine, pictures, and what a pass costs."""

from __future__ import annotations

import glob
import hashlib
import importlib
import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

import gpupipe as gp
from gpupipe.comparison.contestants import EXECUTORS
from gpupipe.comparison.elements import elements_of, encoded
from gpupipe.comparison.photographs import write_shards
from gpupipe.comparison.source import Source, find_source

__all__ = ["Cost", "cost", "executors", "gallery", "optional", "photographs"]

DATA = Path("data")
"""Beside the notebooks, where a kernel starts; git ignores it."""

GAP, LINE = 6, 16
"""Pixels between the images of a gallery, and of a title."""


def photographs(count: int = 240, shards: int = 8) -> str:
    """Write `count` photographs as TFRecord files, once, and return their pattern.

    gpupipe draws them. The environment variable DATA names yours instead, as `gpupipe demo --data` does: TFRecord
    files, images, tar archives or Parquet files (a name, a wildcard, a folder). `count` of them are copied, in turn
    from up to 64 files at a time, and fewer are repeated, so that there are always `count`; yours are never written to.

    Features: ``image/encoded`` (bytes, JPEG) and ``image/class/label`` (int64), among others.
    """
    data = os.environ.get("DATA", "")
    if not data:
        folder = _once(f"drawn-{count}-in-{shards}", lambda new: write_shards(new, count, shards))
        print(f"{count} photographs drawn by gpupipe, in {shards} TFRecord files")
    else:
        source = find_source(data, count)
        folder = _once(f"yours-{_digest(data, source, count, shards)}", lambda new: _copy(source, new, count, shards))
        print(f"{count} photographs of DATA, copied (repeated where DATA has fewer)")
    return f"{folder}/photos-*.tfrecord"


def _once(name: str, write: Callable[[Path], Any]) -> Path:
    """A folder with what `write` puts there; several notebooks may ask at a time."""
    folder = DATA / name
    if not folder.is_dir():
        DATA.mkdir(exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=DATA))
        try:
            write(new)
            new.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another notebook was faster
                raise
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return folder


def _digest(data: str, source: Source, count: int, shards: int) -> str:
    known = [(name, os.stat(name).st_mtime_ns, os.stat(name).st_size) for name in source.paths]
    return hashlib.sha256(repr((data, count, shards, known)).encode()).hexdigest()[:12]


def _copy(source: Source, folder: Path, count: int, shards: int) -> None:
    """Write the first records of each file, or the images of other files, as shards."""
    if source.form == "TFRecord files":
        files = gp.Dataset.list_files(list(map(glob.escape, source.paths)), shuffle=False)
        records: Any = files.interleave(gp.TFRecordDataset, cycle_length=64).take(count)
        records = [bytes(record) for record in records.with_options(gp.Options(on_error="skip"))]
    else:
        pairs = elements_of(source, count).map(encoded(source, lambda image: (image,)))
        records = [
            gp.io.encode_example({"image/encoded": [bytes(image)], "image/class/label": [int(label)]})
            for image, label in pairs.with_options(gp.Options(on_error="skip"))
        ]
    if not records:
        raise gp.PlanError(f"DATA needs records without damage, got none in {source.name!r}")
    records = list(islice(cycle(records), count))
    for shard in range(shards):
        with gp.io.TFRecordWriter(str(folder / f"photos-{shard:05d}-of-{shards:05d}.tfrecord")) as writer:
            for record in records[shard::shards]:
                writer.write(record)


def executors() -> dict[str, gp.Options]:
    """The executors that this machine has, the fastest kind first, each with the options that choose it.

    Those that it does not have are printed with the reason.
    """
    found = {}
    for executor in EXECUTORS:
        if reason := executor.missing():
            print(f"left out: {executor.title} ({reason})")
        else:
            found[executor.title] = gp.Options(device=executor.device, backend=executor.backend)
    return found


def optional(name: str) -> Any:
    """The module `name`; None, and a line that says how to install it, where it is missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:  # it is installed, and something in it is broken
            raise
        print(f"left out: {name} is not installed; install it with: pip install {name}")
        return None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a pass cost.

    Attributes:
        images: delivered.
        cpu: CPU seconds of this process, its threads and its child processes.
        seconds: by the wall clock.
    """

    images: int
    cpu: float
    seconds: float

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds for an image."""
        return self.cpu / self.images * 1e3

    @property
    def rate(self) -> float:
        """Images per second."""
        return self.images / self.seconds

    def __str__(self) -> str:
        return f"{self.cpu_ms:6.2f} CPU-ms an image, {self.rate:6.0f} images/s"


def cost(loop: Callable[[], int]) -> Cost:
    """Run `loop`, which returns how many images it took, and measure it."""
    started, used = time.perf_counter(), _cpu_seconds()
    images = loop()
    return Cost(images, _cpu_seconds() - used, time.perf_counter() - started)


def _cpu_seconds() -> float:
    """CPU time of this process and of its children, those that have ended included."""
    import psutil

    ended, alive = os.times(), 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:  # it has just ended
            continue
        alive += times.user + times.system
    return time.process_time() + ended.children_user + ended.children_system + alive


def gallery(images: Sequence[Any], titles: Sequence[str] = (), columns: int = 6, side: int = 88) -> Any:
    """Show images of 0..255 in rows, as one JPEG: each is fitted into a square of `side` pixels, its title above it.

    Shapes: each ``uint8[H,W,3]{HWC}``, or float32, which is rounded and clipped.
    """
    from IPython.display import Image as Shown
    from PIL import Image, ImageDraw, ImageFont

    pictures = [Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8)) for pixels in images]
    for picture in pictures:
        picture.thumbnail((side, side))
    rows = [pictures[first : first + columns] for first in range(0, len(pictures), columns)]
    heights = [GAP + (LINE if titles else 0) + max(picture.height for picture in row) for row in rows]
    sheet = Image.new("RGB", (len(rows[0]) * (side + GAP) - GAP, sum(heights)), "white")
    font, texts, top = ImageFont.load_default(11), iter(titles), 0
    for row, height in zip(rows, heights, strict=True):
        for column, picture in enumerate(row):
            sheet.paste(picture, (column * (side + GAP), top + (LINE if titles else 0)))
            ImageDraw.Draw(sheet).text((column * (side + GAP), top), next(texts, ""), "black", font)
        top += height
    stream = io.BytesIO()
    sheet.save(stream, "JPEG", quality=50, optimize=True, progressive=True)
    return Shown(data=stream.getvalue(), format="jpeg")
