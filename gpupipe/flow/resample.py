"""resample: elements kept by the class they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import FunctionError
from ..plan.scanning import acceptance
from ..random import hash64, mix64
from ..spec import spec_of
from .base import Context, Element, Flow, Hole, Stream, locate
from .elements import Wrapped
from .scanning import Question, asked
from .state import State, as_number, below, parts_of

__all__ = ["ResampleFlow"]


SMOOTHING = 10
"""Elements of each class that count as seen before the first, where a distribution is estimated (tf.data's number)."""


@dataclass(frozen=True, slots=True)
class ResampleFlow:
    """Elements kept with a probability that depends on their class, the class in front.

    Whether one is kept depends on (seed, epoch, identity), not on what came before, apart from an estimated
    distribution.

    Attributes:
        source: the input.
        classes: gives the class of an element.
        target: how often each class is wanted.
        initial: how often each one comes; None estimates it.
        site: which step of the chain it is.
        seeded: it has a seed of its own, which takes the place of the inputs of zips in an identity.
    """

    source: Flow
    classes: Question
    target: tuple[float, ...]
    initial: tuple[float, ...] | None
    site: str
    seeded: bool = False

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
        seeded = self.seeded
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
            key = stream.alike if seeded else stream.key
            if now[at_class] >= 1 or draws.uniform(mix64(key, position)) < now[at_class]:
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
