"""eager: an op run at once, on one element or on the rows of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .errors import SpecError
from .extract.headers import read_header
from .op import Array, Op
from .random import BatchRng, hash64
from .spec import as_leaf, byte_array, spec_of

__all__ = ["ELEMENT", "ElementRng", "eager_rng", "run", "sizes_of"]


@dataclass(slots=True)
class ElementRng:
    """What eager ops inside a Python map go by: the identity of the element at hand."""

    seed: int
    epoch: int
    key: int
    counts: dict[str, int] = field(default_factory=dict)


ELEMENT: ContextVar[ElementRng | None] = ContextVar("gpupipe_element", default=None)


def run(op: Op, xs: Sequence[Any], seed: int | None) -> Any:
    """Run an op at once, on one element or on the rows of a batch."""
    values = [x if isinstance(x, bytes) else as_leaf(x) for x in xs]
    specs = [spec_of(x) for x in values]
    try:
        op.infer(*specs)
    except SpecError as error:
        rows = [spec.row() for spec in specs if spec.rank]
        try:
            if len(rows) != len(specs):
                raise error
            op.infer(*rows)
        except SpecError:
            raise error from None  # it describes what the user passed, not a row of it
        results = [run(op, row, seed) for row in zip(*values, strict=True)]
        if isinstance(results[0], tuple):
            return tuple(_stacked(column) for column in zip(*results, strict=True))
        return _stacked(results)
    params: tuple[Array, ...] = ()
    if op.parameters:
        hw = sizes_of(op, values[0])
        params = op.draw(eager_rng(op.name, seed) if op.random else BatchRng(0, 0, np.zeros(1, np.uint64)), hw)
    return op.reference(*values, *(param[0] for param in params))


def _stacked(rows: Sequence[Any]) -> Array:
    """Results of rows as one array."""
    return byte_array(rows) if isinstance(rows[0], bytes) else np.stack(rows)


def sizes_of(op: Op, first: Any) -> Array:
    """The image size that `op.draw` gets for one input: int32[1,2]; zeros for what is no image."""
    if op.decodes:
        header = read_header(first)
        return np.array([[header.height, header.width]], np.int32)
    shape = getattr(first, "shape", ())
    return np.array([shape[:2] if len(shape) >= 2 else (0, 0)], np.int32)


def eager_rng(name: str, seed: int | None) -> BatchRng:
    """Numbers for one eager call: of the element at hand inside a Python map; of `seed`; else fresh entropy."""
    at = ELEMENT.get()
    if at is not None:
        count = at.counts.get(name, 0)
        at.counts[name] = count + 1
        site = f"{name}@{seed}/eager" if seed is not None else f"{name}#{count}/eager"
        return BatchRng(at.seed, at.epoch, np.array([at.key], np.uint64), hash64(site))
    entropy = (
        np.random.SeedSequence().generate_state(2, np.uint64)
        if seed is None
        else np.array([seed & (1 << 64) - 1] * 2, np.uint64)
    )
    return BatchRng(int(entropy[0]), 0, entropy[1:], hash64(name))
