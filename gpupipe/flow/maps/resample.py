"""resample: elements kept with a probability that depends on their class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...classes import dataclass
from ...errors import FunctionError
from ...plan.maps import acceptance
from ...random import hash64, mix64, one_word, philox_key
from ...spec import spec_of
from ..bad.found import as_before, bad_element
from ..element import Element, Hole, Stream, locate
from ..run import Context, Flow
from ..state.snapshot import State, part
from ..step import Running
from .scan import Question, asked

__all__ = ["ResampleFlow"]

SMOOTHING = 10
"""Elements of each class that count as seen at the start when the distribution is estimated (tf.data's number)."""


@dataclass(frozen=True, slots=True)
class ResampleFlow:
    """Keeps elements with a probability that depends on their class, and puts the class before their columns.

    Whether an element is kept depends on (seed, epoch, identity), not on earlier elements, unless the distribution is
    estimated.

    Attributes:
        source: the input.
        classes: computes the class of an element.
        target: the wanted probability of each class.
        initial: the probability of each class in the input; None estimates it.
        site: identifies this step of the chain.
        seeded: the step has a seed of its own, so which input of a zip it is in does not matter.
    """

    source: Flow
    classes: Question
    target: tuple[float, ...]
    initial: tuple[float, ...] | None
    site: str
    seeded: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        inner = as_before(at, self, self.source.open(at, part(state)))
        seen = [SMOOTHING] * len(self.target) if state is None else list(state["seen"])
        ask = asked(self.classes, at, "rejection_resample", self)
        return _Resampled(self._kept(inner, ask, at, seen), inner, seen)

    def _kept(
        self, inner: Iterator[Element], ask: Callable[[Element], Any], at: Context, seen: list[int]
    ) -> Iterator[Element]:
        chances = None if self.initial is None else acceptance(self.target, self.initial)
        random, site = philox_key(at.run.settings.seed, at.epoch), hash64(self.site)
        seeded = self.seeded
        for element in inner:
            value, stream, position = element
            if at.run.stopped.on:
                return
            if type(value) is not tuple:
                at.run.need(element, "rejection_resample")
                yield element
                continue
            answer = self._class(ask(element), stream, position)
            if isinstance(answer, Hole):
                at.run.need((answer, stream, position), "rejection_resample")
                yield answer, stream, position
                continue
            at_class = int(answer)
            now = chances
            if now is None:
                seen[at_class] += 1
                now = acceptance(self.target, seen)
            key = stream.alike if seeded else stream.key
            if now[at_class] >= 1 or one_word(random, mix64(key, position), site) / 2.0**32 < now[at_class]:
                yield (answer, *value), stream, position

    def _class(self, answer: Any, stream: Stream, position: int) -> Any:
        """Check an answer; return the class as a NumPy integer, or a hole."""
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
        return bad_element(locate(error, stream, position, "rejection_resample"), stream, position, self)[0]


class _Resampled(Running):
    def __init__(self, items: Iterator[Element], source: Running, seen: list[int]) -> None:
        super().__init__(items, source)
        self._seen = seen

    def own(self) -> dict[str, State]:
        """The number of elements of each class so far."""
        return {"seen": self._seen.copy()}
