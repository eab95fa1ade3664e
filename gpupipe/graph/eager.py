"""eager: run an op immediately, on one element or on the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar, copy_context
from typing import Any

import numpy as np

from ..errors import DataError, PlanError, ShapeError, SpecError
from ..extract.images.headers import read_header
from ..options import eager_call
from ..random import BatchRng, hash64, mix64
from ..spec import Compound, TensorSpec, as_leaf, byte_array, spec_of
from .drawn import Drawn
from .frames import Frames, over_frames
from .op import Array, Op, drawn_for, unlike

__all__ = ["ELEMENT", "ElementRng", "Use", "eager_rng", "over_rows", "run", "run_together", "sizes_of", "stacked"]

Use = tuple[Callable[[Op], Op], Sequence[Any]]
"""How another op is made of the one that draws, and its inputs."""


_CHANNELS = (1, 3, 4)
"""What the first axis of an image {CHW} has, and the rows of an image {HWC} hardly ever."""


class ElementRng:
    """The identity of the current element, for random ops called eagerly inside a Python map.

    One object is reused for all elements. Few functions draw, so the key is mixed only when an op asks for it.

    Attributes:
        seed: of the chain.
        epoch: of the iterator.
        site: the step that the function belongs to, hashed.
        stream: key of the element's stream.
        position: of the element in it.
        random_calls: number of calls so far for this element, by the name of the op.
    """

    __slots__ = ("epoch", "position", "random_calls", "seed", "site", "stream")

    def __init__(self, seed: int, epoch: int, site: int) -> None:
        self.seed = seed
        self.epoch = epoch
        self.site = site
        self.stream = 0
        self.position = 0
        self.random_calls: dict[str, int] = {}

    def at(self, stream: int, position: int) -> ElementRng:
        """Move to the next element."""
        self.stream = stream
        self.position = position
        if self.random_calls:
            self.random_calls = {}
        return self

    @property
    def key(self) -> int:
        """The element's key, mixed with the step."""
        return mix64(mix64(self.stream, self.position), self.site)


ELEMENT: ContextVar[ElementRng | None] = ContextVar("gpupipe_element", default=None)

_ROW: ContextVar[str] = ContextVar("gpupipe_row", default="")
"""The number of the current row in its batch, as "[3]", or "[3][0]" for one of a batch that a row holds."""


def over_rows(call: Callable[[Any], Any], rows: Iterable[Any]) -> list[Any]:
    """What `call` makes of each row of a batch. Rows draw on their own, also where they have one seed."""
    return copy_context().run(_over_rows, call, rows)  # whatever ends it, no number is left behind


def _over_rows(call: Callable[[Any], Any], rows: Iterable[Any]) -> list[Any]:
    made, around = [], _ROW.get()
    for number, row in enumerate(rows):
        _ROW.set(f"{around}[{number}]")
        made.append(call(row))
    return made


def run(op: Op, xs: Sequence[Any], seed: int | None, return_params: bool = False) -> Any:
    """Run an op on one element or on the rows of a batch; `return_params` as in `apply`."""
    values = [x if isinstance(x, bytes) else as_leaf(x) for x in xs]
    specs = [spec_of(x) for x in values]
    if op.rows == "batch":
        return _run_on_batch(op, values, specs, seed)
    if not op.supports("reference"):
        raise PlanError(f"{op.name} has no NumPy form: it cannot take arrays; call it in a map that DALI runs")
    if specs and specs[0].rank == 5:  # a batch of clips; an array of rank 4 is a batch of images
        clips = over_frames(op, [spec.row() for spec in specs if spec.rank])
        if clips is not op:
            return _run_on_rows(clips, values, seed, return_params)
    try:
        op.infer(*specs)
    except SpecError as error:
        rows = [spec.row() for spec in specs if spec.rank]
        try:
            if len(rows) != len(specs):
                raise error
            op.infer(*rows)
        except SpecError:
            raise error from None  # describes what the user passed, not one row of it
        return _run_on_rows(op, values, seed, return_params)
    made = _run_one(op, values, (), values[0] if values else None, seed, return_params)
    return made[0] if len(made) == 1 else tuple(made)


def run_together(
    op: Op, xs: Sequence[Any], uses: Sequence[Use], of: Sequence[Any], seed: int | None, return_params: bool
) -> list[Any]:
    """Run an op on one element, and others with what it drew: see `apply_together`."""
    values = [x if isinstance(x, bytes) else as_leaf(x) for x in xs]
    first = _first_of(op, of) if of else values[0]
    op.infer(*map(spec_of, values))
    return _run_one(op, values, uses, first, seed, return_params)


def _run_one(
    op: Op, values: Sequence[Any], uses: Sequence[Use], first: Any, seed: int | None, return_params: bool
) -> list[Any]:
    """Run an op on one element, as leaves that it takes, and others with what it drew for the size of `first`."""
    try:
        params = _params(op, first, seed)
        results = _results(op, values, params)
        if return_params:
            results.append(Drawn(op.drawn).reference(*params))
        for make, others in uses:
            use, inputs = make(op), [as_leaf(x) for x in others]
            use.infer(*map(spec_of, inputs))
            more = [] if len(use.parameters) == len(params) else [sizes_of(op, first)[0]]
            results += _results(use, inputs, [*params, *more])
    except DataError as error:
        error.at(stage=op.stage)
        raise
    return results


