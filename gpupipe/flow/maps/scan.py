"""scan: scan and take_while, and `asked`, which calls a traced or a Python function for one value."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DataError, FunctionError, PlanError, PlanTypeError
from ...serial.columns import Cursor, add_column, read_column
from ...spec import Structure, TensorSpec, as_declared, as_leaf, flatten_like, own, spec_of
from ..bad.found import as_before, bad_element
from ..check import exact_cast, truth
from ..element import Element, Hole, locate
from ..run import Context, Flow, Run
from ..state.snapshot import Since, State, fast_forward, int_part, part
from ..step import Count, Running, close
from .host_program import HostProgram
from .python_function import Calls, PythonFunction, SameSpecs

__all__ = ["Question", "ScanFlow", "TakeWhileFlow", "asked", "next_state"]

Question = HostProgram | PythonFunction
"""A user's function that is asked about each element: traced, or plain Python."""


def asked(question: Question, at: Context, who: str, step: Any) -> Callable[[Element], Any]:
    """Return a function that computes the one value of a question of a step for an element, or a hole if that fails."""
    if isinstance(question, PythonFunction):
        call = Calls(question, at, step).run

        def answer(element: Element) -> Any:
            given = call(element)[0]
            if isinstance(given, Hole):
                return given
            if len(given) != 1:
                error = FunctionError(f"needs a function that returns one value, got {len(given)}")
                return bad_element(locate(error, element[1], element[2], who), element[1], element[2], step)[0]
            return given[0]

        return answer
    compute = question.compile(at)

    def compiled(element: Element) -> Any:
        try:
            return compute(*element)[0]
        except DataError as error:
            return bad_element(locate(error, element[1], element[2], who), element[1], element[2], step)[0]

    return compiled


@dataclass(frozen=True, slots=True)
class TakeWhileFlow:
    """The elements before the first for which the predicate is False. A hole does not end them."""

    source: Flow
    predicate: Question

    def open(self, at: Context, state: State = None) -> Running:
        ended = Count.of(state, "ended", 0)
        if ended.n:
            return Running(iter(()), ended=ended)
        inner = as_before(at, self, self.source.open(at, part(state)))
        items = self._taken(inner, asked(self.predicate, at, "take_while", self), ended, at.run)
        return Running(items, inner, ended=ended)

    def _taken(
        self, inner: Iterator[Element], ask: Callable[[Element], Any], ended: Count, run: Run
    ) -> Iterator[Element]:
        for element in inner:
            value, stream, position = element
            if type(value) is not tuple:
                run.need(element, "take_while")
                yield element
                continue
            answer = ask(element)
            if type(answer) is Hole:
                run.need((answer, stream, position), "take_while")
                yield answer, stream, position
                continue
            try:
                if not truth(answer, "take_while"):
                    break
            except DataError as error:
                bad = bad_element(locate(error, stream, position, "take_while"), stream, position, self)
                run.need(bad, "take_while")
                yield bad
                continue
            yield element
        ended.n = 1
        close(inner)  # steps that read ahead stop now, not when the pipeline ends


@dataclass(frozen=True, slots=True)
class ScanFlow:
    """Applies a function to a running state and each element. Every pass starts from the initial state.

    Attributes:
        function: the user's function; its `fn` is (state, element) -> (new state, output).
        leaves: of the initial state.
        structure: of the state.
        line: ``file:line`` where the user wrote the step.
    """

    source: Flow
    function: PythonFunction
    leaves: tuple[Any, ...]
    structure: Structure
    line: str

    def open(self, at: Context, state: State = None) -> Running:
        if isinstance(state, dict) and "n" in state:  # the running state was too large to save
            items: Running = _Scanned(self, at, None)
            fast_forward(items, int_part(state, "n"), at)
            return items
        return _Scanned(self, at, state)


class _Scanned(Running):
    def __init__(self, flow: ScanFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._inner = self.source = as_before(at, flow, flow.source.open(at, part(state)))
        self._run = at.run
        self._given = 0 if state is None else int_part(state, "given")
        self._state: Sequence[Any] = [own(leaf) for leaf in flow.leaves]
        if state is not None:
            self._state = leaves_from_json(state["state"], len(flow.leaves))
        self._specs = tuple(map(spec_of, flow.leaves))
        self._call = Calls(replace(flow.function, fn=self._step), at, flow).run
        self._check = SameSpecs(flow.function, flow, state)
        self._misuse: PlanError | None = None

    def __next__(self) -> Element:
        element = next(self._inner)
        self._given += 1
        if type(element[0]) is not tuple:
            self._run.need(element, "scan")
            return element
        made = self._call(element)
        if self._misuse is not None:
            close(self._inner)
            raise self._misuse
        if type(made[0]) is Hole:
            self._run.need(made, "scan")
        return self._check(made)

    def _step(self, *arguments: Any) -> Any:
        """Call the user's function with the state and the element, which is not unpacked; keep the new state."""
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
        """The input's state and the running state; if that is large, a number of elements to replay instead."""
        leaves = leaves_to_json(self._state)
        if leaves is None:
            return {"n": self._given, "bad": Since(0)}
        first = self._check.snapshot()
        return {"source": self._inner.snapshot(), "given": self._given, "state": leaves, "first": first}


LARGEST = 4096
"""Bytes of a running state that a `state_dict` holds at most."""


def leaves_to_json(leaves: Sequence[Any]) -> State:
    """Encode leaves as base64 text; None if they are large or of a type that cannot be saved."""
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
    """Decode what `leaves_to_json` returned."""
    cursor = Cursor(memoryview(base64.b64decode(state, validate=True)))
    return [read_column(cursor) for _ in range(count)]


def next_state(who: str, value: Any, structure: Structure, specs: Sequence[TensorSpec]) -> list[Any]:
    """Return the leaves of a new state, checked against the first: structure and dtypes stay, shapes may change.

    A Python int takes the dtype of a numeric state if it is exact there, a Python float that of a float state. A float
    that happens to be whole does not become an integer: whether a chain works must not depend on the data.

    Raises:
        PlanError: another structure.
        PlanTypeError: another dtype.
    """
    parts = flatten_like(value, structure)
    if parts is None or any(isinstance(part, tuple) for part in parts):
        raise PlanError(f"{who} needs a new state nested like the initial one, {structure}, got {value!r}"[:300])
    leaves = []
    for given, spec, name in zip(parts, specs, structure.leaf_names(), strict=True):
        leaf = as_declared(given, spec)
        found = spec_of(leaf)
        if found.dtype != spec.dtype:
            numeric = type(given) is int and isinstance(spec.dtype, np.dtype) and spec.dtype.kind in "iuf"
            fitted = exact_cast(leaf, TensorSpec((), spec.dtype)) if numeric else None
            if fitted is None:
                raise PlanTypeError(
                    f"{who} needs a new state of the initial dtype, {TensorSpec((), spec.dtype)}"
                    f"{f' for {name}' if name else ''}, got {found}; convert it, or start with that dtype"
                )
            leaf = fitted
        leaves.append(leaf)
    return leaves
