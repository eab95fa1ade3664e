"""py_function: ordinary Python inside a traced function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import DataError, FunctionError, PlanError, PlanTypeError, SpecError, ends_run, text_of
from gpupipe.graph.classify import name_of
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.random import BatchRng
from gpupipe.spec import Structure, TensorSpec, as_leaf, flatten, own, spec_of

__all__ = ["PyFunction", "PyFunctionWithRng", "py_function"]


@dataclass(frozen=True, slots=True)
class PyFunction(Op):
    """Call a Python function with the values of one element, on the host.

    Attributes:
        fn: the function.
        structure: of its result.
        specs: of the leaves of its result. Several leaves are several results.

    Shapes: any -> `specs`
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"
    stateful: ClassVar[bool] = True

    fn: Callable[..., Any]
    structure: Structure
    specs: tuple[TensorSpec, ...]
    call: int = 0

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise PlanTypeError(f"py_function needs a function, got {type(self.fn).__name__}")
        for spec in self.specs:
            if not isinstance(spec, TensorSpec):
                raise PlanTypeError(f"py_function needs a TensorSpec for each result, got {spec!r}")
            if not spec.known:
                raise SpecError(f"py_function needs a spec with dtype and rank for each result, got {spec}")

    def infer(self, *xs: TensorSpec) -> TensorSpec | tuple[TensorSpec, ...]:
        return self.specs[0] if len(self.specs) == 1 else self.specs

    def reference(self, *xs: Any) -> Any:
        return self._called(xs)

    def _called(self, xs: Sequence[Any], *more: Any) -> Any:
        """Call the function with the values of an element, and `more` arguments."""
        try:
            result = self.fn(*(bytes(x) if isinstance(x, memoryview) else x for x in xs), *more)
        except DataError:
            raise  # already says what is wrong with the data; the caller adds the position
        except BaseException as error:
            if ends_run(error):
                raise
            reason = f"{name_of(self.fn)} raised {text_of(error)}"
            raise FunctionError(reason, stage="py_function") from error
        leaves = self._leaves(result)
        return tuple(leaves) if len(leaves) > 1 else leaves[0]

    def _leaves(self, result: Any) -> list[Any]:
        try:
            leaves, structure = flatten(
                tuple(result) if type(result) is list and self.structure.kind is tuple else result
            )
        except PlanError as error:
            raise self._unlike(f"got {result!r}", error) from error
        if structure != self.structure:
            raise self._unlike(f"got the structure {structure}")
        names = self.structure.leaf_names()
        return [self._leaf(leaf, spec, name) for leaf, spec, name in zip(leaves, self.specs, names, strict=True)]

    def _leaf(self, value: Any, spec: TensorSpec, name: str) -> Any:
        where = f" for {name}" if name else ""
        try:
            leaf = own(as_leaf(value))
            if type(value) in (bool, int, float, list) and spec.dtype is not bytes:
                leaf = _converted(value, leaf, spec.dtype)
        except (PlanError, OverflowError) as error:
            raise self._unlike(f"got {value!r}{where}", error) from error
        if not spec.accepts(spec_of(leaf)):
            raise self._unlike(f"got {spec_of(leaf)}{where}")
        return leaf

    def _unlike(self, got: str, cause: Exception | None = None) -> FunctionError:
        wanted = self.structure.unflatten([str(spec) for spec in self.specs])
        because = f" ({cause})" if cause is not None else ""
        return FunctionError(f"{name_of(self.fn)} needs to return {wanted}, {got}{because}", stage="py_function")

    @classmethod
    def cases(cls) -> Iterator[Case]:
        vector = TensorSpec((None,), "float32")
        pair = (TensorSpec((), "int64"), TensorSpec((2,), "float32"))
        yield Case(cls(_doubled, flatten(vector)[1], (vector,)), (np.arange(3, dtype=np.float32),), note="one")
        yield Case(cls(_divided, flatten(pair)[1], pair), (np.int64(17), np.int64(5)), note="two")


@dataclass(frozen=True, slots=True)
class PyFunctionWithRng(PyFunction):
    """Call a Python function with the values of one element and a generator of the element's own.

    Shapes: any -> `specs`
    """

    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("key",)

    @property
    def name(self) -> str:
        return "py_function"

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        """The 128 bits of each generator's key: uint64[B,2]."""
        low, high = rng.words(4).reshape(-1, 2, 2).transpose(2, 0, 1)
        return (low | high << np.uint64(32),)

    def reference(self, *xs: Any) -> Any:
        *values, key = xs
        return self._called(values, np.random.Generator(np.random.Philox(key=key)))


def _doubled(x: Any) -> Any:
    return x * 2


def _divided(a: Any, b: Any) -> Any:
    return a // b, [float(a), 0.5]


def _converted(value: Any, leaf: Any, dtype: Any) -> Any:
    """A Python number in the requested dtype, as NumPy would promote it; a float never becomes an integer."""
    kinds = {"f": "f", "i": "fiu", "u": "fiu", "b": "fiub"}[leaf.dtype.kind]
    if np.dtype(dtype).kind not in kinds:
        return leaf
    array = np.array(value, dtype)
    return array[()] if array.ndim == 0 else array


def py_function(
    fn: Callable[..., Any], args: Sequence[Any], spec: Any, *, rng: bool = False, seed: int | None = None
) -> Any:
    """Call a Python function inside a traced one: once per element, on the host.

    Args:
        fn: called with the values of `args` (NumPy arrays, scalars and bytes); returns what `spec` says. Python numbers
            take the dtype of the spec, arrays must have it.
        args: a tuple or list of values, traced or not.
        spec: `TensorSpec` of the result, or a tuple or dict of them.
        rng: pass a `numpy.random.Generator` as the last argument. It depends on seed, epoch, element and call alone, so
            an augmentation that draws from it is the same for every batch size, executor and number of threads, and
            after a resume; any other source of random numbers inside `fn` is none of that.
        seed: identifies what is drawn, as in other random ops; by default the call's number does. Only with `rng`.

    Returns:
        The result, in the structure of `spec`. Behind `batch` the function still sees one row at a time.

    Raises:
        SpecError: a spec has no dtype or rank.
        PlanError: `seed` without `rng`, or no arguments.
        FunctionError: `fn` raised (its exception is the cause), or its result does not match `spec`.

    Example:
        >>> py_function(lambda a, b: max(a, b), (1, 3), TensorSpec((), "int64"))
        np.int64(3)
    """
    if not isinstance(args, (tuple, list)):
        raise PlanTypeError(f"py_function needs a tuple or list of arguments, got {type(args).__name__}")
    if not args:
        raise PlanError("py_function needs at least one argument, got none")
    if seed is not None and not rng:
        raise PlanError("py_function needs rng=True with a seed: the function gets no generator without it")
    specs, structure = flatten(spec)
    kind = PyFunctionWithRng if rng else PyFunction
    result = apply(kind(fn, structure, tuple(specs)), *args, seed=seed)
    return structure.unflatten(result if len(specs) > 1 else [result])
