"""check: values against the element type that a dataset declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DataError, FunctionError, ResultError, text_of
from ..spec import Compound, Structure, TensorSpec, describe, spec_of
from .element import Stream

__all__ = ["conform", "failed", "fits", "same_structure", "shown", "truth"]


def shown(value: Any) -> str:
    """A value's repr for messages, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def same_structure(who: str, structure: Structure, seen: list[Structure]) -> None:
    """Check a structure against the first one, which is stored in `seen`.

    Raises:
        FunctionError: they differ.
    """
    if not seen:
        seen.append(structure)
    elif structure != seen[0]:
        lists = structure.kind is seen[0].kind is tuple and len(structure.children) != len(seen[0].children)
        instead = "; return np.array(x) for a list x whose length varies" if lists else ""
        raise FunctionError(f"{who} needs elements of one structure, got {structure} after {seen[0]}{instead}")


def conform(
    who: str, structure: Structure, columns: tuple[Any, ...], wanted: Structure, specs: Sequence[TensorSpec]
) -> tuple[Any, ...]:
    """Check an element against its declared type. Python numbers take the declared dtype if they fit it exactly.

    Raises:
        FunctionError: structure, dtype or shape differ.
    """
    if structure != wanted:
        raise FunctionError(
            f"{who} needs elements like {describe(wanted.unflatten(list(specs)))}, got the structure {structure}"
        )
    if all(map(fits, columns, specs)):
        return columns
    out = []
    for column, spec, name in zip(columns, specs, wanted.leaf_names(), strict=True):
        found = spec_of(column)
        if not spec.accepts(found):
            fitted = exact_cast(column, spec)
            if fitted is None:
                raise FunctionError(f"{who} needs {spec}{f' for {name}' if name else ''}, got {found}")
            column = fitted
        out.append(column)
    return tuple(out)


def fits(column: Any, spec: TensorSpec) -> bool:
    """Whether a column matches `spec`: a fast ``spec.accepts(spec_of(column))`` for numbers, arrays and bytes.

    False for every other leaf, which the caller checks in full.
    """
    if type(spec) is not TensorSpec:
        return False
    if type(column) is bytes or type(column) is memoryview:
        return (spec.dtype is None or spec.dtype is bytes) and not spec.shape
    if not isinstance(column, (np.ndarray, np.generic)) or column.dtype == object:
        return False
    if spec.dtype is not None and column.dtype != spec.dtype:
        return False
    if spec.shape is None or column.shape == spec.shape:
        return True
    if column.ndim != len(spec.shape):
        return False
    return all(size == declared or declared is None for size, declared in zip(column.shape, spec.shape, strict=True))


def exact_cast(column: Any, spec: TensorSpec) -> Any:
    """The value cast to the dtype of `spec` if that is exact and shapes agree, else None."""
    if spec.dtype is None or spec.dtype is bytes or isinstance(column, (bytes, Compound)) or column.dtype == object:
        return None
    with np.errstate(all="ignore"):
        cast = np.asarray(column).astype(spec.dtype)
    if not np.array_equal(cast, column, equal_nan=cast.dtype.kind == "f" and column.dtype.kind == "f"):
        return None
    cast = cast[()] if cast.ndim == 0 else cast
    return cast if spec.accepts(spec_of(cast)) else None


def failed(stage: str, error: BaseException, stream: Stream, position: int) -> DataError:
    """Wrap a user's exception in a data error, with the original as its cause."""
    if not isinstance(error, DataError):
        wrapped = FunctionError(f"raised {text_of(error)}", stage=stage)
        wrapped.__cause__ = error
        error = wrapped
    return error.at(stream.name, position, stage, stream.unit)


def truth(value: Any, who: str = "filter") -> bool:
    """The result of a predicate as a bool.

    Raises:
        ResultError: it is not one boolean.
    """
    if type(value) is np.bool_ or type(value) is bool:
        return bool(value)
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype == bool:
        return bool(value)
    raise ResultError(f"{who} needs a predicate that returns one boolean, got {type(value).__name__} {value!r}"[:200])
