"""torchvision_boxes: transforms of torchvision for images with boxes, as steps of a recipe.

torchvision clamps boxes after each crop, pad and warp, and keeps those of which nothing is left, until
`SanitizeBoundingBoxes` drops them. Ops clip where a step says so, and drop in the same step: the boxes are the same
once they are sanitized.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpupipe.ops._shared.recipe import Recipe, refuse
from gpupipe.ops._shared.torchvision_resizing import WHO
from gpupipe.ops.clip_boxes import clip_boxes, clipped
from gpupipe.ops.random_iou_crop import random_iou_crop

__all__ = ["check_boxes", "clamp", "iou_crop", "sanitize"]

MAKES_BAD = ("RandomIoUCrop", "ClampBoundingBoxes")
CLAMPS = (
    "CenterCrop", "ElasticTransform", "Pad", "RandomAffine", "RandomCrop", "RandomPerspective", "RandomResizedCrop",
    "RandomRotation",
)  # fmt: skip
CHOICES = ("RandomApply", "RandomChoice", "RandomOrder")


def check_boxes(transforms: Sequence[Any]) -> set[int]:
    """After which transforms of a row boxes are clipped, so that they are torchvision's at the end.

    Raises:
        PlanError: they would not be: what makes bad boxes is not followed by `SanitizeBoundingBoxes`.
    """
    names = [type(one).__name__ for one in transforms]
    last = max((at for at, name in enumerate(names) if name == "SanitizeBoundingBoxes"), default=-1)
    if not {"SanitizeBoundingBoxes", *MAKES_BAD} & set(names):
        return set()
    for at, name in enumerate(names):
        if at > last and (name in MAKES_BAD or (last >= 0 and name in CLAMPS)):
            refuse(WHO, f"{name} without SanitizeBoundingBoxes after it", "put SanitizeBoundingBoxes at the end")
        if name in CHOICES and {type(one).__name__ for one in transforms[at].transforms} & {*CLAMPS, *MAKES_BAD}:
            refuse(WHO, f"{name} of what clamps boxes", "give what it holds a probability of its own")
    return {at for at, name in enumerate(names) if name in CLAMPS}


def iou_crop(recipe: Recipe, transform: Any) -> None:
    recipe.takes = "sample"
    names = ("min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio", "trials")
    settings = {name: getattr(transform, name) for name in names}
    recipe.add(random_iou_crop, **settings, sampler_options=tuple(transform.options))


def clamp(recipe: Recipe, transform: Any = None) -> None:
    recipe.takes = "sample"
    if transform is None or transform.clamping_mode is not None:
        recipe.add(clip_boxes)


def sanitize(recipe: Recipe, transform: Any) -> None:
    if transform.labels_getter is None:
        refuse(WHO, "SanitizeBoundingBoxes(labels_getter=None)", "leave it out: labels of a Sample go with their boxes")
    recipe.takes = "sample"
    recipe.add(sanitize_boxes, min_size=float(transform.min_size), min_area=float(transform.min_area))


def sanitize_boxes(sample: Any, min_size: float, min_area: float) -> Any:
    """Drop boxes that are small or reach outside of the image, with their labels."""
    return clipped("sanitize_boxes", sample, min_size=min_size, min_area=min_area, whole=True)
