"""scanning: flows that go through their input element by element and keep a state, a count, or what they saw."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import DataError, FunctionError, PlanError, PlanTypeError
from ..extract.columns import Cursor, add_column, read_column
from ..extract.element_json import Malformed, spec_from_json, spec_to_json
from ..plan.node import INFINITE
from ..plan.scanning import acceptance
from ..ragged import Ragged, RaggedSpec
from ..random import hash64, mix64
from ..spec import Structure, TensorSpec, as_declared, as_leaf, byte_array, flatten_like, own, spec_of
from .base import Context, Element, Flow, Hole, Stream, locate
from .elements import Cell, Wrapped, close, counts
from .host import HostProgram, truth
from .python_map import Calls, PythonFunction, SameSpecs
from .sources import exact_cast
from .state import State, as_number, below, damaged, drop, number, parts_of, replayed_input, snapshot
from .windows import sifted

__all__ = [
    "AssertCardinalityFlow",
    "IgnoreErrorsFlow",
    "PadToCardinalityFlow",
    "Question",
    "ResampleFlow",
    "ScanFlow",
    "TakeWhileFlow",
    "UniqueFlow",
    "next_state",
]

Question = HostProgram | PythonFunction
"""What is asked of each element: a traced function of its columns, or ordinary Python."""


def asked(question: Question, at: Context, who: str) -> Callable[[Element], Any]:
    """A function that answers for one element: the one value, or a hole where the function failed or gave several."""
    if isinstance(question, PythonFunction):
        call = Calls(question, at).run

        def answer(element: Element) -> Any:
            given = call(element)[0]
            if isinstance(given, Hole):
                return given
            if len(given) != 1:
                error = FunctionError(f"needs a function that returns one value, got {len(given)}")
                return Hole(locate(error, element[1], element[2], who))
            return given[0]

        return answer
    compute = question.compile(at)

    def compiled(element: Element) -> Any:
        try:
            return compute(*element)[0]
        except DataError as error:
            return Hole(locate(error, element[1], element[2], who))

    return compiled


@dataclass(frozen=True, slots=True)
class TakeWhileFlow:
    """The elements before the first whose predicate does not hold. Holes do not end it."""

    source: Flow
    predicate: Question

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        ended = Cell.of(state, "ended", 0)
        if ended.n:
            return Wrapped(iter(()), None, lambda: {"ended": 1})
        inner = self.source.open(at, below(state))
        items = self._taken(inner, asked(self.predicate, at, "take_while"), ended)
        return Wrapped(items, inner, lambda: {"ended": ended.n})

    def _taken(self, inner: Iterator[Element], ask: Callable[[Element], Any], ended: Cell) -> Iterator[Element]:
        for element in inner:
            value, stream, position = element
            answer = value if type(value) is Hole else ask(element)
            if type(answer) is Hole:
                yield element if answer is value else (answer, stream, position)
                continue
            try:
                if not truth(answer, "take_while"):
                    break
            except DataError as error:
                yield Hole(locate(error, stream, position, "take_while")), stream, position
                continue
            yield element
        ended.n = 1
        close(inner)  # what reads ahead stops now, not when the pipeline ends


@dataclass(frozen=True, slots=True)
class ScanFlow:
    """A function of a running state and each element. The state begins anew in every pass.

    Attributes:
        function: calls the user's function; its `fn` is (state, element) -> (new state, output).
        leaves: of the initial state.
        structure: of the state.
        line: where the user wrote it.
    """

    source: Flow
    function: PythonFunction
    leaves: tuple[Any, ...]
    structure: Structure
    line: str

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        if isinstance(state, dict) and "n" in state:  # a state too large to be written down
            items = _Scanned(self, at, None)
            drop(items, number(state, "n"), at)
            return items
        return _Scanned(self, at, state)


class _Scanned:
    def __init__(self, flow: ScanFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._inner = flow.source.open(at, below(state))
        self._given = 0 if state is None else number(state, "given")
        self._state: Sequence[Any] = [own(leaf) for leaf in flow.leaves]
        if state is not None:
            self._state = leaves_from_json(below(state, "state"), len(flow.leaves))
        self._specs = tuple(map(spec_of, flow.leaves))
        self._call = Calls(replace(flow.function, fn=self._step), at).run
        self._check = SameSpecs(flow.function, state)
        self._misuse: PlanError | None = None

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        element = next(self._inner)
        self._given += 1
        if type(element[0]) is Hole:
            return element
        made = self._call(element)
        if self._misuse is not None:
            close(self._inner)
            raise self._misuse
        return self._check(made)

    def _step(self, *arguments: Any) -> Any:
        """What the element's function is: the user's, with the state and the element as it is, not unpacked."""
        flow = self._flow
        element = arguments if flow.function.structure.kind is tuple else arguments[0]
        result = flow.function.fn(flow.structure.unflatten(self._state), element)
        try:
            if not isinstance(result, (tuple, list)) or len(result) != 2 or result[1] is None:
                got = f"{len(result)} values" if isinstance(result, (tuple, list)) else type(result).__name__
                got = "None as the output" if isinstance(result, (tuple, list)) and len(result) == 2 else got
                raise PlanTypeError(f"scan needs a function that returns (new state, output), got {got}")
            state = next_state("scan", result[0], flow.structure, self._specs)
        except PlanError as error:
            self._misuse = type(error)(f"{error} (in the scan at {flow.line})")
            raise
        output = as_leaf(result[1]) if type(result[1]) is list else result[1]
        self._state = state
        return output

    def snapshot(self) -> State:
        """Where the input stands, and the running state; a large one is made again by going through all elements."""
        leaves = leaves_to_json(self._state)
        if leaves is None:
            return {"n": self._given}
        first = self._check.snapshot()
        return {"source": snapshot(self._inner), "given": self._given, "state": leaves, "first": first}

    def close(self) -> None:
        """Close the input."""
        close(self._inner)


LARGEST = 4096
"""Bytes of a running state that a `state_dict` holds."""


def leaves_to_json(leaves: Sequence[Any]) -> State:
    """Leaves as text; None where they are large, or nothing that files hold."""
    out: list[Any] = []
    try:
        for leaf in leaves:
            add_column(leaf, out)
    except PlanError:
        return None
    if sum(memoryview(part).nbytes for part in out) > LARGEST:
        return None
    return base64.b64encode(b"".join(out)).decode()


def leaves_from_json(state: State, count: int) -> list[Any]:
    """Read them back.

    Raises:
        StateError: these are no leaves, or not as many.
    """
    if not isinstance(state, str) or len(state) > 2 * LARGEST:
        raise damaged()
    try:
        cursor = Cursor(memoryview(base64.b64decode(state.encode("ascii"), validate=True)))
        leaves = [read_column(cursor) for _ in range(count)]
        if cursor.left:
            raise damaged()
    except (ValueError, Malformed) as error:
        raise damaged() from error
    return leaves


def next_state(who: str, value: Any, structure: Structure, specs: Sequence[TensorSpec]) -> list[Any]:
    """The leaves of a new state, checked against the first: structure and dtypes stay, shapes may change.

    A Python integer takes the dtype of a state of numbers if it fits it exactly, a Python float that of one of floats.
    That a float happens to be whole makes no integer of it: what works must not depend on the data.

    Raises:
        PlanError: another structure.
        PlanTypeError: another dtype.
    """
    parts = flatten_like(value, structure)
    if parts is None or any(isinstance(part, tuple) for part in parts):
        raise PlanError(f"{who} needs a new state nested like the initial one, {structure}, got {value!r}"[:300])
    leaves = []
    for part, spec, name in zip(parts, specs, structure.leaf_names(), strict=True):
        leaf = as_declared(part, spec)
        found = spec_of(leaf)
        if found.dtype != spec.dtype:
            number = type(part) is int and isinstance(spec.dtype, np.dtype) and spec.dtype.kind in "iuf"
            fitted = exact_cast(leaf, TensorSpec((), spec.dtype)) if number else None
            if fitted is None:
                raise PlanTypeError(
                    f"{who} needs a new state of the initial dtype, {TensorSpec((), spec.dtype)}"
                    f"{f' for {name}' if name else ''}, got {found}; convert it, or begin with that dtype"
                )
            leaf = fitted
        leaves.append(leaf)
    return leaves


@dataclass(frozen=True, slots=True)
class UniqueFlow:
    """The first occurrence of each value. Remembers 16 bytes, or the value itself, for each."""

    source: Flow

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        # What was seen may be large: it is gathered again by going through the elements.
        def items(begin: State) -> Iterator[Element]:
            inner = self.source.open(at, below(begin))
            return Wrapped(self._first(inner, at), inner)

        return replayed_input(items, at, state)

    def _first(self, inner: Iterator[Element], at: Context) -> Iterator[Element]:
        seen: set[Any] = set()
        for element in inner:
            if at.run.stopped.is_set():
                return
            value, stream, position = element
            if type(value) is not Hole:
                try:
                    known = identity_of(value[0])
                except DataError as error:
                    yield Hole(locate(error, stream, position, "unique")), stream, position
                    continue
                if known in seen:
                    continue
                seen.add(known)
            yield element


def identity_of(leaf: Any) -> Any:
    """Something small and hashable, equal for leaves of equal dtype, shape and values. Every NaN equals every other."""
    if isinstance(leaf, memoryview):
        leaf = bytes(leaf)
    if isinstance(leaf, bytes):
        return leaf if len(leaf) <= 32 else (len(leaf), _digest(leaf))
    if not isinstance(leaf, (np.ndarray, np.generic)):
        raise DataError(f"needs numbers, arrays or bytes, got {type(leaf).__name__}")
    array = np.asarray(leaf)
    if array.dtype == object:
        return array.shape, tuple(array.ravel().tolist())
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array + array.dtype.type(0))  # -0.0 is 0.0
    if array.ndim == 0:
        number = array.item()
        return "nan" if number != number else number
    return array.dtype.str, array.shape, _digest(np.ascontiguousarray(array).tobytes())


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class IgnoreErrorsFlow:
    """The elements that are no holes. Those left out are counted and logged.

    Attributes:
        log: log every one of them.
    """

    source: Flow
    log: bool = False

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        inner = self.source.open(at, below(state))
        return Wrapped(self._good(inner, at), inner)

    def _good(self, inner: Iterator[Element], at: Context) -> Iterator[Element]:
        for element in inner:
            if at.run.stopped.is_set():
                return
            value = element[0]
            if type(value) is Hole:
                at.run.leave_out(element, "left out", self.log)
            else:
                yield element


@dataclass(frozen=True, slots=True)
class AssertCardinalityFlow:
    """The same elements, and behind them an error where there are not as many as were promised.

    The error is raised whatever `on_error` says: it is the chain that is wrong, not an element. Bad elements that are
    skipped leave here and do not count; one that is raised, and a stand-in, is one of those that were promised.
    """

    source: Flow
    count: int

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        seen, told = Cell.of(state, "seen", 0), Cell.of(state, "told", 0)
        if told.n:
            return Wrapped(iter(()), None, lambda: {"seen": seen.n, "told": 1})
        inner = self.source.open(at, below(state))
        return Wrapped(self._checked(inner, at, seen, told), inner, lambda: {"seen": seen.n, "told": told.n})

    def _checked(self, inner: Iterator[Element], at: Context, seen: Cell, told: Cell) -> Iterator[Element]:
        for element in sifted(inner, at.run) if at.run.settings.on_error == "skip" else inner:
            if counts(element):
                if seen.n == self.count:
                    close(inner)
                    told.n = 1
                    yield self._wrong(f"at least {seen.n + 1}", at)
                    return
                seen.n += 1
            yield element
        if seen.n != self.count and not at.run.stopped.is_set():
            told.n = 1
            yield self._wrong(f"only {seen.n}", at)

    def _wrong(self, found: str, at: Context) -> Element:
        wanted = "an infinite number of" if self.count == INFINITE else str(self.count)
        stream = Stream(at.key, "assert_cardinality")
        hole = Hole(DataError(f"was promised {wanted} elements, got {found}", stage="assert_cardinality"))
        hole.raised = True
        return hole, stream, 0


@dataclass(frozen=True, slots=True)
class PadToCardinalityFlow:
    """Every element with a True behind its columns, then elements of zeros with a False, up to `count`.

    As many as that leave here, so bad elements are settled here: one that is raised or skipped is not counted, and
    zeros fill up for it; under "replace" the last good element stands in.

    Attributes:
        specs: of the input. A dimension that is unknown is as large as in the last good element, 0 if there was none.
    """

    source: Flow
    count: int
    specs: tuple[TensorSpec, ...]

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        # Under "replace" the last good element may be needed, which no state holds.
        if at.run.settings.on_error == "replace":
            return replayed_input(lambda begin: _Padded(self, at, begin), at, state)
        return _Padded(self, at, state)


class _Padded(Iterator[Element]):
    def __init__(self, flow: PadToCardinalityFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._inner = flow.source.open(at, below(state))
        self._seen = self._fakes = 0
        self._told = False
        self._last: tuple[TensorSpec, ...] | None = None
        self._value: Any = None
        if state is not None:
            self._seen, self._fakes = number(state, "seen"), number(state, "fakes")
            self._told = bool(below(state, "told"))
            last = below(state, "last")
            try:
                self._last = None if last is None else tuple(map(spec_from_json, last))
            except (Malformed, TypeError) as error:
                raise damaged() from error
        self._items = self._padded(self._inner, at)

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __next__(self) -> Element:
        return next(self._items)

    def snapshot(self) -> State:
        """Where the input stands, what was counted, and the type of the last good element."""
        specs = self._specs()
        last = None if specs is None else [spec_to_json(spec) for spec in specs]
        return {
            "source": snapshot(self._inner),
            "seen": self._seen,
            "fakes": self._fakes,
            "told": self._told,
            "last": last,
        }

    def close(self) -> None:
        """Close the input."""
        close(self._inner)

    def _specs(self) -> tuple[TensorSpec, ...] | None:
        """The type of the last good element."""
        return self._last if self._value is None else tuple(map(spec_of, self._value))

    def _padded(self, inner: Iterator[Element], at: Context) -> Iterator[Element]:
        flow = self._flow
        real, fake = np.True_, np.False_
        stream = Stream(mix64(at.key, hash64("pad_to_cardinality")), "pad_to_cardinality")
        last = None
        for element in sifted(inner, at.run) if not self._fakes and not self._told else ():
            value, source, position = element
            if not counts(element):
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
        if self._told or self._seen == flow.count or at.run.stopped.is_set():
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
        hole = Hole(DataError(text, stage="pad_to_cardinality"))
        hole.raised = True
        return hole, stream, 0


def _filled(spec: TensorSpec, last: TensorSpec) -> TensorSpec:
    """A spec with the gaps filled from that of an element."""
    if type(last) is not TensorSpec:
        return last
    shape = last.shape if spec.shape is None or last.rank != spec.rank else spec.shape
    if shape is not None and last.shape is not None:
        shape = tuple(m if n is None else n for n, m in zip(shape, last.shape, strict=True))
    return TensorSpec(shape, spec.dtype if spec.dtype is not None else last.dtype)


def zero(spec: TensorSpec) -> Any:
    """The zeros of a spec: 0, False or b"" in every place. A dimension that is not known has none.

    Raises:
        DataError: the dtype or the rank is not known.
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
    """A `Ragged` of as many rows, all of them empty."""
    rank, splits = spec.ragged_rank, spec.row_splits_dtype
    values: Any = np.zeros((0, *(n or 0 for n in shape[1 + rank :])), object if dtype is bytes else dtype)
    for _ in range(rank - 1):
        values = Ragged(values, np.zeros(1, splits))
    return Ragged(values, np.zeros((shape[0] or 0) + 1, splits))


