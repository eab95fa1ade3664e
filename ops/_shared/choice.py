"""choice: the base of ops that choose one of several results for each image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Literal

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Op
from gpupipe.graph.symbols import apply, apply_together
from gpupipe.ops._shared.operands import spec_of_operand
from gpupipe.ops.sample import Sample
from gpupipe.spec import TensorSpec, flatten, same_dtype

__all__ = ["Choice", "chosen", "results_of"]


@dataclass(frozen=True, slots=True)
class Choice(Op):
    """Choose one of several results for each image. Subclasses define `draw`, which gives the number of the result.

    Inputs are the images of the first result, then those of the second, and so on. Every result is computed for every
    image: DALI's graph has no branches for single images, and an image that is not chosen is dropped.

    Attributes:
        options: number of results.
        images: number of images in each.
        layouts: of the images.

    Shapes: ``T[...], ... -> T[...]``, for each of the images.
    """

    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("chosen",)

    options: int = field(default=2, kw_only=True)
    images: int = field(default=1, kw_only=True)
    layouts: tuple[str, ...] = field(default=("HWC",), kw_only=True, repr=False)

    def infer(self, *xs: TensorSpec) -> TensorSpec | tuple[TensorSpec, ...]:
        made = []
        for number, layout in enumerate(self.layouts):
            specs = [_image(self.name, x, layout) for x in xs[number :: self.images]]
            other = next((spec for spec in specs if spec != specs[0]), None)
            if other is not None:
                raise SpecError(
                    f"{self.name} needs results of one type, as a batch does, got {specs[0]} and {other}; "
                    f"bring them to one size and dtype with ops.resize, a crop or ops.cast"
                )
            made.append(specs[0])
        return made[0] if len(made) == 1 else tuple(made)

    def reference(self, *args: Any) -> Any:
        xs, chosen = args[:-1], int(args[-1])
        taken = xs[chosen * self.images : (chosen + 1) * self.images]
        return taken[0] if len(taken) == 1 else tuple(taken)

    def dali(self, d: Any, *args: Any) -> Any:
        xs, chosen = args[:-1], args[-1]
        made = []
        for number, layout in enumerate(self.layouts):
            every = d.fn.stack(*xs[number :: self.images], axis=0)
            made.append(d.fn.reshape(every[chosen], layout=layout))
        return made[0] if len(made) == 1 else tuple(made)

    def size(self, hw: Array, *params: Array) -> Array:
        return hw  # the sizes of all results are compared before anything is drawn


def _image(who: str, x: TensorSpec, layout: str) -> TensorSpec:
    if x.dtype is bytes or x.rank != (len(layout) or 2):
        raise SpecError(f"{who} needs images, got {x}")
    return replace(x, layout=layout) if x.layout is None and layout else x


@dataclass(frozen=True, slots=True)
class Chosen(Op):
    """What belongs to the result that another op chose, on the host: boxes, labels, keypoints.

    Attributes:
        op: the other op.

    Shapes: ``T[...], ... -> T[...]``, with the parameter of the other op.
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"
    parameters: ClassVar[tuple[str, ...]] = ("chosen",)

    op: Choice

    @property
    def stage(self) -> str:
        return self.op.name

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        made = xs[0]
        for x in xs[1:]:
            if not same_dtype(x.dtype, made.dtype) or x.rank != made.rank:
                raise SpecError(f"{self.stage} needs boxes, labels and keypoints of one type, got {made} and {x}")
            made = made.relax(x)
        return made

    def reference(self, *args: Any) -> Any:
        *xs, chosen = args
        return xs[int(chosen)]


def chosen(
    who: str,
    make: Callable[[int, tuple[str, ...]], Choice],
    results: Sequence[tuple[Any, ...]],
    seed: int | None = None,
) -> Any:
    """One of several results, images or one Sample each.

    Args:
        who: the op, for messages.
        make: the op for a number of images in each result, and their layouts.
        results: as `results_of` gives them.
        seed: as in `apply`.

    Raises:
        PlanTypeError: they are Samples with and without boxes, or the like.
    """
    first = results[0][0]
    if not isinstance(first, Sample):
        op = make(len(results[-1]), layouts_of(results[-1]))
        return apply(op, *(x for made in results for x in made), seed=seed)
    samples = [made[0] for made in results]
    structures = [flatten(sample)[1] for sample in samples]
    if any(structure != structures[0] for structure in structures):
        raise PlanTypeError(
            f"{who} needs Samples with the same parts, got {structures[0]} and "
            f"{next(other for other in structures if other != structures[0])}"
        )
    parts = [flatten((sample.boxes, sample.labels, sample.keypoints))[0] for sample in samples]
    images = [x for sample in samples for x in sample.images]
    count = len(first.images)
    op = make(count, layouts_of(first.images))
    uses: list[Any] = [(Chosen, column) for column in zip(*parts, strict=True)]
    made = apply_together(op, images, uses, seed=seed)
    boxes, labels, keypoints = flatten((first.boxes, first.labels, first.keypoints))[1].unflatten(made[count:])
    return replace(first.with_images(tuple(made[:count])), boxes=boxes, labels=labels, keypoints=keypoints)


def layouts_of(images: Sequence[Any]) -> tuple[str, ...]:
    """The layouts of images, and of the frames of clips; an array of rank 3 is {HWC}, "" is for two dimensions."""
    specs = map(spec_of_operand, images)
    return tuple((spec.layout or ("" if spec.rank == 2 else "HWC"))[-3:] for spec in specs)


def results_of(who: str, function: Any, image: Any) -> tuple[Any, ...]:
    """What a function, or a list of them one after the other, makes of an image, a tuple of images or a Sample.

    Raises:
        PlanTypeError: it is not a function, or gives something else than as many images.
    """
    steps: Sequence[Callable[[Any], Any]] = function if isinstance(function, (list, tuple)) else (function,)
    made = image
    for step in steps:
        if not callable(step):
            raise PlanTypeError(f"{who} needs functions of an image, got {type(step).__name__}")
        made = step(made)
    if isinstance(image, Sample) is not isinstance(made, Sample):
        raise PlanTypeError(f"{who} needs functions that return what they are given, got {_named(made)}")
    results = tuple(made) if isinstance(made, (list, tuple)) else (made,)
    if made is None or (isinstance(image, tuple) and len(results) != len(image)):
        raise PlanTypeError(f"{who} needs functions that return what they are given, got {_named(made)}")
    return results


def _named(made: Any) -> str:
    return (
        "None" if made is None else f"{len(made)} results" if isinstance(made, (list, tuple)) else type(made).__name__
    )
