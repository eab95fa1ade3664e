"""Random chains over records, images and batches: with every rewrite and without any, the same comes out.

Each program is described as data, so that hypothesis can shrink it. The rules that fired are counted over all programs:
a rule that fires too rarely here is not tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.comparison.photographs import encode
from gpupipe.ops._shared import decode_smaller
from gpupipe.optimize.lower.compile import RULES, lower_dry
from gpupipe.plan.index import loses_batches
from tests.selection import FULL, programs

Step = tuple[Any, ...]
Program = tuple[Step, ...]

PROGRAMS = programs(2000 if FULL else 500)
LEAST = 10 if FULL else 0
"""A rule that fired fewer times in all programs is not tested, nor is a step that fewer of them held.

The rarest are expected 30 to 40 times in 2000, so in 500 they may be missing; which programs are drawn changes with the
source of the package.
"""

STEPS = 56
"""So many kinds of steps there are below."""

HEIGHT, WIDTH = 14, 12
RECORDS = 7
FEATURES = {
    "image": gp.io.FixedLenFeature((), bytes),
    "label": gp.io.FixedLenFeature((), "int64"),
    "box": gp.io.FixedLenFeature((2,), "float32", default_value=(0.0, 1.0)),
}


@cache
def _records(damaged: int) -> tuple[bytes, ...]:
    """Examples with a small JPEG each. Bits of `damaged` say which is cut in its scan, and which lacks its label."""
    out = []
    for i in range(RECORDS):
        jpeg = encode(np.random.default_rng(i).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8), 95)
        features: dict[str, Any] = {"image": jpeg[: len(jpeg) // 2] if damaged >> i & 1 else jpeg, "label": i}
        if damaged >> (RECORDS + i) & 1:
            del features["label"]
        out.append(gp.io.encode_example(features))
    return tuple(out)


# ---- programs

N = st.integers


def _one(*names: str) -> st.SearchStrategy[Step]:
    """One of some steps without arguments."""
    return st.tuples(st.sampled_from(names))


def _each(**steps: tuple[st.SearchStrategy[Any], ...]) -> list[st.SearchStrategy[Step]]:
    """A strategy for each step, by its name with _ for spaces, and its arguments."""
    return [st.tuples(st.just(name.replace("_", " ")), *given) for name, given in steps.items()]


_PASS = _each(
    take=(N(-1, 5),), skip=(N(0, 3),), repeat=(N(1, 2),), shard=(N(1, 2), st.just(0)), prefetch=(N(-1, 2),),
    shuffle=(N(1, 9), N(0, 2)), epochs=(N(1, 9), N(0, 2), N(2, 3)),
)  # fmt: skip
_PLACES = _each(  # for chains whose elements can be had by their places
    slice=(N(-3, 3), N(-3, 6), st.sampled_from([1, 2, -1])), shuffle_all=(N(0, 2),), split=(N(0, 1),)
)
_SHARD = st.tuples(st.just("shard"), st.just(2), N(0, 1))
_JOINS = _each(  # of a chain with parts of itself
    concatenate=(N(0, 3),),
    sample=(N(0, 3), st.booleans()),
    choose=(st.lists(N(0, 1), max_size=6).map(tuple), st.booleans()),
)
_HELD = [_one("cache", "cache file"), _one("ignore errors")]
_RECORDS = [*_PASS, *_PASS, *_HELD, *_JOINS, _one("unique")]
_ANY_PLACE = _each(enumerate=(N(0, 1),), zip_numbers=(N(3, 9),))
_SMALL_STEPS = [
    *_each(filter=(N(2, 3),), python_filter=(N(2, 3),), take_while=(N(3, 6), st.booleans()), scan=(st.booleans(),)),
    *_each(zip_with_itself=(N(0, 2),)),
    *_ANY_PLACE,
    _one("note"),
]
_GATHER = _each(  # steps that make batches of elements (x, label)
    windows=(N(1, 3), N(1, 3), N(1, 2), st.booleans()), padded_batch=(N(1, 3), st.booleans()),
    buckets=(N(1, 3), st.booleans()), groups=(N(1, 3), N(1, 2)),
)  # fmt: skip
# Steps behind which elements can still be had by their places, as `choose_rows` needs them.
_IN_PLACE = [*_PASS[:5], *_PLACES, *_ANY_PLACE, _JOINS[0], _one("note", "cache")]
_ROWS_OF = st.tuples(st.just("rows of"), st.one_of(_GATHER))
_LABELLED = [*_PASS, *_PLACES, *_SMALL_STEPS, *_SMALL_STEPS, *_HELD, *_JOINS, _ROWS_OF]
# What an image can go through; all images of a chain keep one shape.
_CAST: Step = ("cast", "uint8")
_COLOURS = [
    ("random_brightness", 0.3),
    ("random_contrast", 0.5, 1.5),
    ("random_hue", 0.2),
    ("color_jitter", *[0.4] * 3),
]
_IMAGE = [
    _one("flip_left_right", "flip_up_down", "random_flip_left_right", "random_flip_up_down"),
    *_each(window=(N(4, 8), N(4, 8)), resize=(N(3, 7), st.sampled_from(["nearest", "bilinear"]))),
    st.tuples(st.just("random_crop"), N(3, 4)),
    st.tuples(st.just("random_resized_crop"), N(3, 7)),
    *map(_one, ("gray and back", "mirrored twice", "random_erasing")),
    st.just(_CAST),
    st.sampled_from(_COLOURS),
    st.tuples(st.just("adjust_saturation"), st.sampled_from([0.5, 1.0, 1.5])),
]
_LAST = [*_each(normalize=(st.booleans(),)), _one("nothing")]
_REBATCH = st.tuples(st.just("rebatch"), st.lists(N(1, 3), min_size=1, max_size=2).map(tuple), st.booleans())
_BATCHED: list[st.SearchStrategy[Step]] = [
    st.tuples(st.sampled_from(["take", "prefetch"]), N(-1, 2)),
    *_each(repeat=(N(1, 2),), concatenate=(N(0, 2),)),
    *_PLACES,
    *_HELD,
    *([_one("cast batch"), _REBATCH, _one("unbatch")] * 2),
]


@st.composite
def _programs(draw: st.DrawFn) -> Program:
    def some(choices: list[st.SearchStrategy[Step]], most: int) -> list[Step]:
        return draw(st.lists(st.one_of(choices), max_size=most))

    in_place = draw(st.integers(0, 4)) == 0
    labelled = _IN_PLACE if in_place else _LABELLED
    parts: list[Step] = some(_PASS[:5] if in_place else _RECORDS, 2)
    cropped = draw(st.sampled_from([(), (), (), (_CAST, ("random_crop", 3))]))  # too rare where left to chance
    images = (*some(_IMAGE, 4), *cropped, draw(st.one_of(_LAST)))
    if draw(st.booleans()):
        parts.append(("parse and decode", images))
    else:
        parts += [("parse",), *some(labelled, 3), ("decode", images)]
    parts += some(labelled, 2)
    batch = st.tuples(st.just("batch"), st.integers(1, 3), st.booleans())
    if in_place:
        parts += [draw(batch), *some([*_PLACES, _SHARD, _SHARD], 2)]
    elif draw(st.booleans()):
        parts += [draw(st.one_of(batch, batch, *_GATHER)), *some(_BATCHED, 3)]
    return tuple(_short(parts))


def _short(parts: list[Step]) -> list[Step]:
    """The steps without those that would make the chain long."""
    times, out = 1, []
    for step in parts:
        more = times * _longer(step)
        if more <= 8:
            out.append(step)
            times = more
    return out


def _longer(step: Step) -> int:
    """How many times as many elements a step gives."""
    match step:
        case ("repeat" | "epochs", *_, passes):
            return int(passes)
        case ("concatenate" | "sample", *_):
            return 2
        case ("windows", size, shift, *_):
            return int(-(-size // shift))
        case ("rows of", gather):
            return _longer(gather)
        case _:
            return 1


_BRANCHES = ("concatenate", "sample", "choose", "zip with itself")


# ---- as chains


def _window(image: Any, height: int, width: int) -> Any:
    padded = ops.resize_with_crop_or_pad(image, height, width)
    return ops.crop_to_bounding_box(padded, 1, 0, height - 1, width - 1)


def _cut(image: Any, size: int) -> Any:
    image = ops.random_resized_crop(image, (size, size))
    return ops.random_flip_left_right(image) if size % 2 else image


def _normalized(image: Any, chw: bool) -> Any:
    image = ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)
    return ops.transpose(image, "CHW") if chw else image


_TRANSFORMS: dict[str, Callable[..., Any]] = {
    "mirrored twice": lambda x: ops.flip_left_right(ops.flip_left_right(x)),
    "window": _window,
    "random_crop": lambda x, size: ops.random_crop(ops.resize_with_crop_or_pad(x, 6, 6), (size, size, 3)),
    "random_resized_crop": _cut,
    "resize": lambda x, size, method: ops.cast(ops.resize(x, (size, size), method=method), "uint8"),
    "gray and back": lambda x: ops.grayscale_to_rgb(ops.rgb_to_grayscale(x)),
    "normalize": _normalized,
    "nothing": lambda x: x,
}
"""Steps of images that are no op of the same name and arguments."""


def _transformed(image: Any, steps: tuple[Step, ...]) -> Any:
    for name, *args in steps:
        image = (_TRANSFORMS.get(name) or getattr(ops, name))(image, *args)
    return image


def _build(program: Program, damaged: int, logs: list[list[int]]) -> Dataset:
    def noted(ds: Dataset) -> Dataset:
        log: list[int] = []
        logs.append(log)

        def note(encoded: Any, label: Any) -> Any:
            log.append(int(label))
            return encoded, label

        # With a type it is not called once more, to learn it. Behind `scan` nobody knows one.
        return ds.map(note, spec=ds.element_spec if ds.plan.element.known else None)

    ds = Dataset.from_tensor_slices(np.array(_records(damaged), object))
    rows = True
    for step in program:
        match step:
            case ("unbatch",):
                ds, rows = ds if rows else ds.unbatch(), True
            case ("rebatch", sizes, drop):
                ds = ds if rows else ds.rebatch(list(sizes), drop)
            case (name, *args) if name in _GATHERED:
                ds, rows = _GATHERED[name](ds, *args), False
            case ("rows of", (name, *args)):
                ds = _GATHERED[name](ds, *args).unbatch()
            case ("note",):
                ds = noted(ds)
            case ("slice" | "shuffle all" | "split", *_):
                ds = _by_place(ds, step)
            case (name, *args) if name in _STEPS:
                ds = _STEPS[name](ds, *args)
            case (name, *args):
                ds = getattr(ds, name.replace(" ", "_"))(*args)
    return ds


_GATHERED: dict[str, Callable[..., Dataset]] = {
    "batch": lambda ds, *args: ds.batch(*args),
    "windows": lambda ds, *args: ds.window(*args).flat_map(lambda x, n: Dataset.zip(x.batch(2), n.batch(2))),
    "padded batch": lambda ds, size, drop: ds.padded_batch(size, drop_remainder=drop),
    "buckets": lambda ds, size, drop: ds.bucket_by_sequence_length(
        lambda x, label: label, [2, 5], [size, 1, size + 1], drop_remainder=drop
    ),
    "groups": lambda ds, window, size: ds.group_by_window(
        lambda x, label: label % 2, lambda key, group: group.batch(size), window
    ),
}
"""Batches of elements (x, label)."""

_STEPS: dict[str, Callable[..., Dataset]] = {
    "sample": lambda ds, seed, stop: Dataset.sample_from_datasets([ds, ds.skip(1)], [0.6, 0.4], seed, stop),
    "choose": lambda ds, picks, stop: Dataset.choose_from_datasets(
        [ds, ds.take(2)], Dataset.from_tensor_slices(np.array(picks, np.int64)), stop
    ),
    "concatenate": lambda ds, few: ds.concatenate(ds.take(few)),
    "zip with itself": lambda ds, ahead: Dataset.zip(ds, ds.skip(ahead)).map(lambda a, b: (a[0], a[1] + b[1])),
    "zip numbers": lambda ds, few: Dataset.zip(ds, Dataset.range(few)).map(lambda a, b: (a[0], a[1] + b)),
    "cache file": lambda ds: ds.cache(CACHES[0] / str(next(_NAMES))),
    "take while": lambda ds, most, traced: ds.take_while(
        (lambda x, label: label < most) if traced else _python(lambda label, most: label < most, most)
    ),
    "scan": lambda ds, declared: ds.scan(
        np.int64(0), _added, spec=ds.element_spec if declared and ds.plan.element.known else None
    ),
    "enumerate": lambda ds, start: ds.enumerate(start).map(lambda i, x: (x[0], x[1] + i)),
    "epochs": lambda ds, size, seed, times: ds.shuffle(size, seed).repeat(times),
    "parse": lambda ds: ds.map(lambda record: _parsed(record)),
    "decode": lambda ds, images: ds.map(lambda encoded, label: (_decoded(encoded, images), label)),
    "parse and decode": lambda ds, images: ds.map(lambda record: _parsed_and_decoded(record, images)),
    "filter": lambda ds, m: ds.filter(lambda image, label: label % m != 1),
    "python filter": lambda ds, m: ds.filter(_python(lambda label, m: label % m != 1, m)),
    "cast batch": lambda ds: ds.map(lambda x, n: (ops.cast(x, "float32"), n)) if ds.plan.element.batched else ds,
}
"""Steps that are no method of the same name and arguments."""


def _by_place(ds: Dataset, step: Step) -> Dataset:
    """A choice by place, of a chain that gives its elements by place; else the chain itself."""
    try:
        match step:
            case ("slice", start, stop, stride):
                return ds[start:stop:stride]
            case ("shuffle all", seed):
                return ds.shuffle(gp.ALL, seed)
            case ("split", part):
                return ds.split([0.6, 0.4], seed=3)[part]
    except gp.PlanError:
        return ds
    raise AssertionError(step)


def _parsed(record: Any) -> Any:
    x = gp.io.parse_single_example(record, FEATURES)
    return x["image"], x["label"]


def _decoded(encoded: Any, images: tuple[Step, ...]) -> Any:
    return _transformed(ops.decode_jpeg(encoded, channels=3), images)


def _parsed_and_decoded(record: Any, images: tuple[Step, ...]) -> Any:
    encoded, label = _parsed(record)
    return _decoded(encoded, images), label


def _python(predicate: Callable[[int, int], bool], number: int) -> Callable[[Any, Any], bool]:
    def keep(x: Any, label: Any) -> bool:
        try:
            return predicate(int(label), number)
        finally:
            pass  # a statement that no traced function may hold

    return keep


def _added(total: Any, element: Any) -> Any:
    x, label = element
    return np.int64(total + label), (x, np.int64(total + label))


def _outcomes(ds: Dataset, epoch: int) -> list[Any]:
    """What each `next` gives: "error" where it raised a data error."""
    out: list[Any] = []
    with ds.iterator(epoch) as items:
        for _ in range(500):
            try:
                out.append(next(items))
            except StopIteration:
                return out
            except gp.DataError:
                out.append("error")
            except gp.SpecError:  # an element that only the first tells, and a window that it is too small for
                return [*out, "spec"]
    raise AssertionError("no end")


def _same(got: list[Any], wanted: list[Any]) -> None:
    assert [_label(x) for x in got] == [_label(x) for x in wanted]
    for a, b in zip(got, wanted, strict=True):
        if isinstance(a, str):
            continue
        assert type(a[0]) is type(b[0])
        if isinstance(a[0], bytes):
            assert a[0] == b[0]
        else:
            # Normalising multiplies by 1/std where it is fused and divides where it is not: a few float32 roundings of
            # values below 3.
            np.testing.assert_allclose(a[0], b[0], rtol=0, atol=0 if a[0].dtype == np.uint8 else 1e-5, strict=True)


def _label(x: Any) -> Any:
    return x if isinstance(x, str) else np.asarray(x[1]).tolist()


FIRED: Counter[str] = Counter()
RAN: Counter[str] = Counter()
"""Of how many programs that give elements each step was a part, by its name."""
CACHES: list[Path] = []
"""Where caches in files go; each run of a program has its own."""
_NAMES: Iterator[int] = count()


def _alike(program: Program, damaged: int, on_error: Any) -> None:
    notes: list[list[list[int]]] = []
    results: list[list[Any]] = []
    # Deferral is evaluation by need: an element that a filter drops never fails for an image that nobody looked at.
    # So it stays on where elements may fail.
    # A shard that makes only its own batches does not see that a bad row of another one shifts all rows behind it.
    off = tuple(rule for rule in RULES if rule not in ("deferral", "choose_batches") or not damaged)
    for disabled in ((), off):
        logs: list[list[int]] = []
        smaller = len(program) % 2 == 0  # in the others a decoder and a crop become one op
        how: Any = {"device": "cpu", "backend": "numpy", "threads": 1, "approximate_decode": smaller}
        options = Options(**how, on_error=on_error, disabled_rules=disabled)
        try:
            ds = _build(program, damaged, logs).with_options(options)
        except gp.SpecError:  # a window that the image is too small for: the same chain either way
            results.append(["spec"])
            notes.append([])
            continue
        if on_error == "skip" and loses_batches(ds.plan) is not None:
            return  # refused: a bad element would take its batch along
        if not disabled:
            lowered = lower_dry(ds.plan, ds.options().resolve())
            FIRED.update(lowered.fired)
            FIRED.update(lowered.placer.fired)
        got: list[Any] = []
        seen: list[list[int]] = []
        for epoch in range(1 + any(step[0] in ("cache", "cache file") for step in program)):
            got += _outcomes(ds, epoch)
            seen += [log.copy() for log in logs]
            for log in logs:
                log.clear()
        results.append(got)
        notes.append(seen)
    if any(not isinstance(x, str) for x in results[0]):
        RAN.update(_names(program))
    _same(*results)
    if any(step[0] in _BRANCHES for step in program):  # one function in several branches, which may be threads
        return
    # A function that notes what it sees is called for the same elements in the same order. What reads ahead may have
    # called it for more of them.
    for pair in zip(*notes, strict=True):
        shorter, longer = sorted(pair, key=len)
        assert longer[: len(shorter)] == shorter


@pytest.fixture(autouse=True)
def _caches(tmp_path: Path) -> None:
    CACHES[:] = [tmp_path]


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """No window is so large that a JPEG would be decoded at a fraction of its size: then that rewrite is exact too."""
    monkeypatch.setattr(decode_smaller, "MARGIN", 1e9)


_SETTINGS = settings(max_examples=PROGRAMS, deadline=None, database=None, derandomize=True)
_PROGRAMS = given(
    program=_programs(),
    damaged=st.sampled_from([0, 0, 0b0000001_0000000, 0b0000100, 0b0010000_0001001]),
    on_error=st.sampled_from(["raise", "skip", "replace"]),
)


def _names(program: Program) -> set[str]:
    """The names of the steps of a program, those inside others too."""
    names: set[str] = set()
    for step in program:
        names.add(step[0])
        inner = step[1] if step[0] in ("decode", "parse and decode") else step[1:] if step[0] == "rows of" else ()
        names |= _names(inner)
    return names


@pytest.mark.timeout(400)  # in full 80 s of CPU time: more than the usual limit on a machine that others use
@pytest.mark.programs
def test_random_chains_give_the_same_with_all_rewrites_and_with_none() -> None:
    FIRED.clear()
    RAN.clear()
    _SETTINGS(_PROGRAMS(_alike))()
    rare = {rule: FIRED[rule] for rule in RULES if FIRED[rule] < LEAST}

    assert not rare, f"these rules fired too rarely to be tested: {rare}"
    assert len(RAN) >= STEPS or not FULL
    assert not [(step, count) for step, count in RAN.items() if count < LEAST]
