"""op: the base of every operator.

One op is one frozen dataclass. Its methods, in this order, are everything that the rest of gpupipe knows about it::

    infer(*specs)            shape, dtype, layout; every SpecError is raised here, on the user's line
    size(hw, *params)        image sizes after the op, for a batch, on the host: int32[B,2] -> int32[B,2]
    draw(rng, hw)            host parameters of a batch: random numbers, crop windows, target sizes; one array[B,...]
                             for each name in `parameters`
    reference(*xs, *params)  the definition of the op, for one element, in NumPy
    fast(*xs, *params)       the same by libraries of the extra `fast`, within the tolerances of `cases`
    stacked(*xs, *params)    the same for a stack of elements of one shape, where that saves calls
    dali(d, *xs, *params)    the op as DALI nodes, with `d.fn`, `d.math`, `d.dtype`, `d.types` and `d.device` passed in
    array(xp, *xs, *params)  the op for a whole batch, with NumPy or CuPy passed in
    motion(hw, *params)      where the op moves what lies on an image: boxes and keypoints
    decompose()              the op as a sequence of simpler ops, which the optimizer can fuse
    is_identity, merge       facts for the optimizer
    cases()                  inputs and tolerances for the conformance suite

An op supports an executor if it overrides the method.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..brief import fields_in_brief
from ..classes import dataclass
from ..errors import DataError, PlanTypeError, ShapeError, SpecError
from ..random import BatchRng
from ..spec import TensorSpec

__all__ = [
    "MOST_FACTOR",
    "MOST_PIXELS",
    "Arg",
    "Case",
    "Op",
    "check_area",
    "check_flag",
    "drawn_for",
    "height_and_width",
    "unlike",
]

Array = npt.NDArray[Any]

MOST_PIXELS = 1 << 30
"""Pixels that the result of an op may have, unless its input has as many: sizes may come from data."""

MOST_FACTOR = 50
"""The largest random factor of sizes and colours: more are percent, or pixels, in its place."""


Levels = Literal["", "kept", "unit"]


@dataclass(frozen=True, slots=True)
class Arg:
    """Placeholder in a field of an op for a traced host value: number `index` of the call."""

    index: int


@dataclass(frozen=True, slots=True)
class Op:
    """One operator. Subclass it with a frozen dataclass; the fields are its static parameters.

    Class attributes:
        domain: "image" runs in the executor's graph, "host" on the host per element, "any" wherever its input is.
        rows: "each" is applied to every row of a batch on its own; "batch" needs all rows at once: `infer` still gets
            specs of one row, `draw` the size and key of the first row, `array` whole batches and one set of parameters.
        random: whether `draw` uses its generator; such a call has a site of its own.
        stateful: whether two calls with equal inputs may differ: the field `call` numbers the calls.
        decodes: whether the first input is encoded bytes, so that sizes come from its header.
        decodes_on_host: whether it decodes an image, but not in the graph.
        before_graph: whether an executor that builds a graph (DALI) computes it before that, on threads of the host,
            from values that enter the graph.
        broadcasts: whether its inputs are broadcast, so that the size of the result is the largest of theirs.
        foreign: whether its DALI form is a user's function: on a GPU, its host inputs other than images stay on the
            host, and its results are compared with the declared specs.
        frames: how DALI may compute all frames of a clip at once: "sequence" if its DALI form takes {FHWC} too,
            "planes" if the op moves pixels and treats each channel alike, "rows" if it computes each pixel on its own,
            "axes" if it only reorders the axes, by its `axes`; "" (none of these) runs on the host for clips.
        still: whether the op leaves every pixel in its place, so that boxes and masks stay as they are.
        levels: "kept" if the result has the range of values of the first input; "unit" if floats have to be 0..1, and
            stay so; "" for neither.
        parameters: names of the arrays that `draw` returns.
        drawn: the form in which users get the parameters with `return_params=True`, see `Drawn`; "" for none.
        traceable: fields that may hold a traced host value; `draw` then sees array[B] in its place.
    """

    def __init_subclass__(cls) -> None:
        if "__repr__" not in cls.__dict__:  # `dataclass` keeps an existing one
            cls.__repr__ = fields_in_brief  # type: ignore[method-assign]

    domain: ClassVar[Literal["image", "host", "any"]] = "image"
    rows: ClassVar[Literal["each", "batch"]] = "each"
    random: ClassVar[bool] = False
    decodes: ClassVar[bool] = False
    decodes_on_host: ClassVar[bool] = False
    stateful: ClassVar[bool] = False
    before_graph: ClassVar[bool] = False
    broadcasts: ClassVar[bool] = False
    foreign: ClassVar[bool] = False
    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""
    still: ClassVar[bool] = False
    levels: ClassVar[Levels] = ""
    parameters: ClassVar[tuple[str, ...]] = ()
    drawn: ClassVar[Literal["", "window", "flag", "size"]] = ""
    traceable: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self) -> str:
        """The public name: the class name in snake_case."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def stage(self) -> str:
        """The name in errors: for an op made by the optimizer, that of the op the user wrote."""
        return self.name

    @property
    def takes(self) -> str:
        """The layout of an image that does not say its own; an op that may take images {CHW} overrides it."""
        return "HWC"

    @property
    def ignores_layout(self) -> bool:
        """Whether an array {CHW} that is taken for {HWC} gives the right result; also where no input is an image."""
        return self.domain != "image" or self.decodes or self.foreign

    def infer(self, *xs: TensorSpec) -> TensorSpec | tuple[TensorSpec, ...]:
        """The spec of the result, or of each result.

        Raises:
            SpecError: the op is not defined for such inputs.
        """
        raise TypeError(f"{type(self).__name__} does not define infer")

    def size(self, hw: Array, *params: Array) -> Array:
        """Image sizes after the op, int32[B,2] (height, width)."""
        return hw

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        """One array[B, ...] for each name in `parameters`. `hw` is int32[B,2], the sizes of the (first) input."""
        return ()

    def reference(self, *args: Any) -> Any:
        """The result for one element: `reference(*inputs, *params)`."""
        raise TypeError(f"{type(self).__name__} does not define reference")

    def fast(self, *args: Any) -> Any:
        """`reference` by the libraries of the extra `fast`; they are imported inside, as they may be missing."""
        raise TypeError(f"{type(self).__name__} does not define fast")

    def stacked(self, *args: Any) -> Any:
        """The results for B elements whose inputs have one shape: `stacked(*inputs, *params)` -> array[B,...].

        Inputs are arrays[B,...] and not changed. Bit-identical to `reference` row by row.
        """
        raise TypeError(f"{type(self).__name__} does not define stacked")

    def compiled(self, line: str = "") -> Callable[..., Any]:
        """`reference`, specialised for this op; the host calls it for every element.

        Args:
            line: of the user's code, for what the op logs.
        """
        return self.reference

    def dali(self, d: Any, *args: Any) -> Any:
        """The op as DALI nodes: `dali(d, *inputs, *params)`."""
        raise TypeError(f"{type(self).__name__} does not define dali")

    def array(self, xp: Any, *args: Any) -> Any:
        """The op for a batch in NumPy or CuPy: `array(xp, *inputs, *params)`.

        Returns new arrays and does not change its inputs; parameters are NumPy arrays and numbers.
        """
        raise TypeError(f"{type(self).__name__} does not define array")

    def promised(self, index: int, given: tuple[int, ...], layout: str | None) -> TensorSpec | None:
        """The spec that result `index` of a foreign op must match if its first input has this shape and layout.

        None (the default) for the spec of `infer`.
        """
        return None

    def motion(self, hw: Array, *params: Array) -> Array:
        """Where positions of one image are in the result: float64[3,3], ``(x, y, w) = matrix @ (x', y', 1)``.

        Positions are in pixels from the upper left corner, (x / w, y / w) in the result. `hw` is the size of the image,
        int[2], and `params` are those of the image.
        """
        raise TypeError(f"{type(self).__name__} does not define motion")

    def decompose(self) -> tuple[tuple[Op, tuple[int, ...]], ...]:
        """Simpler ops to apply in order, each with the indices of this op's parameters that it takes.

        Empty (the default) for a primitive. Together they must give exactly what `reference` gives.
        """
        return ()

    def is_identity(self, x: TensorSpec) -> bool:
        """Whether the op changes nothing for inputs of this spec. Called only if it has no parameters."""
        return False

    def merge(self, later: Op) -> Op | None:
        """One op exactly equal to this op followed by `later`; None if there is none.

        Called only if neither has parameters.
        """
        return None

    @classmethod
    def cases(cls) -> Iterator[Case]:
        """Inputs and tolerances for the conformance suite."""
        return iter(())

    def supports(self, method: str) -> bool:
        """Whether this op overrides a method, e.g. ``"dali"``."""
        return getattr(type(self), method) is not getattr(Op, method)

    def traced_fields(self) -> tuple[str, ...]:
        """Names of the fields that hold (or contain) a traced host value."""
        return tuple(f.name for f in fields(self) if f.init and _holds_arg(getattr(self, f.name)))

    def bind(self, args: tuple[Array, ...]) -> Op:
        """Replace each `Arg` in the fields by its array[B], so that `draw` computes with it."""
        names = self.traced_fields()
        if not names:
            return self
        return replace(self, **{name: _bound(getattr(self, name), args) for name in names})


