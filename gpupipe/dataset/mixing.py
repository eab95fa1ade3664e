"""mixing: the methods of `Dataset` that mix datasets, and small sources."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..arguments import (
    integer_or_none,
    kept,
    number_type,
    path_names,
)
from ..brief import digits
from ..errors import PlanError, PlanTypeError
from ..integers import is_integer, plain
from ..plan.mixing import ChooseFrom, SampleFrom
from ..plan.sources import Counter, Listed, RandomNumbers, Slices
from ..spec import TensorSpec, as_leaf, byte_array, describe, flatten, spec_of
from .base import Chain, alike, new

if TYPE_CHECKING:
    from .. import Dataset

__all__ = ["Mixing"]


class Mixing(Chain):
    """Mixtures of datasets, and small sources."""

    @staticmethod
    def from_list(elements: list[Any]) -> Dataset:
        """Make a dataset of the elements of a list. Shapes may differ, structure and dtypes may not.

        Elements whose first leaf is a path are identified by the path, as those of `list_files` are.

        Raises:
            PlanError: not a list, an empty one, or elements of different structures.
            PlanTypeError: elements of different dtypes.

        Example:
            >>> from gpupipe import Dataset
            >>> list(Dataset.from_list([("a.jpg", 1), ("b.jpg", 2)]))
            [(b'a.jpg', np.int64(1)), (b'b.jpg', np.int64(2))]
        """
        if not isinstance(elements, list):
            raise PlanError(f"from_list needs a list, got {type(elements).__name__}")
        if not elements:
            raise PlanError("from_list needs at least one element; Dataset.range(0) is empty")
        _, structure = flatten(elements[0])
        if not structure.count:
            raise PlanError("from_list needs elements with a value, got None")
        rows: list[tuple[Any, ...]] = []
        specs: tuple[TensorSpec, ...] = ()
        for i, element in enumerate(elements):
            if structure.kind is dict and isinstance(element, dict) and set(element) == set(structure.keys):
                element = {key: element[key] for key in structure.keys}
            leaves, found = flatten(element)
            if found != structure:
                raise PlanError(f"from_list needs elements of one structure, got {found} after {structure}, at {i}")
            row = tuple(kept(as_leaf(leaf)) for leaf in leaves)
            here = tuple(map(spec_of, row))
            for a, b in zip(specs, here, strict=bool(specs)):
                if a.dtype != b.dtype:
                    raise PlanTypeError(f"from_list needs elements of one dtype, got {b} after {a}, at {i}")
            specs = tuple(a.relax(b) for a, b in zip(specs, here, strict=True)) if specs else here
            rows.append(row)
        columns = tuple(zip(*rows, strict=True))
        scalar = [spec.shape == () and type(spec) is TensorSpec for spec in specs]
        paths = specs[:1] == (TensorSpec((), bytes),)
        names = path_names(byte_array(columns[0])) if paths else None
        if all(scalar):  # equal to slices of arrays, which cost less and can be indexed
            arrays = [
                byte_array(column) if spec.dtype is bytes else np.array(column)
                for column, spec in zip(columns, specs, strict=True)
            ]
            return new(Slices(tuple(map(kept, arrays)), structure, names))
        return new(Listed(columns, structure, specs, names))

    @staticmethod
    def counter(start: Any = 0, step: Any = 1, dtype: Any = "int64") -> Dataset:
        """Count forever: start, start + step, ..., in `dtype`. Integers wrap around; floats are summed in `dtype`.

        Raises:
            PlanTypeError: a dtype that is not numeric, or a start or step that does not match it.
            PlanError: a start or step that the dtype cannot hold.
        """
        kind = number_type("counter", "dtype", dtype)
        first, more = (_number(name, value, kind) for name, value in (("start", start), ("step", step)))
        return new(Counter(first, more, kind))

    @staticmethod
    def random(seed: int | None = None, rerandomize_each_iteration: bool | None = None) -> Dataset:
        """Make an infinite dataset of random numbers: int64 in [0, 2**32).

        Args:
            seed: mixed with the chain's seed; two such datasets with equal seeds, or without seeds, give equal numbers.
            rerandomize_each_iteration: True gives new numbers in every epoch and pass; default: always the same.
        """
        seed = integer_or_none("random", "seed", seed)
        return new(RandomNumbers(seed, _flag("random", rerandomize_each_iteration)))

    @staticmethod
    def sample_from_datasets(
        datasets: Sequence[Dataset],
        weights: Any = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> Dataset:
        """Take each element from one of several datasets, drawn by weight.

        Args:
            datasets: a list of datasets of equal structure and dtypes.
            weights: one number per dataset, on any scale; a weight <= 0 excludes its dataset. Or a dataset of such
                vectors, one for each draw. Default: equal weights.
            seed: of the draws, mixed with the chain's seed; equal seeds draw equally in all inputs of a `zip`.
            stop_on_empty_dataset: end when an exhausted dataset is drawn; otherwise continue with the others.
            rerandomize_each_iteration: True draws a new order of the datasets in every epoch and pass; default: always
                the same order.

        Raises:
            PlanError: no datasets, or a wrong number of weights.
            PlanTypeError: datasets that do not fit each other.
        """
        who = "sample_from_datasets"
        given = _inputs(who, datasets)
        seed = integer_or_none(who, "seed", seed)
        rerandomize, stop = _flag(who, rerandomize_each_iteration), bool(stop_on_empty_dataset)
        if isinstance(weights, Chain):
            _weights_of(weights, len(given))
            inputs = tuple(dataset.plan for dataset in given)
            plan = SampleFrom(inputs, stop, None, weights.plan, seed, rerandomize)
            return given[0]._joined(who, plan, [*given, weights])
        shares = [1.0] * len(given) if weights is None else _shares(weights, len(given))
        drawn = [(dataset, share) for dataset, share in zip(given, shares, strict=True) if share > 0]
        if not drawn:
            return given[0].take(0)
        if len(drawn) == 1:
            return drawn[0][0]
        inputs = tuple(dataset.plan for dataset, _ in drawn)
        plan = SampleFrom(inputs, stop, tuple(share for _, share in drawn), None, seed, rerandomize)
        return given[0]._joined(who, plan, given)

    @staticmethod
    def choose_from_datasets(
        datasets: Sequence[Dataset], choice_dataset: Dataset, stop_on_empty_dataset: bool = True
    ) -> Dataset:
        """Take each element from the dataset whose index `choice_dataset` gives, until the choices end.

        Args:
            datasets: a list of datasets of equal structure and dtypes.
            choice_dataset: int64 scalars, 0 for the first dataset. A choice out of range is a bad element.
            stop_on_empty_dataset: end when an exhausted dataset is chosen; otherwise skip that choice.

        Raises:
            PlanError: no datasets.
            PlanTypeError: datasets that do not fit each other, or choices that are not int64.
        """
        who = "choose_from_datasets"
        given = _inputs(who, datasets)
        if not isinstance(choice_dataset, Chain):
            raise PlanTypeError(f"{who} needs a Dataset for choice_dataset, got {type(choice_dataset).__name__}")
        element = choice_dataset.plan.element
        if element.structure is not None:
            (spec, *rest) = element.specs
            if element.structure.kind is not None or rest or not spec.accepts(TensorSpec((), "int64")):
                raise PlanTypeError(
                    f"{who} needs choices that are one int64 each, got {describe(choice_dataset.element_spec)}"
                )
        inputs = tuple(dataset.plan for dataset in given)
        plan = ChooseFrom(inputs, bool(stop_on_empty_dataset), choice_dataset.plan)
        return given[0]._joined(who, plan, [*given, choice_dataset])


def _inputs(who: str, datasets: Any) -> list[Dataset]:
    """Check a list of datasets, and that they are alike."""
    if isinstance(datasets, Chain) or not isinstance(datasets, Sequence):
        raise PlanTypeError(f"{who} needs a list of datasets, got {type(datasets).__name__}")
    if not datasets:
        raise PlanError(f"{who} needs at least one dataset")
    for dataset in datasets:
        if not isinstance(dataset, Chain):
            raise PlanTypeError(f"{who} needs datasets, got {type(dataset).__name__}")
    given = [cast("Dataset", dataset) for dataset in datasets]
    return alike(who, given)


def _weights_of(weights: Chain, count: int) -> None:
    """Check the known type of a dataset of weights."""
    element = weights.plan.element
    if element.structure is None:
        return
    if len(element.specs) == 1:
        fits = element.specs[0].accepts(TensorSpec((count,), None))
    else:
        fits = len(element.specs) == count and all(spec.accepts(TensorSpec((), None)) for spec in element.specs)
    if not fits or any(spec.dtype is bytes for spec in element.specs):
        raise PlanError(
            f"sample_from_datasets needs {count} weights in each element of a dataset of weights, got "
            f"{describe(element.nested)}"
        )


def _shares(weights: Any, count: int) -> list[float]:
    shares = np.asarray(weights)
    if shares.dtype.kind not in "iuf":
        raise PlanTypeError(f"sample_from_datasets needs numbers as weights, got {weights!r}")
    if shares.shape != (count,):
        raise PlanError(f"sample_from_datasets needs one weight for each of {count} datasets, got {weights!r}")
    values = [float(share) for share in shares]
    if not all(map(math.isfinite, values)):
        raise PlanError(f"sample_from_datasets needs finite weights, got {weights!r}")
    return values


def _flag(who: str, value: Any) -> bool:
    if value is not None and not isinstance(value, (bool, np.bool_)):
        raise PlanTypeError(f"{who} needs True or False for rerandomize_each_iteration, got {value!r}")
    return bool(value)


def _number(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    value = plain(value)
    whole = is_integer(value)
    if not whole and not (dtype.kind == "f" and isinstance(value, (float, np.floating))):
        raise PlanTypeError(
            f"counter needs {'a number' if dtype.kind == 'f' else 'an integer'} for {name}, got {value!r}"
        )
    limits = np.iinfo(dtype) if dtype.kind != "f" else np.finfo(dtype)
    # Floats that are infinite already are kept.
    if (whole or math.isfinite(value)) and not int(limits.min) <= value <= int(limits.max):
        raise PlanError(f"counter needs a {name} that {dtype} can hold, got {digits(int(value)) if whole else value}")
    return dtype.type(value)
