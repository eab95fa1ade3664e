"""originals: the libraries whose ops these are named after, and photographs to compare them on."""

from __future__ import annotations

import os
import sys
import warnings
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpupipe.comparison.photographs import take
from gpupipe.graph.op import Array

__all__ = ["albumentations", "chw", "hwc", "original", "photograph", "torchvision"]


def original(name: str) -> Any:
    """A library that ops are compared with. Where it is not installed, the test is skipped (see tests/libraries.py)."""
    if find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"{name} is not installed")
    return import_module(name)


@lru_cache(1)
def torchvision() -> Any:
    """torchvision's transforms. Its compiled ops do not load beside a torch for the CPU alone: transforms need none.

    What else looks for torchvision would fail there. So it may be in a folder that nothing else is imported from.
    """
    torch = original("torch")
    if "GPUPIPE_TORCHVISION" in os.environ:
        sys.path.append(os.environ["GPUPIPE_TORCHVISION"])
    if find_spec("torchvision") is None:  # before the library is made, of which there may be one
        pytest.skip("torchvision is not installed")
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    transforms, v2 = original("torchvision.transforms"), original("torchvision.transforms.v2")
    return SimpleNamespace(v1=transforms, v2=v2, mode=transforms.InterpolationMode, library=library)


@lru_cache(1)
def albumentations() -> Any:
    """albumentations 2.0.8, the last under MIT, where it is installed, or in the folder `GPUPIPE_ALBUMENTATIONS`.

    No dependency of anything here: `.ci/run` installs it, and what it needs that others do not bring, into a folder.
    """
    if "GPUPIPE_ALBUMENTATIONS" in os.environ:
        sys.path.append(os.environ["GPUPIPE_ALBUMENTATIONS"])
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it would ask an index of packages when it is imported
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its imports warn about themselves
        return original("albumentations")


@lru_cache(32)
def photograph(number: int) -> Array:
    """Part of a drawn photograph, uint8[<= 231,<= 203,3]."""
    _, pixels = take(number)
    colours = pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)
    return np.ascontiguousarray(colours[40:271, 60:263])


def chw(image: Array) -> Any:
    """An image {HWC} as a tensor {CHW}."""
    torch = original("torch")
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


def hwc(tensor: Any) -> Array:
    """A tensor {CHW} as an image {HWC}."""
    return np.asarray(tensor.numpy().transpose(1, 2, 0))