def _first_of(op: Op, images: Sequence[Any]) -> Any:
    """The first of some images of one size.

    Raises:
        ShapeError: their sizes differ.
    """
    leaves = [as_leaf(x) for x in images]
    first, *others = (sizes_of(op, leaf)[0].tolist() for leaf in leaves)
    for other in others:
        if other != first:
            raise ShapeError(unlike(first, other)).at(stage=op.stage)
    return leaves[0]


def _results(op: Op, values: Sequence[Any], params: Sequence[Any]) -> list[Any]:
    made = op.reference(*values, *params)
    return list(made) if isinstance(made, tuple) else [made]


def _run_on_rows(op: Op, values: Sequence[Any], seed: int | None, return_params: bool) -> Any:
    """Run an op on each row of a batch, and stack the results."""
    _check_rows(op, values)
    results = over_rows(lambda row: run(op, row, seed, return_params), zip(*values, strict=True))
    if isinstance(results[0], tuple):
        return tuple(stacked(column) for column in zip(*results, strict=True))
    return stacked(results)


def _run_on_batch(op: Op, values: Sequence[Any], specs: Sequence[TensorSpec], seed: int | None) -> Any:
    """Run an op that needs all rows at once."""
    for spec in specs:
        if not spec.rank:
            raise SpecError(f"{op.name} needs batches, got {spec}")
    op.infer(*(spec.row() for spec in specs))
    if len({len(x) for x in values}) > 1:
        raise SpecError(f"{op.name} needs batches of one length, got {', '.join(map(str, specs))}")
    _check_rows(op, values)
    return op.array(np, *values, *_params(op, values[0][0], seed))


def _params(op: Op, first: Any, seed: int | None) -> list[Array]:
    """Draw the parameters for one element, whose first input is `first`."""
    if not op.parameters:
        if not op.ignores_layout:
            sizes_of(op, first)
        return []
    rng = eager_rng(op.name, seed) if op.random else BatchRng(0, 0, np.zeros(1, np.uint64))
    return [param[0] for param in drawn_for(op, rng, sizes_of(op, first))]


def _check_rows(op: Op, values: Sequence[Any]) -> None:
    """Refuse a batch without rows, whose result would have no shape.

    Raises:
        SpecError: there is no row.
    """
    if not len(values[0]):
        raise SpecError(f"{op.name} needs a batch of at least one row, got none")


def stacked(rows: Sequence[Any]) -> Array:
    """The results of rows as a batch.

    Raises:
        ShapeError: they have different shapes.
    """
    if isinstance(rows[0], bytes):
        return byte_array(rows)
    try:
        return np.stack(rows)
    except ValueError as error:
        text = "needs results of one shape for a batch; call it before the batch, then padded_batch"
        raise ShapeError(text) from error


def sizes_of(op: Op, first: Any) -> Array:
    """The image size that `op.draw` gets for one input: int32[1,2]; zeros unless it is an image.

    Raises:
        SpecError: an array, which does not know its layout, looks like an image {CHW}, and the op takes {HWC}.
    """
    if op.decodes:
        header = read_header(first)
        return np.array([[header.height, header.width]], np.int32)
    shape: tuple[int, ...] = () if isinstance(first, Compound) else getattr(first, "shape", ())
    if isinstance(op, Frames):
        shape, op = shape[1:], op.op
    channels_first = len(shape) == 3 and op.takes == "CHW"
    if len(shape) == 3 and not channels_first and shape[0] in _CHANNELS and min(shape[1:]) > max(_CHANNELS):
        instead = "drop it" if "axes" in op.frames else "call it before ops.transpose"
        raise SpecError(
            f"{op.stage} needs an image {{HWC}}, got an array of shape {list(shape)}, which looks like {{CHW}}; "
            f"{instead}"
        )
    return np.array([shape[1:] if channels_first else shape[:2] if len(shape) >= 2 else (0, 0)], np.int32)


def eager_rng(name: str, seed: int | None) -> BatchRng:
    """The generator of one eager call: inside a Python map keyed by the element, else by a seed or fresh entropy.

    With a seed, and in a row of a batch, the number of the row is part of the key.
    """
    at, place = ELEMENT.get(), _ROW.get()
    if at is not None:
        count = at.random_calls.get(name, 0)
        at.random_calls[name] = count + 1
        site = f"{name}@{seed}/eager{place}" if seed is not None else f"{name}#{count}/eager"
        return BatchRng(at.seed, at.epoch, np.array([at.key], np.uint64), hash64(site))
    call = eager_call() if seed is None else None
    entropy: Sequence[int] = np.random.SeedSequence().generate_state(2, np.uint64).tolist()
    if seed is not None:
        entropy = [seed & (1 << 64) - 1] * 2
    elif call is not None:
        entropy = call
    return BatchRng(entropy[0], 0, np.array(entropy[1:], np.uint64), hash64(name + place))