SMOOTHING = 10
"""Elements of each class that count as seen before the first, where a distribution is estimated (tf.data's number)."""


@dataclass(frozen=True, slots=True)
class ResampleFlow:
    """Elements kept with a probability that depends on their class, the class in front.

    Whether one is kept depends on (seed, epoch, identity), not on what came before, apart from an estimated
    distribution.
    """

    source: Flow
    classes: Question
    target: tuple[float, ...]
    initial: tuple[float, ...] | None
    site: str

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        inner = self.source.open(at, below(state))
        seen = [SMOOTHING] * len(self.target)
        if state is not None:
            counted = parts_of(state, "seen", len(seen))
            seen = [as_number(count, "seen") for count in counted]
        ask = asked(self.classes, at, "rejection_resample")
        return Wrapped(self._kept(inner, ask, at, seen), inner, lambda: {"seen": seen.copy()})

    def _kept(
        self, inner: Iterator[Element], ask: Callable[[Element], Any], at: Context, seen: list[int]
    ) -> Iterator[Element]:
        chances = None if self.initial is None else acceptance(self.target, self.initial)
        draws = _Draws(at, self.site)
        for element in inner:
            value, stream, position = element
            if at.run.stopped.is_set():
                return
            if isinstance(value, Hole):
                yield element
                continue
            answer = self._class(ask(element), stream, position)
            if isinstance(answer, Hole):
                yield answer, stream, position
                continue
            at_class = int(answer)
            now = chances
            if now is None:
                seen[at_class] += 1
                now = acceptance(self.target, seen)
            if now[at_class] >= 1 or draws.uniform(mix64(stream.key, position)) < now[at_class]:
                yield (answer, *value), stream, position

    def _class(self, answer: Any, stream: Stream, position: int) -> Any:
        """The class as a NumPy integer, or a hole."""
        if isinstance(answer, Hole):
            return answer
        kind = getattr(answer, "dtype", None)
        if kind is None or kind.kind not in "iu" or answer.shape != ():
            got = spec_of(answer) if kind is not None else type(answer).__name__
            error = FunctionError(f"needs a class that is one integer, got {got}")
        elif not 0 <= answer < len(self.target):
            error = FunctionError(f"needs a class from 0 to {len(self.target) - 1}, got {answer}")
        else:
            return answer[()]
        return Hole(locate(error, stream, position, "rejection_resample"))


class _Draws:
    """One number per element, by its key: what `BatchRng` draws for it in a batch, without arrays of one."""

    def __init__(self, at: Context, site: str) -> None:
        seed, epoch = at.run.settings.seed, at.epoch
        self._site = hash64(site) & 0xFFFF_FFFF
        self._key = (
            (seed ^ (seed >> 32) * 0x85EB_CA6B) & 0xFFFF_FFFF,
            (epoch ^ (epoch >> 32) * 0xC2B2_AE35) & 0xFFFF_FFFF,
        )

    def uniform(self, key: int) -> float:
        """A number in [0, 1): the first word of Philox4x32-10."""
        c0, c1, c2, c3 = key & 0xFFFF_FFFF, key >> 32, self._site, 0
        k0, k1 = self._key
        for _ in range(10):
            a, b = c0 * 0xD251_1F53, c2 * 0xCD9E_8D57
            c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & 0xFFFF_FFFF, (a >> 32) ^ c3 ^ k1, a & 0xFFFF_FFFF
            k0, k1 = (k0 + 0x9E37_79B9) & 0xFFFF_FFFF, (k1 + 0xBB67_AE85) & 0xFFFF_FFFF
        return c0 / 2.0**32
