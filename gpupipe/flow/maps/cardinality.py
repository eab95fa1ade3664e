"""cardinality: steps that check a promised number of elements, or pad to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DataError
from ...plan.node import INFINITE
from ...ragged import Ragged, RaggedSpec
from ...serial.structures import spec_from_json, spec_to_json
from ...spec import TensorSpec, byte_array, own, spec_of
from ..element import Element, Raised, Stream, is_element
from ..run import Context, Flow
from ..state.snapshot import State, int_part, part, replayed
from ..step import Count, Running, close

__all__ = ["AssertCardinalityFlow", "PadToCardinalityFlow", "zero"]


@dataclass(frozen=True, slots=True)
class AssertCardinalityFlow:
    """Passes elements on, and ends with an error if there are not as many as promised.

    The error is raised whatever `on_error` says: the chain is wrong, not an element. Bad elements that are skipped
    leave here and do not count; those that are raised or replaced do.
    """

    source: Flow
    count: int

    def open(self, at: Context, state: State = None) -> Running:
        seen = Count(0 if state is None else int_part(state, "seen", self.count))
        told = Count.of(state, "told", 0)
        if told.n:
            return Running(iter(()), seen=seen, told=told)
        inner = self.source.open(at, part(state))
        return Running(self._checked(inner, at, seen, told), inner, seen=seen, told=told)

    def _checked(self, inner: Iterator[Element], at: Context, seen: Count, told: Count) -> Iterator[Element]:
        for element in at.run.policy().sifted(inner) if at.run.settings.on_error == "skip" else inner:
            if is_element(element):
                if seen.n == self.count:
                    close(inner)
                    told.n = 1
                    yield self._wrong(f"at least {seen.n + 1}", at)
                    return
                seen.n += 1
            yield element
        if seen.n != self.count and not at.run.stopped.on:
            told.n = 1
            yield self._wrong(f"only {seen.n}", at)

    def _wrong(self, found: str, at: Context) -> Element:
        wanted = "an infinite number of" if self.count == INFINITE else str(self.count)
        stream = at.keyed(int, "assert_cardinality")
        return Raised(DataError(f"was promised {wanted} elements, got {found}", stage="assert_cardinality")), stream, 0


@dataclass(frozen=True, slots=True)
class PadToCardinalityFlow:
    """Appends a True to the columns of each element, then gives elements of zeros with a False, up to `count`.

    The number of elements is exact, so `on_error` is applied here: an element that is raised or skipped does not
    count, and zeros make up for it; under "replace" the last good element is repeated.

    Attributes:
        specs: of the input. An unknown dimension is as large as in the last good element, 0 if there was none.
    """

    source: Flow
    count: int
    specs: tuple[TensorSpec, ...]

    def open(self, at: Context, state: State = None) -> Running:
        # Under "replace" the last good element may be needed, which no state holds.
        if at.run.settings.on_error == "replace":
            return replayed(lambda: _Padded(self, at, None), at, state)
        return _Padded(self, at, state)


class _Padded(Running):
    def __init__(self, flow: PadToCardinalityFlow, at: Context, state: State) -> None:
        self._flow = flow
        inner = self.source = flow.source.open(at, part(state))
        self._seen = self._fakes = 0
        self._told = False
        self._last: tuple[TensorSpec, ...] | None = None
        self._value: Any = None
        if state is not None:
            self._seen, self._fakes = int_part(state, "seen", flow.count), int_part(state, "fakes", flow.count)
            self._told = bool(state["told"])
            last = state["last"]
            self._last = None if last is None else tuple(map(spec_from_json, last))
        self.items = self._padded(inner, at)

    def own(self) -> dict[str, State]:
        """The counts, and the type of the last good element."""
        specs = self._specs()
        last = None if specs is None else [spec_to_json(spec) for spec in specs]
        return {"seen": self._seen, "fakes": self._fakes, "told": self._told, "last": last}

    def _specs(self) -> tuple[TensorSpec, ...] | None:
        return self._last if self._value is None else tuple(map(spec_of, self._value))

    def _padded(self, inner: Iterator[Element], at: Context) -> Iterator[Element]:
        flow = self._flow
        real, fake = np.True_, np.False_
        stream = at.stream("pad_to_cardinality", "pad_to_cardinality")
        last = None
        for element in at.run.policy().sifted(inner) if not self._fakes and not self._told else ():
            value, source, position = element
            if not is_element(element):
                yield element
                continue
            if self._seen == flow.count:
                close(inner)
                self._told = True
                seen = self._seen
                yield self._failed(f"needs at most {seen} elements, got at least {seen + 1}", stream)
                return
            self._seen += 1
            shared, last = value is last, value
            self._value = value
            yield (*(map(own, value) if shared else value), real), source, position
        if self._told or self._seen == flow.count or at.run.stopped.on:
            return
        try:
            last = self._specs()
            specs = flow.specs if last is None else last
            zeros = tuple(map(zero, map(_filled, flow.specs, specs)))
        except DataError as error:
            self._told = True
            yield self._failed(error.reason, stream)
            return
        while self._seen + self._fakes < flow.count:
            self._fakes += 1
            yield (*map(own, zeros), fake), stream, self._seen + self._fakes - 1

    def _failed(self, text: str, stream: Stream) -> Element:
        return Raised(DataError(text, stage="pad_to_cardinality")), stream, 0


def _filled(spec: TensorSpec, last: TensorSpec) -> TensorSpec:
    """Fill the unknown parts of a spec from that of an element."""
    if type(last) is not TensorSpec:
        return last
    shape = last.shape if spec.shape is None or last.rank != spec.rank else spec.shape
    if shape is not None and last.shape is not None:
        shape = tuple(m if n is None else n for n, m in zip(shape, last.shape, strict=True))
    return TensorSpec(shape, spec.dtype if spec.dtype is not None else last.dtype)


def zero(spec: TensorSpec) -> Any:
    """Return the zeros of a spec: 0, False or b"" everywhere. An unknown dimension has size 0.

    Raises:
        DataError: the dtype or the rank is unknown.
    """
    if isinstance(spec, RaggedSpec) and spec.shape is not None and spec.dtype is not None:
        return _no_values(spec, spec.shape, spec.dtype)
    if spec.dtype is None or spec.shape is None or type(spec) is not TensorSpec:
        raise DataError(f"needs elements whose dtype and rank are known to make zeros like them, got {spec}")
    shape = tuple(n or 0 for n in spec.shape)
    if spec.dtype is bytes:
        return byte_array([b""] * int(np.prod(shape))).reshape(shape) if shape else b""
    zeros = np.zeros(shape, spec.dtype)
    return zeros if shape else zeros[()]


def _no_values(spec: RaggedSpec, shape: Sequence[int | None], dtype: Any) -> Ragged:
    """Return a `Ragged` whose rows are all empty."""
    rank, splits = spec.ragged_rank, spec.row_splits_dtype
    values: Any = np.zeros((0, *(n or 0 for n in shape[1 + rank :])), object if dtype is bytes else dtype)
    for _ in range(rank - 1):
        values = Ragged(values, np.zeros(1, splits))
    return Ragged(values, np.zeros((shape[0] or 0) + 1, splits))
