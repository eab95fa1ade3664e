"""photographs: a few hundred procedural photographs as TFRecord shards, for the demo, the tests and the benchmark.

The properties that a loader's work depends on follow a real sample of ImageNet: sizes (median 500x375, a quarter
portrait), bytes (mean about 105 KB), decoding time, and kinds of JPEG (4:4:4 and 4:2:0, some progressive, some gray).
Kind and size are functions of the photograph's number, not random, so that even a short run has all of them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.random import default_rng  # loaded here: a Ctrl-C while its C modules are being loaded gets lost

from gpupipe.comparison.scene import KINDS, photograph

from ..classes import dataclass

__all__ = ["Shot", "encode", "photograph", "take", "write_shards"]

Pixels: TypeAlias = npt.NDArray[np.uint8]

# (short side, long side) in pixels; one entry is 1 in 20 photographs. The weights keep the median at 500x375.
_SIZES: tuple[tuple[int, int], ...] = (
    *[(375, 500)] * 11,
    *[(333, 500)] * 3,
    (334, 500),
    (400, 500),
    (240, 320),
    (300, 400),
    (450, 600),
    (480, 640),
)
_QUALITIES = (88, 93, 95, 95, 96)  # with the noise of the scene: mean about 105 KB, most between 45 and 190 KB


@dataclass(frozen=True, slots=True)
class Shot:
    """The size of photograph `number`, what it shows and the kind of JPEG it becomes."""

    number: int
    height: int
    width: int
    label: int
    gray: bool
    subsampling: Literal["4:4:4", "4:2:0"]
    progressive: bool
    quality: int

    @classmethod
    def of(cls, number: int) -> Shot:
        """Return the shot of photograph `number` (0, 1, 2 ...); it depends on nothing else."""
        short, long = _SIZES[number * 7 % len(_SIZES)]  # 7 and 20 share no factor: 20 photographs have every size
        portrait = number % 9 in (2, 6)
        halved = number % 11 in (1, 4, 8)  # cameras that halve the colour planes also compress harder
        return cls(
            number=number,
            height=long if portrait else short,
            width=short if portrait else long,
            label=number % len(KINDS),
            gray=number % 41 == 5,
            subsampling="4:2:0" if halved else "4:4:4",
            progressive=number % 31 == 3,
            quality=_QUALITIES[number % len(_QUALITIES)] - (4 if halved else 0),
        )


def encode(
    pixels: Pixels,
    quality: int = 95,
    subsampling: Literal["4:4:4", "4:2:0"] = "4:4:4",
    progressive: bool = False,
) -> bytes:
    """Encode pixels as a JPEG file.

    Args:
        pixels: uint8[H,W,3]{HWC} RGB, or uint8[H,W] gray.
        quality: libjpeg's quality, 1..100.
        subsampling: resolution of the colour planes; ignored for gray.
        progressive: write the scans of a progressive file instead of one baseline scan.

    Returns:
        The file's bytes. They may differ between versions of libjpeg.
    """
    from PIL import Image

    stream = io.BytesIO()
    colour = {} if pixels.ndim == 2 else {"subsampling": subsampling}
    Image.fromarray(pixels).save(stream, "JPEG", quality=quality, progressive=progressive, **colour)
    return stream.getvalue()


def take(number: int, seed: int = 0) -> tuple[Shot, Pixels]:
    """Draw photograph `number` of the set `seed`; the result depends on nothing else.

    Returns:
        The shot, and its pixels: uint8[H,W,3]{HWC}, or uint8[H,W] for a gray one.
    """
    shot = Shot.of(number)
    pixels = photograph(default_rng((seed, number)), shot.height, shot.width, shot.label)
    if shot.gray:
        luma = pixels @ np.array((77, 150, 29), np.uint32) >> 8  # Rec. 601 in 1/256; integers, equal on every machine
        return shot, luma.astype(np.uint8)
    return shot, pixels


def write_shards(
    folder: Path,
    count: int = 400,
    shards: int = 8,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[Path]:
    """Write `count` photographs as TFRecord shards with the features of ImageNet.

    Features: ``image/encoded`` and ``image/format``, ``image/filename``, ``image/class/text`` (bytes),
    ``image/class/label``, ``image/height``, ``image/width`` (int64).

    Args:
        folder: an existing folder; shards of the same name in it are overwritten.
        count: number of photographs, >= 1.
        shards: number of files, 1..count; each holds a run of photographs, and their lengths differ by at most one.
        seed: another seed gives other photographs of the same sizes and kinds.
        progress: called with the number of photographs written so far, after each.

    Returns:
        The shards in order: ``photos-00000-of-00008.tfrecord`` and so on.

    Raises:
        ValueError: `count` or `shards` out of range.
        OSError: the folder is missing or cannot be written.
    """
    from gpupipe.extract.examples.encode import encode_example
    from gpupipe.extract.records.writer import TFRecordWriter

    if count < 1 or not 1 <= shards <= count:
        raise ValueError(f"write_shards needs count >= 1 and shards of 1..count, got count={count}, shards={shards}")
    paths = [folder / f"photos-{shard:05d}-of-{shards:05d}.tfrecord" for shard in range(shards)]
    for shard, path in enumerate(paths):
        with TFRecordWriter(str(path)) as writer:
            for number in range(shard * count // shards, (shard + 1) * count // shards):
                writer.write(encode_example(_features(number, seed)))
                if progress is not None:
                    progress(number + 1)
    return paths


def _features(number: int, seed: int) -> Mapping[str, bytes | int]:
    shot, pixels = take(number, seed)
    return {
        "image/encoded": encode(pixels, shot.quality, shot.subsampling, shot.progressive),
        "image/format": b"JPEG",
        "image/filename": b"photo-%05d.jpg" % number,
        "image/class/label": shot.label,
        "image/class/text": KINDS[shot.label][0].encode(),
        "image/height": shot.height,
        "image/width": shot.width,
    }
