"""Random chains, and what they mean in plain Python: one description, run by gpupipe, by tf.data and by generators.

Elements are integers, or batches of them. Where a step may fail, the model follows the law of holes: a hole keeps its
place and counts like an element until a batch or the delivery decides what becomes of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gpupipe import Dataset, ops
from gpupipe.ops._shared.samples import encoded
from tests.behaviour.model import interleaved, outcomes

Op = tuple[Any, ...]
Program = tuple[int, tuple[Op, ...]]

_SMALL = st.integers(-1, 6)
_ANYWHERE: list[st.SearchStrategy[Op]] = [
    st.tuples(st.just("take"), _SMALL),
    st.tuples(st.just("skip"), _SMALL),
    st.tuples(st.just("repeat"), st.integers(0, 2)),
    st.integers(1, 3).flatmap(lambda n: st.tuples(st.just("shard"), st.just(n), st.integers(0, n - 1))),
    st.tuples(st.just("prefetch"), st.integers(-1, 2)),
    st.just(("cache",)),
]
_SINGLE = [
    *_ANYWHERE,
    st.tuples(st.just("add"), st.integers(1, 3)),
    st.tuples(st.just("python"), st.integers(1, 3), st.sampled_from([0, 2])),
    st.tuples(st.just("filter"), st.integers(2, 3)),
    st.tuples(st.just("python filter"), st.integers(2, 3)),
    st.tuples(st.just("zip"), st.integers(0, 9)),
    st.tuples(st.just("concatenate"), st.integers(0, 4)),
    st.tuples(st.just("enumerate"), st.integers(-1, 1)),
    st.just(("flat_map",)),
    st.tuples(st.just("interleave"), st.integers(1, 3), st.integers(1, 2)),
    st.tuples(st.just("batch"), st.integers(1, 4), st.booleans()),
]
_BATCHES = [
    *_ANYWHERE,
    st.just(("unbatch",)),
    st.just(("unbatch",)),
    st.just(("twice",)),
    st.tuples(st.just("add"), st.integers(1, 3)),
]
_FAILING_NUMBERS = [
    st.integers(2, 4).flatmap(lambda m: st.tuples(st.just("fail"), st.just(m), st.integers(0, m - 1))),
    st.integers(2, 5).flatmap(lambda m: st.tuples(st.just("filter fails"), st.just(m), st.integers(0, m - 1))),
]
# A number as a picture and back. `batch(n).map(decode)` means `map(decode).batch(n)`: a batch is filled up from what
# follows. A batch that is there already, in a cache, cannot be. Pictures are damaged in the header or behind it.
_DAMAGE = st.tuples(st.sampled_from(["none", "header", "body"]), st.integers(2, 4), st.integers(0, 3))
_PICTURES = [
    st.tuples(st.just("picture"), _DAMAGE),
    st.tuples(st.sampled_from(["picture batch", "batch of pictures"]), st.integers(1, 4), st.booleans(), _DAMAGE),
    st.tuples(st.just("cached batch"), st.integers(1, 4), st.booleans(), _DAMAGE),
]
_FAILING_BATCHES = [st.tuples(st.just("batch fails"), st.integers(0, 2))]
_EVEN = [
    st.integers(1, 3).flatmap(
        lambda n: st.tuples(st.just("even shard"), st.just(n), st.integers(0, n - 1), st.sampled_from(["drop", "wrap"]))
    )
]


@st.composite
def programs(
    draw: st.DrawFn, failing: bool = False, most: int = 7, pictures: bool = False, even: bool = False
) -> Program:
    """A source of up to 9 numbers and up to `most` steps; with `failing`, steps that raise for some elements."""
    ops: list[Op] = []
    batched = False
    for _ in range(draw(st.integers(1, most))):
        choices = list(_BATCHES if batched else _SINGLE)
        if failing:
            choices += _FAILING_BATCHES if batched else _FAILING_NUMBERS * 2
        if even:
            choices += _EVEN * 4
        if pictures and not batched:
            choices += _PICTURES * 4
        op = draw(st.one_of(choices))
        batched = batched != (op[0] in ("batch", "unbatch", "picture batch", "batch of pictures", "cached batch"))
        ops.append(op)
    return draw(st.integers(0, 9)), tuple(ops)


# ---- as plain Python


class Hole:
    """An element that failed. It counts like one until it is `raised`."""

    def __init__(self, raised: bool = False) -> None:
        self.raised = raised


Stream = Callable[[], Iterator[Any]]


def _again(make: Callable[..., Iterator[Any]]) -> Callable[..., Stream]:
    """What makes an iterator, as something that makes what can be gone through again."""
    return lambda *given: lambda: make(*given)


def model(program: Program, on_error: str = "raise") -> list[Any]:
    """What every `next` gives; "error" where it raises."""
    count, ops = program
    stream: Stream = lambda: iter(range(count))  # noqa: E731
    for op in ops:
        stream = _step(stream, op, on_error)
    return ["error" if isinstance(item, Hole) else item for item in _decided(stream(), on_error)]


def _decided(items: Iterator[Any], on_error: str) -> Iterator[Any]:
    """Elements, those that stand in for holes, and the holes that are raised."""
    last, early = None, 0
    for item in items:
        if not isinstance(item, Hole):
            yield from [item] * (1 + early)
            last, early = item, 0
        elif item.raised or on_error == "raise":
            yield Hole(raised=True)
        elif on_error == "replace" and last is None:
            early += 1
        elif on_error == "replace":
            yield last


def _counts(item: Any) -> bool:
    return not isinstance(item, Hole) or not item.raised


@_again
def _each(source: Stream, fn: Callable[[Any], Any]) -> Iterator[Any]:
    for item in source():
        try:
            yield item if isinstance(item, Hole) else fn(item)
        except ZeroDivisionError:
            yield Hole()


@_again
def _kept(source: Stream, keep: Callable[[Any], bool]) -> Iterator[Any]:
    for item in source():
        try:
            if isinstance(item, Hole) or keep(item):
                yield item
        except ZeroDivisionError:
            yield Hole()


@_again
def _slice(source: Stream, chosen: Callable[[int], bool], end: int | None = None) -> Iterator[Any]:
    """The elements whose number is chosen; errors on their way to the user pass. Stops asking after `end` elements."""
    number = 0
    if end == 0:
        return
    for item in source():
        if not _counts(item):
            yield item
            continue
        if chosen(number):
            yield item
        number += 1
        if number == end:
            return


@_again
def _even(source: Stream, shards: int, index: int, wrap: bool) -> Iterator[Any]:
    """Equally many elements for every index; an error on its way to the user overtakes one that waits for its round."""
    elements: list[Any] = []
    for item in source():
        if not _counts(item):
            yield item
            continue
        elements.append(item)
        if wrap and len(elements) % shards == (index + 1) % shards:
            yield item
        if not wrap and len(elements) % shards == 0:
            yield elements[index - shards]
    if wrap and elements and 0 < len(elements) % shards <= index:
        yield elements[(index - len(elements) % shards) % len(elements)]


@_again
def _zipped(left: Stream, right: Stream, join: Callable[[Any, Any], Any]) -> Iterator[Any]:
    inputs = left(), right()
    while True:
        parts = []
        for items in inputs:
            for item in items:
                if _counts(item):
                    parts.append(item)
                    break
                yield item
            else:
                return
        bad = [part for part in parts if isinstance(part, Hole)]
        yield bad[0] if bad else join(*parts)


@_again
def _batched(source: Stream, size: int, drop: bool, on_error: str) -> Iterator[Any]:
    rows: list[Any] = []
    for item in _decided(source(), on_error):
        if isinstance(item, Hole):
            yield item
            continue
        rows.append(item)
        if len(rows) == size:
            yield rows
            rows = []
    if rows and not drop:
        yield rows


@_again
def _interleaved(source: Stream, cycle: int, block: int, inner: Callable[[Any], list[Any]]) -> Iterator[Any]:
    return iter(interleaved([[item] if isinstance(item, Hole) else inner(item) for item in source()], cycle, block))


@_again
def _redone(source: Stream, bad: Callable[[Any], bool], on_error: str) -> Iterator[Any]:
    """A map over the rows of batches: nothing fills up a batch that loses a row."""
    for item in source():
        if isinstance(item, Hole):
            yield item
            continue
        good = [x for x in item if not bad(x)]
        if on_error == "raise":
            yield from (Hole(raised=True) for x in item if bad(x))
        if on_error == "replace" and good:
            last = good[0]
            for i, x in enumerate(item):
                last = item[i] = last if bad(x) else x
            good = item
        if good:
            yield [_signed(x) for x in good]


@_again
def _unbatched(source: Stream) -> Iterator[Any]:
    for item in source():
        yield from [item] if isinstance(item, Hole) else item


_MEANINGS: dict[str, Callable[..., Stream]] = {
    "take": lambda source, n: source if n < 0 else _slice(source, lambda i: True, n),
    "skip": lambda source, n: _slice(source, lambda i: True, 0) if n < 0 else _slice(source, lambda i: i >= n),
    "repeat": lambda source, n: lambda: itertools.chain.from_iterable(source() for _ in range(n)),
    "shard": lambda source, n, index: _slice(source, lambda i: i % n == index),
    "even shard": lambda source, n, index, even: _even(source, n, index, even == "wrap"),
    "prefetch": lambda source, _: source,
    "cache": lambda source: source,
    "add": lambda source, k: _each(source, lambda x: [v + k for v in x] if isinstance(x, list) else x + k),
    "python": lambda source, k, _: _each(source, lambda x: x * 2 + k),
    "fail": lambda source, m, r: _each(source, lambda x: x if x % m != r else 1 // 0),
    "batch fails": lambda source, k: _each(source, lambda x: x if x[0] % 3 != k else 1 // 0),
    "filter": lambda source, m: _kept(source, lambda x: x % m != 0),
    "python filter": lambda source, m: _kept(source, lambda x: x % m != 0),
    "filter fails": lambda source, m, r: _kept(source, lambda x: bool(x % m != r or 1 // 0) and x % 2 == 0),
    "zip": lambda source, n: _zipped(source, lambda: iter(range(n)), lambda a, b: a * 7 + b),
    "concatenate": lambda source, n: lambda: itertools.chain(source(), range(100, 100 + n)),
    "enumerate": lambda source, start: _zipped(source, lambda: itertools.count(start), lambda x, i: i * 1000 + x),
    "flat_map": lambda source: _interleaved(source, 1, 1, lambda x: [x, x + 1]),
    "interleave": lambda source, cycle, block: _interleaved(source, cycle, block, lambda x: list(range(x % 4))),
    "unbatch": lambda source: _unbatched(source),
    "twice": lambda source: _zipped(source, source, lambda a, b: [x + y for x, y in zip(a, b, strict=True)]),
    "picture": lambda source, damage: _each(source, lambda x: 1 // 0 if _damaged(x, damage) else _signed(x)),
}


def _step(source: Stream, op: Op, on_error: str) -> Stream:
    match op:
        case ("batch", size, drop):
            return _batched(source, size, drop, on_error)
        case ("picture batch" | "batch of pictures", size, drop, damage):
            return _batched(_step(source, ("picture", damage), on_error), size, drop, on_error)
        case ("cached batch", size, drop, damage):
            return _redone(_batched(source, size, drop, on_error), lambda x: _damaged(x, damage), on_error)
        case (name, *args):
            return _MEANINGS[name](source, *args)
    raise AssertionError(op)


# ---- as gpupipe


def _unless(bad: Callable[[Any], bool], fn: Callable[[Any], Any] = lambda x: x) -> Callable[[Any], Any]:
    def failing(x: Any) -> Any:
        if bad(x):
            raise ZeroDivisionError("on purpose")
        return fn(x)

    return failing


def _damaged(x: int, damage: tuple[str, int, int]) -> bool:
    kind, m, r = damage
    return kind != "none" and x % m == r


def _signed(x: Any) -> Any:
    """A number of 24 bits, which is what a pixel holds."""
    return ((x + (1 << 23)) & 0xFF_FFFF) - (1 << 23)


def _drawn(damage: tuple[str, int, int]) -> Callable[[Any], bytes]:
    """A PNG of one pixel whose colour is the number."""

    def encode(x: Any) -> bytes:
        colour = [int(x) >> shift & 255 for shift in (16, 8, 0)]
        data = encoded(np.array([[colour]], np.uint8), "PNG")
        if not _damaged(int(x), damage):
            return data
        return b"no picture" if damage[0] == "header" else data[:33] + b"IDATnonsense" * 3

    return encode


def _number(pixels: Any) -> Any:
    """The number of each picture: int64[...] of uint8[..., 1, 1, 3]."""
    a, b, c = np.moveaxis(np.asarray(pixels)[..., 0, 0, :].astype(np.int64), -1, 0)
    return _signed((a << 16) + (b << 8) + c)


_STEPS: dict[str, Callable[..., Dataset]] = {
    "even shard": lambda d, n, index, even: d.shard(n, index, even=even),
    "add": lambda d, k: d.map(lambda x: x + k),
    "python": lambda d, k, calls: d.map(lambda x: np.int64(int(x) * 2 + k), num_parallel_calls=calls or None),
    "fail": lambda d, m, r: d.map(_unless(lambda x: int(x) % m == r)),
    "batch fails": lambda d, k: d.map(_unless(lambda x: int(x[0]) % 3 == k)),
    "filter": lambda d, m: d.filter(lambda x: x % m != 0),
    "python filter": lambda d, m: d.filter(lambda x: bool(int(x) % m)),
    "filter fails": lambda d, m, r: d.filter(_unless(lambda x: int(x) % m == r, lambda x: int(x) % 2 == 0)),
    "zip": lambda d, n: Dataset.zip(d, Dataset.range(n)).map(lambda a, b: a * 7 + b),
    "concatenate": lambda d, n: d.concatenate(Dataset.range(100, 100 + n)),
    "enumerate": lambda d, start: d.enumerate(start).map(lambda i, x: i * 1000 + x),
    "flat_map": lambda d: d.flat_map(lambda x: Dataset.range(2).map(lambda i: i + x)),
    "interleave": lambda d, cycle, block: d.interleave(lambda x: Dataset.range(x % 4), cycle, block),
    "twice": lambda d: Dataset.zip(d, d).map(lambda a, b: a + b),
    "picture": lambda d, damage: d.map(_drawn(damage)).map(_decoded),
    "picture batch": lambda d, size, drop, damage: d.map(_drawn(damage)).map(_decoded).batch(size, drop),
    "batch of pictures": lambda d, size, drop, damage: d.map(_drawn(damage)).batch(size, drop).map(_decoded),
    "cached batch": lambda d, size, drop, damage: d.map(_drawn(damage)).batch(size, drop).cache().map(_decoded),
}
"""Those that are not a method of `Dataset` by the same name."""


def _append(d: Dataset, op: Op) -> Dataset:
    name, *args = op
    made: Dataset = _STEPS[name](d, *args) if name in _STEPS else getattr(d, name)(*args)
    return made.map(_number, traced=False) if "picture" in name or name == "cached batch" else made


def _decoded(data: Any) -> Any:
    return ops.decode_png(data, channels=3)


def build(program: Program) -> Dataset:
    """The chain."""
    count, ops = program
    dataset = Dataset.range(count)
    for op in ops:
        dataset = _append(dataset, op)
    return dataset


elements = outcomes
"""What every `next` gives; "error" where it raises."""
