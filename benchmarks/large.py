"""large: photographs of 3 megapixels, and what decoding them at a fraction of their size saves.

A drawn photograph of 768x1024 is enlarged twofold and gets noise, as cameras' photographs do; two of three have halved
colour planes. Their mean is 0.9 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from gpupipe.comparison.photographs import encode, photograph
from gpupipe.comparison.ratios import Spread, pair_order, ratios
from gpupipe.random import BatchRng

__all__ = ["DECODING_GOAL", "decoding", "draw", "encode_photograph", "write_shards"]

DECODING_GOAL = 0.72
HEIGHT, WIDTH = 1536, 2048
QUALITY, NOISE, KINDS = 90, 3.0, 4
SIZE = 224
PASSES = 9


def draw(number: int) -> bytes:
    """Draw and encode photograph `number`."""
    return encode_photograph(number, HEIGHT, WIDTH)


def encode_photograph(number: int, height: int, width: int) -> bytes:
    """Draw and encode a photograph of any size, which is drawn at half of it."""
    from PIL import Image

    rng = np.random.default_rng((3, number))
    small = Image.fromarray(photograph(rng, height // 2, width // 2, number % KINDS))
    pixels = np.asarray(small.resize((width, height), Image.Resampling.LANCZOS)).astype(np.float32)
    pixels += rng.normal(0, NOISE, pixels.shape)
    return encode(np.clip(np.rint(pixels), 0, 255).astype(np.uint8), QUALITY, "4:4:4" if number % 3 == 0 else "4:2:0")


def write_shards(folder: Path, count: int = 32, shards: int = 8, height: int = HEIGHT, width: int = WIDTH) -> list[str]:
    """Write `count` photographs as TFRecord shards, as `gpupipe.comparison.photographs` does."""
    from benchmarks.tfrecord import example, write_record

    paths = [folder / f"large-{i:05}-of-{shards:05}.tfrecord" for i in range(shards)]
    for i, path in enumerate(paths):
        with path.open("wb") as file:
            for number in range(i, count, shards):
                write_record(file, example(encode_photograph(number, height, width), number))
    return [str(path) for path in paths]


def decoding(images: Sequence[bytes]) -> dict[str, Any]:
    """Compare decoding at a fraction of the size with whole images, and the results; all by libjpeg-turbo, in pairs.

    simplejpeg decodes all but windows that are needed at their full size, where nvImageCodec is installed.

    Every image has a window as `random_resized_crop` draws it for 224x224, and is also resized as a whole.

    Returns:
        CPU-milliseconds an image, ratios, and how far resized pixels are off: mean difference of 255 and PSNR in dB.
    """
    from gpupipe.ops._shared.decode_smaller import DecodeSmaller
    from gpupipe.ops.decode_jpeg import DecodeJpeg
    from gpupipe.ops.random_resized_crop import RandomResizedCrop

    rows = len(images)
    rng = BatchRng(0, 0, np.arange(rows, dtype=np.uint64), site=0)
    start, shape, size = RandomResizedCrop(SIZE, SIZE).draw(rng, np.array([[HEIGHT, WIDTH]] * rows, np.int32))
    whole = np.zeros_like(start), np.full_like(shape, (HEIGHT, WIDTH))
    smaller, exact = DecodeSmaller(DecodeJpeg(3), True), DecodeJpeg(3)
    found: dict[str, Any] = {}
    for name, (first, extent) in {"windows": (start, shape), "whole images": whole}.items():
        calls: list[tuple[Callable[..., Any], list[Any]]] = [
            (smaller.fast, list(zip(images, first, extent, size, strict=True))),
            (exact.reference, [(one,) for one in images]),
        ]
        runs: tuple[list[float], list[float]] = [], []
        for number in range(PASSES):
            for which in pair_order(number):
                runs[which].append(_cpu_ms(*calls[which]))
        found[name] = {
            "smaller_cpu_ms": asdict(Spread.of(runs[0])),
            "exact_cpu_ms": asdict(Spread.of(runs[1])),
            "cpu_ratio": asdict(ratios(*runs)),
            **_apart(list(zip(images, first, extent, size, strict=True))),
        }
        print(
            f"decoding alone, {name}: {ratios(*runs)} of decoding exactly, mean difference "
            f"{found[name]['mean_difference']:.2f} of 255, PSNR {found[name]['psnr_db']:.1f} dB"
        )
    print(f"(goal: at most {DECODING_GOAL:g})")
    return {"goal": DECODING_GOAL, **found}


def _cpu_ms(call: Callable[..., Any], rows: Sequence[Any]) -> float:
    before = process_time()
    for row in rows:
        call(*row)
    return (process_time() - before) / len(rows) * 1e3


def _apart(rows: Sequence[Any]) -> dict[str, float]:
    """How far resized windows are from those of exactly decoded images, antialiased and not."""
    from gpupipe.ops._shared.decode_smaller import DecodeSmaller, ResizeWindow
    from gpupipe.ops.decode_jpeg import DecodeJpeg
    from gpupipe.ops.resize import Resize

    decode = DecodeJpeg(3)
    found: dict[str, float] = {}
    for antialias, suffix in ((True, ""), (False, "_without_antialias")):
        resize = Resize(antialias=antialias, keep_dtype=True)
        means, squares = [], []
        for data, start, shape, size in rows:
            image, box = DecodeSmaller(decode, True).reference(data, start, shape, size)
            (y, x), (h, w) = start.tolist(), shape.tolist()
            exact = resize.reference(decode.reference(data)[y : y + h, x : x + w], size).astype(np.float64)
            off = ResizeWindow(resize).reference(image, box, size) - exact
            means.append(np.abs(off).mean())
            squares.append((off**2).mean())
        for name, square in (("psnr_db", np.mean(squares)), ("least_psnr_db", np.max(squares))):
            found[f"{name}{suffix}"] = float(10 * np.log10(255**2 / square))
        found[f"mean_difference{suffix}"] = float(np.mean(means))
    return found
