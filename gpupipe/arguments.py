"""arguments: checks of the arguments of Dataset's methods, with errors on the user's line."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .brief import brief, digits
from .errors import PlanError, PlanTypeError, shown_name
from .extract.storage.names import Names
from .extract.storage.patterns import may_be_paths, stable_names
from .graph.classify import name_of
from .graph.values import CONST_LIMIT
from .integers import is_integer, plain
from .options import AUTOTUNE
from .plan.node import ElementType
from .spec import TensorSpec, flatten, is_dataclass_type, own, read_only
from .urls import is_url


def path_names(column: Any) -> Names | None:
    """The stable names of a list of paths; None for any other column, e.g. encoded images."""
    if getattr(column, "dtype", None) is None or column.dtype.kind != "O" or column.ndim != 1:
        return None
    if not may_be_paths(column):
        return None
    return Names(stable_names([path.decode(errors="surrogateescape") for path in column]))


def kept(leaf: Any) -> Any:
    """A leaf as a dataset keeps it: a copy up to 1 MB, above that a read-only view."""
    return read_only(own(leaf) if getattr(leaf, "nbytes", 0) <= CONST_LIMIT else leaf)


def integer(who: str, name: str, value: Any, least: int | None = None) -> int:
    """Check a signed integer of 64 bits, >= `least`; a boolean is not one."""
    number = any_integer(who, name, value)
    if not -(2**63) <= number < 2**63:
        raise PlanError(f"{who} needs an integer of 64 bits for {name}, got {digits(number)}")
    if least is not None and number < least:
        raise PlanError(f"{who} needs {name} >= {least}, got {number}")
    return number


def any_integer(who: str, name: str, value: Any) -> int:
    """Check an integer of any size, such as a seed; NumPy integers and 0-d arrays of them count."""
    number = plain(value)
    if not is_integer(number):
        raise PlanTypeError(f"{who} needs an integer for {name}, got {brief(value)}")
    return int(number)


def integer_or_none(who: str, name: str, value: Any) -> int | None:
    """Check an integer of any size, or None."""
    return None if value is None else any_integer(who, name, value)


def number_type(who: str, name: str, given: Any) -> np.dtype[Any]:
    """Check a dtype of integers or floats.

    Raises:
        PlanTypeError: another dtype, or not a dtype.
    """
    try:
        dtype: np.dtype[Any] = np.dtype(given)
    except TypeError as error:
        raise PlanTypeError(f"{who} needs an integer or float dtype for {name}, got {given!r}") from error
    if dtype.kind not in "iuf":
        raise PlanTypeError(f"{who} needs an integer or float {name}, got {dtype}")
    return dtype


def parallel_calls(who: str, value: Any, name: str = "num_parallel_calls") -> int:
    """Check a number of parallel calls: -1 for AUTOTUNE, 0 for None."""
    if value is None:
        return 0
    calls = integer(who, name, value)
    if calls == 0 or calls < AUTOTUNE:
        raise PlanError(f"{who} needs {name} >= 1 or AUTOTUNE, got {calls}")
    return calls


def checked_function(who: str, fn: Any, element: ElementType | None = None, extra: int = 0) -> None:
    """Check a function and, where they are known, its number of arguments: those of an element, and `extra` ones."""
    if not callable(fn):
        raise PlanTypeError(f"{who} needs a function, got {type(fn).__name__}")
    if element is not None:
        _arity(who, fn, element, extra)


class _Nowhere:
    """A file that discards what is written to it."""

    def write(self, data: Any) -> int:
        return memoryview(data).nbytes


def travels(who: str, fn: Callable[..., Any]) -> None:
    """Check that multiprocessing can pass a function to another process, which it does by name.

    Raises:
        PlanError: a lambda, a nested function, or a function of a notebook or an interactive session.
    """
    from multiprocessing.reduction import ForkingPickler

    main = sys.modules.get("__main__")
    if getattr(fn, "__module__", None) == "__main__" and not (
        getattr(main, "__file__", None) or getattr(main, "__spec__", None)
    ):
        raise PlanError(
            f"{who}(workers='process') needs a function that other processes can import, got {name_of(fn)} of an "
            "interactive session; put it into a module"
        )
    try:
        ForkingPickler(_Nowhere()).dump(fn)
    except Exception as error:  # pickling may raise anything that an attribute of the function raises
        raise PlanError(
            f"{who}(workers='process') needs a function that other processes can import by its name, got "
            f"{name_of(fn)}; give it a name at the top of a module ({type(error).__name__}: {error})"
        ) from error


def _arity(who: str, fn: Callable[..., Any], element: ElementType, extra: int) -> None:
    if element.structure is None:
        return
    count = (len(element.structure.children) if element.structure.kind is tuple else 1) + extra
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # a builtin without a signature: the call itself will tell
        return
    try:
        signature.bind(*range(count))
    except TypeError as error:
        raise PlanTypeError(
            f"{who} calls {name_of(fn)} with {count} argument{'s' * (count != 1)} (a tuple is unpacked), which takes "
            f"{signature}: {error}"
        ) from None


def signature(who: str, given: Any) -> ElementType:
    """The element type of a structure of TensorSpec."""
    leaves, structure = flatten(given)
    for leaf in leaves:
        if not isinstance(leaf, TensorSpec):
            raise PlanTypeError(f"{who} needs a structure of TensorSpec, got {type(leaf).__name__}")
    return ElementType(structure, tuple(leaves))


def index_location(who: str, index: Any) -> str:
    """Check where indices of files are kept: "memory", "beside" or a folder."""
    if not isinstance(index, (str, os.PathLike)) or not os.fspath(index):
        raise PlanTypeError(f'{who} needs index="memory", "beside" or a folder, got {index!r}')
    if is_url(folder := os.fsdecode(index)):
        raise PlanError(f'{who} needs index="memory", "beside" or a folder here, got {shown_name(folder)!r}')
    return folder


def shapes_like(shapes: Any, structure: Any) -> list[Any]:
    """Flatten shapes that are nested like a structure."""
    out: list[Any] = []

    def walk(given: Any, at: Any) -> None:
        if at.kind is None:
            out.append(None if given is None else tuple(given))
        elif at.kind is dict:
            for key, child in zip(at.keys, at.children, strict=True):
                walk(given[key], child)
        else:
            parts = [getattr(given, key) for key in at.keys] if is_dataclass_type(at.kind) else given
            for part, child in zip(parts, at.children, strict=True):
                walk(part, child)

    walk(shapes, structure)
    return out


def same_structure(a: ElementType, b: ElementType) -> bool:
    """Whether two element types have one structure; the keys of a dict may be in another order."""
    if a.structure == b.structure:
        return True
    x, y = a.structure, b.structure
    return x is not None and y is not None and x.kind is dict and y.kind is dict and set(x.keys) == set(y.keys)


def reordered(a: ElementType, b: ElementType) -> tuple[TensorSpec, ...]:
    """The specs of `b`; if both are dicts, in the key order of `a`."""
    if a.structure == b.structure or a.structure is None:
        return b.specs
    nested = b.nested
    return tuple(flatten({key: nested[key] for key in a.structure.keys})[0])


def in_the_order_of(element: ElementType) -> Callable[[Mapping[Any, Any]], dict[Any, Any]]:
    """Make a function that puts the keys of a dict in the order of this element type."""
    assert element.structure is not None
    keys = element.structure.keys

    def reorder(x: Mapping[Any, Any]) -> dict[Any, Any]:
        return {key: x[key] for key in keys}

    return reorder
