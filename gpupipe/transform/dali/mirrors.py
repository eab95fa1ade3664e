"""mirrors: images that are mirrored after a resize are mirrored by DALI's resize itself.

On a CPU that costs a half of what it costs `crop_mirror_normalize`, and less than a pass of its own. On a GPU
`crop_mirror_normalize` mirrors at no cost.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ...graph.op import Op
from ...graph.values import Apply, Const, Value
from ...ops._shared.crop_mirror_normalize import CropMirrorNormalize
from ...ops._shared.decode_smaller import ResizeWindow
from ...ops._shared.flip import Flip
from ...ops.resize import Resize
from ..program import Program

__all__ = ["mirrored_resizes", "without_mirror"]


def mirrored_resizes(program: Program) -> dict[Value, Value]:
    """The resizes of a program that can mirror their images, each with the parameter by which they are mirrored.

    Nothing else may use the resized image. The number of its channels is known: DALI's flips write beyond their memory
    if there are none.
    """
    users = Counter([*program.outputs, *(x for value in program.values for x in value.inputs)])
    found: dict[Value, Value] = {}
    for value in program.values:
        if isinstance(value, Apply) and _mirrors(value.op):
            image, mirror = value.x[0], value.params[-1]
            known = image.spec.shape is not None and image.spec.shape[2]
            if _resizes(image) and known and users[image] == 1 and not isinstance(mirror, Const):
                found[image] = mirror
    return found


def without_mirror(op: Op) -> Op | None:
    """An op that mirrors an image, and nothing else that takes a parameter, without that; None if nothing is left."""
    return replace(op, mirrored=False) if isinstance(op, CropMirrorNormalize) else None


def _mirrors(op: Op) -> bool:
    if isinstance(op, CropMirrorNormalize):
        return op.mirrored and op.crop is None
    return isinstance(op, Flip) and op.direction == "left_right"


def _resizes(image: Value) -> bool:
    op = image.op if isinstance(image, Apply) else None
    resize = op.resize if isinstance(op, ResizeWindow) else op
    return isinstance(resize, Resize) and resize.method == "bilinear"