def _holds_arg(value: Any) -> bool:
    return isinstance(value, Arg) or (isinstance(value, tuple) and any(_holds_arg(item) for item in value))


def _bound(value: Any, args: tuple[Array, ...]) -> Any:
    if isinstance(value, Arg):
        return args[value.index]
    if isinstance(value, tuple):
        return tuple(_bound(item, args) for item in value)
    return value


def drawn_for(op: Op, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
    """What an op draws for images of these sizes.

    Raises:
        ShapeError: results would have more than `MOST_PIXELS`, with a reason for each such row.
    """
    params = op.draw(rng, hw)
    if op.domain == "image":
        sizes = op.size(hw, *params)
        before, after = (both.astype(np.int64).prod(axis=1) for both in (hw, sizes))
        bad = np.flatnonzero(after > np.maximum(before, MOST_PIXELS)).tolist()
        if bad:
            raise ShapeError.of_rows({row: _too_large(op, *sizes[row].tolist()) for row in bad})
    return params


def check_area(op: Op, given: Sequence[TensorSpec], made: Sequence[TensorSpec]) -> None:
    """Check the sizes that are known before anything runs, as `drawn_for` does.

    Raises:
        SpecError: a result would have more than `MOST_PIXELS`.
    """
    sizes = [height_and_width(x, op.takes) for x in given]
    before = [height * width for height, width in sizes if height and width]
    for x in made:
        height, width = height_and_width(x)
        if height and width and height * width > max(MOST_PIXELS, *before, 0):
            raise SpecError(_too_large(op, height, width))


def _too_large(op: Op, height: int, width: int) -> str:
    return f"{op.stage} needs a result of at most {MOST_PIXELS} pixels, got a size of {height}x{width}"


def height_and_width(spec: TensorSpec, layout: str = "") -> tuple[int | None, int | None]:
    """Height and width of an image or a clip; None where they vary, or if it is neither.

    Args:
        spec: of the image.
        layout: of an image that does not say its own; "" for none.
    """
    layout = spec.layout or layout
    if not layout or spec.shape is None or not 3 <= len(spec.shape) <= 4:
        return None, None
    height, width = (layout[-3:].index(axis) for axis in "HW")
    return spec.shape[-3:][height], spec.shape[-3:][width]


def unlike(first: Sequence[int | None], other: Sequence[int | None]) -> str:
    """What is wrong with images of one call, given two sizes (height, width)."""
    text = f"needs images of one size, got {list(first)} and {list(other)}; resize them first"
    (height, width), (count, side) = first, other
    if height is not None and height == side and count != width and height != width and count != side:
        text += "; of masks [N,H,W] of N objects ops.transpose(masks, 'HWC') makes one image [H,W,N]"
    return text


def check_number(
    who: str,
    name: str,
    value: Any,
    low: float | None = None,
    high: float | None = None,
    *,
    integer: bool = False,
    traceable: bool = True,
) -> None:
    """Check a parameter: a number, a traced host value or, at run time, one value per row of a batch.

    Raises:
        PlanTypeError: `value` is something else, or is traced bytes or a traced vector.
        SpecError: the number is outside [low, high], or traced where it may not be.
        DataError: a row's number is, with a reason for each such row; a `ShapeError` if `integer`.
    """
    if isinstance(value, Arg):
        return
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.ndarray):
        _check_rows(who, name, value, low, high, integer)
        return
    if hasattr(type(value), "__gpupipe_symbol__"):
        if not traceable:
            raise SpecError(f"{who} needs a plain value for {name}, got a traced one")
        spec = value._value.spec
        if spec.dtype is bytes or spec.rank not in (0, None):
            raise PlanTypeError(f"{who} needs {'an integer' if integer else 'a number'} for {name}, got {spec}")
        return
    if isinstance(value, bool) or not isinstance(value, (int, np.integer) if integer else (int, float, np.number)):
        raise PlanTypeError(f"{who} needs {'an integer' if integer else 'a number'} for {name}, got {value!r}")
    finite = isinstance(value, int) or np.isfinite(value)  # NumPy does not know large integers
    if not finite or (low is not None and value < low) or (high is not None and value > high):
        bounds = f"{'-inf' if low is None else low} to {'inf' if high is None else high}"
        raise SpecError(f"{who} needs {name} from {bounds}, got {value!r}")


