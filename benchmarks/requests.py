"""requests: what one image costs with `gpupipe.preprocessor` over the bare library calls, in CPU time.

The work is an evaluation: decode, resize the shorter side to 256, crop the centre 224, normalise, {CHW}. NumPy is
compared with simplejpeg, Pillow and NumPy, DALI with a warm pipeline of one image; all runs are in this process, in
alternating pairs, on one image after the other.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks import report
from gpupipe.comparison.photographs import encode, take
from gpupipe.comparison.ratios import Spread, pair_order, ratios
from gpupipe.ops import IMAGENET_MEAN, IMAGENET_STD

__all__ = ["GOAL", "requests"]

GOAL = 1.2
RESIZED, SIDE = 256, 224
CLOSE = 0.005
"""Mean difference of the normalised results of most photographs: a third of a level of 255."""

Request = Callable[[bytes], Any]


def requests(out: Path, *, images: int = 100, pairs: int = 9) -> Path:
    """Measure, print a table, and write the result file.

    Args:
        out: folder of the result file.
        images: photographs, one request each.
        pairs: of a preprocessor and the bare calls, for NumPy and for DALI.

    Raises:
        ValueError: two contestants give different pixels.
    """
    data = [encode(pixels, shot.quality) for shot, pixels in map(take, range(images)) if not shot.gray]
    runs: dict[str, list[float]] = {}
    summary: dict[str, Spread] = {}
    for backend, bare in (("numpy", of_libraries()), ("dali", of_dali())):
        ours = preprocessor(backend)
        # Warm, and equal work; of some sizes, DALI rounds the window to the next pixel.
        off = float(np.median([np.abs(ours(one) - bare(one)).mean() for one in data[:10]]))
        if off > CLOSE:
            raise ValueError(f"{backend}: the preprocessor and the bare calls differ by {off:.3f} in the mean")
        names = f"{backend}, preprocessor", f"{backend}, bare calls", f"{backend}, preprocessor again"
        for number in range(pairs):
            order = [(names[0], ours), (names[1], bare)]
            for name, request in [order[i] for i in pair_order(number)] + [(names[2], ours)]:
                runs.setdefault(name, []).append(cpu_ms(request, data))
        summary |= {name: Spread.of(runs[name]) for name in names[:2]}
        summary[f"{backend}, ratio"] = ratios(runs[names[0]], runs[names[1]])
        summary[f"{backend}, ratio to itself"] = ratios(runs[names[0]], runs[names[2]])
    print("CPU-ms per request of one image")
    for name, value in summary.items():
        print(f"{name:<32}{value}{f'   (goal: at most {GOAL:g})' if name.endswith('ratio') else ''}")
    document = {
        **report.header("requests", {"images": len(data), "pairs": pairs, "resized": RESIZED, "side": SIDE}),
        "goal": GOAL,
        "summary": {name: asdict(value) for name, value in summary.items()},
        "cpu_ms": runs,
    }
    return report.write(document, out)


def cpu_ms(request: Request, data: Sequence[bytes]) -> float:
    """CPU milliseconds of all threads of this process for one request, the mean over some."""
    before = process_time()
    for one in data:
        request(one)
    return (process_time() - before) / len(data) * 1e3


def preprocessor(backend: Any) -> Request:
    """The work as ops."""
    import gpupipe as gp
    from gpupipe import ops

    def evaluation(data: Any) -> Any:
        image = ops.center_crop(ops.resize_shorter(ops.decode_jpeg(data, channels=3), RESIZED), SIDE)
        return ops.transpose(ops.normalize(image, IMAGENET_MEAN, IMAGENET_STD))

    return gp.preprocessor(evaluation, gp.Options(backend=backend, device="cpu"))


def of_libraries() -> Request:
    """The work as calls of simplejpeg, Pillow and NumPy."""
    from PIL import Image
    from simplejpeg import decode_jpeg

    mean = np.array(IMAGENET_MEAN, np.float32)[:, None, None]
    scale = 1 / np.array(IMAGENET_STD, np.float32)[:, None, None]

    def request(data: bytes) -> Any:
        image = Image.fromarray(decode_jpeg(data, "RGB"))
        shorter = min(image.size)
        size = tuple(int(RESIZED * side / shorter) for side in image.size)
        small = np.asarray(image.resize((size[0], size[1]), Image.Resampling.BILINEAR))
        left, top = (round((side - SIDE) / 2) for side in size)
        out = np.empty((1, 3, SIDE, SIDE), np.float32)
        planes = small[top : top + SIDE, left : left + SIDE].transpose(2, 0, 1)
        np.subtract(planes, mean, out=out[0], dtype=np.float32)
        np.multiply(out, scale, out=out)
        return out

    return request


def of_dali() -> Request:
    """The work as a pipeline of one image and one thread."""
    dali: Any = importlib.import_module("nvidia.dali")
    fn: Any = importlib.import_module("nvidia.dali.fn")
    types: Any = importlib.import_module("nvidia.dali.types")
    pipeline: Any = dali.Pipeline(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        data = fn.external_source(name="data", dtype=types.UINT8, ndim=1, no_copy=True)
        images = fn.decoders.image(data, device="cpu", output_type=types.RGB, jpeg_fancy_upsampling=True)
        images = fn.resize(
            images, resize_shorter=RESIZED, interp_type=types.INTERP_LINEAR, antialias=True, subpixel_scale=False
        )
        images = fn.crop_mirror_normalize(
            images, crop=(SIDE, SIDE), rounding="truncate", mean=list(IMAGENET_MEAN), std=list(IMAGENET_STD),
            dtype=types.FLOAT, output_layout="CHW",
        )  # fmt: skip
        pipeline.set_outputs(images)
    pipeline.build()

    def request(data: bytes) -> Any:
        pipeline.feed_input("data", [np.frombuffer(data, np.uint8)])
        (images,) = pipeline.run()
        return np.array(images.as_array())

    return request
