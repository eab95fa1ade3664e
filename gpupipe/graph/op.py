"""op: the base of every operator.

One op is one frozen dataclass. Its methods stand in one order and say all there is to say about it::

    infer(*specs)            shape, dtype, layout; every SpecError lives here, so a mistake surfaces on the user's line
    size(hw, *params)        image sizes after the op, for a batch, on the host: int32[B,2] -> int32[B,2]
    draw(rng, hw)            host parameters of a batch: random numbers, crop windows, target sizes; one array[B,...]
                             for each name in `parameters`
    reference(*xs, *params)  the meaning, for one element, in NumPy
    dali(d, *xs, *params)    the same as DALI nodes; `d.fn`, `d.math`, `d.dtype`, `d.types` and `d.device` are handed in
    array(xp, *xs, *params)  the same for a whole batch, with NumPy or CuPy handed in
    decompose()              the op as a row of simpler ops, which is what the optimizer fuses
    is_identity, merge       facts the optimizer uses
    cases()                  inputs and tolerances for the conformance suite

Support for an executor means that the method is overridden.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..brief import fields_in_brief
from ..errors import DataError, PlanTypeError, ShapeError, SpecError
from ..random import BatchRng
from ..spec import TensorSpec

__all__ = ["Arg", "Case", "Op"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Arg:
    """Stands in a field of an op for a traced host value: the n-th of the call."""

    index: int


@dataclass(frozen=True, slots=True)
class Op:
    """One operator. Subclass it with a frozen dataclass; the fields are its static parameters.

    Class attributes:
        domain: "image" runs in the executor's graph, "host" on the host for each element, "any" wherever its input is.
        rows: "each" means the same on every row of a batch; "batch" needs all rows at once: `infer` still sees
            specs of one row, `draw` the size and the key of the first, `array` the batches and the parameters of that.
        random: whether `draw` uses its generator; such a call has a site of its own.
        stateful: whether two calls with equal inputs may differ: each call has its own number in the field `call`.
        decodes: whether the first input is encoded bytes, so that sizes come from its header.
        foreign: whether its DALI form is a user's function: host values that are no images stay on the host for it
            where the graph is on a GPU, and what the graph gives is compared with what was declared.
        parameters: names of the arrays that `draw` returns.
        traceable: fields that may hold a traced host value; `draw` then sees array[B] in its place.
    """

    def __init_subclass__(cls) -> None:
        if "__repr__" not in cls.__dict__:  # `dataclass` leaves one that is there
            cls.__repr__ = fields_in_brief  # type: ignore[method-assign]

    domain: ClassVar[Literal["image", "host", "any"]] = "image"
    rows: ClassVar[Literal["each", "batch"]] = "each"
    random: ClassVar[bool] = False
    decodes: ClassVar[bool] = False
    stateful: ClassVar[bool] = False
    foreign: ClassVar[bool] = False
    parameters: ClassVar[tuple[str, ...]] = ()
    traceable: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self) -> str:
        """The public name: the class name in snake_case."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def stage(self) -> str:
        """What errors call it: the op that the user wrote, where the optimizer made this one of it."""
        return self.name

    def infer(self, *xs: TensorSpec) -> TensorSpec | tuple[TensorSpec, ...]:
        """The spec of the result, or of each result.

        Raises:
            SpecError: when the op is not defined for such inputs.
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

    def compiled(self) -> Callable[..., Any]:
        """`reference` with all that needs doing only once done already; the host calls it for every element."""
        return self.reference

    def dali(self, d: Any, *args: Any) -> Any:
        """The same as DALI nodes: `dali(d, *inputs, *params)`."""
        raise TypeError(f"{type(self).__name__} does not define dali")

    def array(self, xp: Any, *args: Any) -> Any:
        """The same for a batch in NumPy or CuPy: `array(xp, *inputs, *params)`.

        Gives new arrays and leaves its inputs as they are; parameters are NumPy arrays and numbers.
        """
        raise TypeError(f"{type(self).__name__} does not define array")

    def promised(self, index: int, given: tuple[int, ...], layout: str | None) -> TensorSpec | None:
        """What result number `index` of a foreign op has to be like, where its first input is of this shape and layout.

        None (the default) for no more than `infer` says.
        """
        return None

    def decompose(self) -> tuple[tuple[Op, tuple[int, ...]], ...]:
        """Simpler ops, applied one after the other, each with the indices of this op's parameters that it takes.

        Empty (the default) for a primitive. The parts must give exactly what `reference` gives.
        """
        return ()

    def is_identity(self, x: TensorSpec) -> bool:
        """Whether the op changes nothing for inputs of this spec."""
        return False

    def merge(self, later: Op) -> Op | None:
        """The one op that does this and then `later` with exactly the same result, None if there is none.

        Asked only where neither has parameters.
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
        """Put batch arrays in place of traced fields, so that `draw` computes with them: array[B] for each `Arg`."""
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


def check_number(
    who: str, name: str, value: Any, low: float | None = None, high: float | None = None, *, integer: bool = False
) -> None:
    """Check a parameter that is a number, a traced host value, or at run time the values of the rows of a batch.

    Raises:
        PlanTypeError: for anything that is none of these, bytes and vectors among what is traced.
        SpecError: for a number outside [low, high].
        DataError: for rows whose number is, each with its own reason; a `ShapeError` where it is a size or place.
    """
    if isinstance(value, Arg):
        return
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.ndarray):
        _check_rows(who, name, value, low, high, integer)
        return
    if hasattr(type(value), "__gpupipe_symbol__"):
        spec = value._value.spec
        if spec.dtype is bytes or spec.rank not in (0, None):
            raise PlanTypeError(f"{who} needs {'an integer' if integer else 'a number'} for {name}, got {spec}")
        return
    if isinstance(value, bool) or not isinstance(value, (int, np.integer) if integer else (int, float, np.number)):
        raise PlanTypeError(f"{who} needs {'an integer' if integer else 'a number'} for {name}, got {value!r}")
    if not np.isfinite(value) or (low is not None and value < low) or (high is not None and value > high):
        bounds = f"{'-inf' if low is None else low} to {'inf' if high is None else high}"
        raise SpecError(f"{who} needs {name} from {bounds}, got {value!r}")


def _check_rows(who: str, name: str, values: Array, low: float | None, high: float | None, integer: bool) -> None:
    """The same for the values of a traced parameter, one for each row."""
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
        layouts: layout of each input, filled with None.
        atol: largest difference allowed inside; above 0 only with a `reason`.
        ring: largest difference on the outermost pixel ring, where edge rules differ; `atol` if None.
        reason: why the tolerance is not 0.
        note: a word that tells this case from its neighbours in the test's name.
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
        first = self.inputs[0]
        what = (
            "x".join(map(str, first.shape)) + f"-{first.dtype}"
            if isinstance(first, np.ndarray)
            else type(first).__name__
        )
        return "-".join(part for part in (self.op.name, what, self.note) if part)