def check_flag(who: str, name: str, value: Any) -> None:
    """Check a parameter that is True or False.

    Raises:
        PlanTypeError: `value` is something else: a number, say, that stands in its place.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise PlanTypeError(f"{who} needs {name} as True or False, got {value!r}")


def _check_rows(who: str, name: str, values: Array, low: float | None, high: float | None, integer: bool) -> None:
    """Check the values of a traced parameter, one per row."""
    kind = "an integer" if integer else "a number"
    if values.ndim > 1 or values.dtype.kind not in "biuf":
        rows = {i: f"an array of shape {list(np.shape(x))}" if np.ndim(x) else repr(x) for i, x in enumerate(values)}
        raise DataError.of_rows({i: f"{who} needs {kind} for {name}, got {got}" for i, got in rows.items()})
    good = np.isfinite(values)
    if integer:
        with np.errstate(invalid="ignore"):
            good &= values == np.floor(values)
    good &= (values >= (-np.inf if low is None else low)) & (values <= (np.inf if high is None else high))
    bad = np.flatnonzero(~good)
    if bad.size:
        bounds = f"{'-inf' if low is None else low} to {'inf' if high is None else high}"
        needs = f"{who} needs {'an integer for ' if integer else ''}{name} from {bounds}"
        error = ShapeError if integer else DataError
        raise error.of_rows({int(i): f"{needs}, got {_short(values.reshape(-1)[i])}" for i in bad})


def _short(number: Any) -> str:
    return f"{number:g}" if number.dtype.kind == "f" else str(number)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One input for the conformance suite: every executor against `op.reference`.

    Attributes:
        op: the op under test.
        inputs: values of one element (arrays, scalars or encoded bytes), in the order of the op's inputs.
        layouts: layout of each input; missing ones are None.
        atol: largest difference allowed; above 0 only with a `reason`.
        ring: largest difference on the outermost pixel ring, where edge rules differ; `atol` if None.
        reason: why the tolerance is not 0.
        note: a word that distinguishes this case in the test's name.
    """

    op: Op
    inputs: tuple[Any, ...]
    layouts: tuple[str | None, ...] = ()
    atol: float = 0.0
    ring: float | None = None
    reason: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if (self.atol > 0 or self.ring) and not self.reason:
            raise SpecError(f"a case of {self.op.name} with a tolerance needs a reason")

    def __str__(self) -> str:
        first = self.inputs[0] if self.inputs else None
        what = (
            "x".join(map(str, first.shape)) + f"-{first.dtype}"
            if isinstance(first, np.ndarray)
            else type(first).__name__
        )
        return "-".join(part for part in (self.op.name, what, self.note) if part)
