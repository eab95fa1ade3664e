"""augmenters: the contestants of `augment`: an op of gpupipe, and the same with DALI's operator or torchvision.

DALI's users draw with `fn.random.uniform` inside of the pipeline, and so does what is written by hand here. With
`fixed` both draw from an interval without length, so that their pixels can be compared.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["QUESTIONS", "SIDE", "Batches", "Pixels", "Question", "chain"]

SIDE = 224
KERNEL = 13
"""Pixels of a blur, wide enough for the largest sigma."""
Pixels = npt.NDArray[np.uint8]
Batches = Callable[[int], Pixels]
"""Takes so many batches, and gives the last of them."""


@dataclass(frozen=True, slots=True)
class Question:
    """Two ways to do the same.

    Attributes:
        ours: of an image, and whether nothing is left to chance.
        by_hand: the other contestant: of the images of each batch, threads, and whether nothing is left to chance.
        other: its name.
        goal: of the ratio of the CPU time.
        most: CPU-milliseconds that an image may cost.
        fixed: whether both can be given equal settings, and then give the same pixels.
    """

    ours: Callable[[Any, bool], Any]
    by_hand: Callable[[Pixels, int, bool], Batches]
    other: str
    goal: float
    most: float | None = None
    fixed: bool = False


def chain(question: Question, rows: Pixels, threads: int, fixed: bool = False) -> Batches:
    """The op in a chain on DALI-CPU, over the same images again and again."""
    import gpupipe as gp

    options = gp.Options(backend="dali", device="cpu", threads=threads, seed=1)
    ds = gp.Dataset.from_tensor_slices(rows).repeat()
    ds = ds.map(lambda x: question.ours(x, fixed), traced=True).batch(len(rows))
    batches = iter(ds.with_options(options))

    def take(count: int) -> Pixels:
        for _ in range(count):
            last = next(batches)
        return np.asarray(last)

    return take


def _pipeline(make: Callable[[Any, Any, Any, bool], Any]) -> Callable[[Pixels, int, bool], Batches]:
    """A contestant from what DALI's `fn` and `types` make of images."""

    def by_hand(rows: Pixels, threads: int, fixed: bool) -> Batches:
        dali, fn, types = (importlib.import_module(f"nvidia.dali{name}") for name in ("", ".fn", ".types"))
        pipe: Any = dali.Pipeline(
            batch_size=len(rows), num_threads=threads, device_id=None, prefetch_queue_depth=2, seed=1
        )
        with pipe:
            images = fn.external_source(source=lambda: rows, batch=True, layout="HWC", no_copy=True)
            pipe.set_outputs(make(fn, types, images, fixed))
        pipe.build()

        def take(count: int) -> Pixels:
            for _ in range(count):
                (last,) = pipe.run()
                batch = np.array(last.as_array())  # DALI writes into the memory of an output again
            return batch

        return take

    return by_hand


def _around(middle: float, width: float, fixed: bool) -> tuple[float, float]:
    """An interval, or one number of it."""
    return (middle + 0.7 * width, middle + 0.7 * width) if fixed else (middle - width, middle + width)


def _jittered(x: Any, fixed: bool) -> Any:
    from gpupipe import ops

    return ops.color_jitter(x, 0.4, 0.4, 0.4, 0.1)


def _twisted(fn: Any, types: Any, images: Any, fixed: bool) -> Any:
    """Colours as DALI changes them: with fewer roundings, in one order, hues and contrast by other laws."""
    factors = {name: fn.random.uniform(range=(0.6, 1.4)) for name in ("brightness", "contrast", "saturation")}
    return fn.color_twist(images, hue=fn.random.uniform(range=(-36.0, 36.0)), **factors)


def _moved(x: Any, fixed: bool) -> Any:
    from gpupipe import ops

    shift = None if fixed else (0.1, 0.1)
    degrees, scale = _around(0, 15, fixed), _around(1, 0.2, fixed)
    return ops.random_affine(x, degrees, shift, scale, interpolation="bilinear")


def _warped(fn: Any, types: Any, images: Any, fixed: bool) -> Any:
    middle = [SIDE / 2, SIDE / 2]

    def drawn(ends: tuple[float, float], **more: Any) -> Any:
        return fn.random.uniform(range=ends, **more) if ends[0] < ends[1] else types.Constant(ends[0], device="cpu")

    factor = drawn(_around(1, 0.2, fixed))
    maps = [
        fn.transforms.scale(scale=fn.stack(factor, factor), center=middle),
        fn.transforms.rotation(angle=drawn(_around(0, 15, fixed)), center=middle),
    ]
    if not fixed:
        maps.append(fn.transforms.translation(offset=drawn((-0.1 * SIDE, 0.1 * SIDE), shape=[2])))
    matrix = fn.transforms.combine(*maps)
    return fn.warp_affine(images, matrix, inverse_map=False, fill_value=0, interp_type=types.INTERP_LINEAR)


def _blurred(x: Any, fixed: bool) -> Any:
    from gpupipe import ops

    return ops.random_gaussian_blur(x, KERNEL, _around(1.05, 0.95, fixed))


def _gaussian(fn: Any, types: Any, images: Any, fixed: bool) -> Any:
    ends = _around(1.05, 0.95, fixed)
    return fn.gaussian_blur(images, sigma=ends[0] if fixed else fn.random.uniform(range=ends), window_size=KERNEL)


def _rand_augmented(x: Any, fixed: bool) -> Any:
    from gpupipe import ops

    return ops.rand_augment(x)


def _on_pillow(rows: Pixels, threads: int, fixed: bool) -> Batches:
    from PIL import Image

    transform = _torchvision().RandAugment()
    images = [Image.fromarray(row) for row in rows]

    def take(count: int) -> Pixels:
        for _ in range(count):
            batch = np.stack([np.asarray(transform(image)) for image in images])
        return batch

    return take


def _torchvision() -> Any:
    """torchvision's transforms, which need none of its compiled ops: those do not load beside another torch.

    Where `GPUPIPE_TORCHVISION` names a folder, it is found there, as in the tests.
    """
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    if "GPUPIPE_TORCHVISION" in os.environ:
        sys.path.append(os.environ["GPUPIPE_TORCHVISION"])
    _LIBRARIES.append(torch.library.Library("torchvision", "FRAGMENT"))
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            _LIBRARIES[-1].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module("torchvision.transforms")


_LIBRARIES: list[Any] = []
"""torch forgets what was defined when its library goes."""

QUESTIONS: Mapping[str, Question] = {
    "color_jitter": Question(_jittered, _pipeline(_twisted), "DALI, color_twist", 2.0),
    "affine": Question(_moved, _pipeline(_warped), "DALI, warp_affine", 1.3, fixed=True),
    "blur": Question(_blurred, _pipeline(_gaussian), "DALI, gaussian_blur", 1.3, fixed=True),
    "rand_augment": Question(_rand_augmented, _on_pillow, "torchvision on Pillow", 1.2, most=3.0),
}
"""The goals are about ratios of CPU time; of color_jitter's the work is not equal: see `_twisted`."""
