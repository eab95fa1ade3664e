"""Random chains over records, images and batches: with every rewrite and without any, the same comes out.

Each program is described as data, so that hypothesis can shrink it. The rules that fired are counted over all programs:
a rule that fires too rarely here is not tested.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.optimize.lower import RULES, lower

Step = tuple[Any, ...]
Program = tuple[Step, ...]

PROGRAMS = 2000
LEAST = 20
"""A rule that fired fewer times in all programs is not tested."""

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
        file = io.BytesIO()
        pixels = np.random.default_rng(i).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, "JPEG", quality=95)
        jpeg = file.getvalue()
        features: dict[str, Any] = {"image": jpeg[: len(jpeg) // 2] if damaged >> i & 1 else jpeg, "label": i}
        if damaged >> (RECORDS + i) & 1:
            del features["label"]
        out.append(gp.io.encode_example(features))
    return tuple(out)


# ---- programs

_PASS: list[st.SearchStrategy[Step]] = [
    st.tuples(st.just("take"), st.integers(-1, 5)),
    st.tuples(st.just("skip"), st.integers(0, 3)),
    st.tuples(st.just("repeat"), st.integers(1, 2)),
    st.tuples(st.just("shard"), st.integers(1, 2), st.just(0)),
    st.tuples(st.just("prefetch"), st.integers(-1, 2)),
    st.tuples(st.just("shuffle"), st.integers(1, 9), st.integers(0, 2)),
    st.tuples(st.just("epochs"), st.integers(1, 9), st.integers(0, 2), st.integers(2, 3)),
]
_PLACES: list[st.SearchStrategy[Step]] = [  # for chains whose elements can be had by their places
    st.tuples(st.just("slice"), st.integers(-3, 3), st.integers(-3, 6), st.sampled_from([1, 2, -1])),
    st.tuples(st.just("shuffle all"), st.integers(0, 2)),
    st.tuples(st.just("split"), st.integers(0, 1)),
]
_LABELLED: list[st.SearchStrategy[Step]] = [
    *_PASS,
    *_PLACES,
    st.tuples(st.just("filter"), st.integers(2, 3)),
    st.tuples(st.just("python filter"), st.integers(2, 3)),
    st.tuples(st.just("note")),
]
# What an image can go through; all images of a chain keep one shape.
_IMAGE: list[st.SearchStrategy[Step]] = [
    st.tuples(st.sampled_from(["left_right", "up_down", "random_left_right", "random_up_down"])),
    st.tuples(st.just("window"), st.integers(4, 8), st.integers(4, 8)),
    st.tuples(st.just("random_crop"), st.integers(3, 4)),
    st.tuples(st.just("random_resized_crop"), st.integers(3, 7)),
    st.tuples(st.just("resize"), st.integers(3, 7), st.sampled_from(["nearest", "bilinear"])),
    st.tuples(st.just("cast")),
    st.tuples(st.just("gray and back")),
    st.tuples(st.just("mirrored twice")),
]
_LAST: list[st.SearchStrategy[Step]] = [
    st.tuples(st.just("normalize"), st.booleans()),
    st.tuples(st.just("nothing")),
]
_BATCHED: list[st.SearchStrategy[Step]] = [
    st.tuples(st.sampled_from(["take", "prefetch"]), st.integers(-1, 2)),
    st.tuples(st.just("repeat"), st.integers(1, 2)),
    st.tuples(st.just("flip batch")),
    *_PLACES,
    st.tuples(st.just("unbatch")),
]


@st.composite
def _programs(draw: st.DrawFn) -> Program:
    def some(choices: list[st.SearchStrategy[Step]], most: int) -> list[Step]:
        return draw(st.lists(st.one_of(choices), max_size=most))

    parts: list[Step] = [*some(_PASS, 3)]
    together = draw(st.booleans())
    images = (*some(_IMAGE, 4), draw(st.one_of(_LAST)))
    if together:
        parts.append(("parse and decode", images))
    else:
        parts += [("parse",), *some(_LABELLED, 3), ("decode", images)]
    parts += some(_LABELLED, 2)
    if draw(st.booleans()):
        parts += [("batch", draw(st.integers(1, 3)), draw(st.booleans())), *some(_BATCHED, 2)]
    return tuple(_short(parts))


def _short(parts: list[Step]) -> list[Step]:
    """The steps without repeats that would make the chain long."""
    passes, out = 1, []
    for step in parts:
        passes *= step[-1] if step[0] in ("repeat", "epochs") else 1
        if passes <= 8:
            out.append(step)
        else:
            passes //= step[-1]
    return out


# ---- as chains


def _transformed(image: Any, steps: tuple[Step, ...]) -> Any:
    for step in steps:
        match step:
            case ("left_right",):
                image = ops.flip_left_right(image)
            case ("up_down",):
                image = ops.flip_up_down(image)
            case ("random_left_right",):
                image = ops.random_flip_left_right(image)
            case ("random_up_down",):
                image = ops.random_flip_up_down(image)
            case ("mirrored twice",):
                image = ops.flip_left_right(ops.flip_left_right(image))
            case ("window", height, width):
                image = ops.resize_with_crop_or_pad(image, height, width)
                image = ops.crop_to_bounding_box(image, 1, 0, height - 1, width - 1)
            case ("random_crop", size):
                image = ops.random_crop(ops.resize_with_crop_or_pad(image, 6, 6), (size, size, 3))
            case ("random_resized_crop", size):
                image = ops.random_resized_crop(image, (size, size))
            case ("resize", size, method):
                image = ops.cast(ops.resize(image, (size, size), method=method), "uint8")
            case ("cast",):
                image = ops.cast(image, "uint8")
            case ("gray and back",):
                image = ops.grayscale_to_rgb(ops.rgb_to_grayscale(image))
            case ("normalize", chw):
                image = ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)
                image = ops.transpose(image, "CHW") if chw else image
            case ("nothing",):
                pass
            case _:
                raise AssertionError(step)
    return image


def _build(program: Program, damaged: int, logs: list[list[int]]) -> Dataset:
    def noted() -> Callable[[Any, Any], Any]:
        log: list[int] = []
        logs.append(log)

        def note(encoded: Any, label: Any) -> Any:
            log.append(int(label))
            return encoded, label

        return note

    ds = Dataset.from_tensor_slices(np.array(_records(damaged), object))
    for step in program:
        match step:
            case ("unbatch",):
                ds = ds.unbatch() if ds.plan.element.batched else ds
            case ("take" | "skip" | "repeat" | "shard" | "prefetch" | "shuffle" | "batch", *args):
                ds = getattr(ds, step[0])(*args)
            case ("epochs", size, seed, count):
                ds = ds.shuffle(size, seed).repeat(count)
            case ("slice" | "shuffle all" | "split", *_):
                ds = _by_place(ds, step)
            case ("parse",):
                ds = ds.map(lambda record: _parsed(record))
            case ("decode", images):
                ds = ds.map(lambda encoded, label, images=images: (_decoded(encoded, images), label))
            case ("parse and decode", images):
                ds = ds.map(lambda record, images=images: _parsed_and_decoded(record, images))
            case ("filter", m):
                ds = ds.filter(lambda image, label, m=m: label % m != 1)
            case ("python filter", m):
                ds = ds.filter(_python_filter(m))
            case ("note",):
                ds = ds.map(noted(), spec=ds.element_spec)  # else it would be called once more, to learn its type
            case ("flip batch",):
                ds = ds.map(_flip) if ds.plan.element.batched else ds
            case _:
                raise AssertionError(step)
    return ds


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


def _python_filter(m: int) -> Callable[[Any, Any], bool]:
    def keep(image: Any, label: Any) -> bool:
        try:
            return int(label) % m != 1
        finally:
            pass  # a statement that no traced function may hold

    return keep


def _flip(image: Any, label: Any) -> Any:
    # An image that is channels-first cannot be flipped by this op; then the batch stays.
    return ops.cast(image, "float32"), label


def _outcomes(ds: Dataset) -> list[Any]:
    """What each `next` gives: "error" where it raised a data error."""
    out: list[Any] = []
    with iter(ds) as items:
        for _ in range(500):
            try:
                out.append(next(items))
            except StopIteration:
                return out
            except gp.DataError:
                out.append("error")
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


@settings(max_examples=PROGRAMS, deadline=None, database=None, derandomize=True)
@given(
    program=_programs(),
    damaged=st.sampled_from([0, 0, 0b0000001_0000000, 0b0000100, 0b0010000_0001001]),
    on_error=st.sampled_from(["raise", "skip", "replace"]),
)
def _compare(program: Program, damaged: int, on_error: Any) -> None:
    notes: list[list[list[int]]] = []
    results: list[list[Any]] = []
    # Deferral is evaluation by need: an element that a filter drops never fails for an image that nobody looked at.
    # So it stays on where elements may fail.
    off = tuple(rule for rule in RULES if rule != "deferral" or not damaged)
    for disabled in ((), off):
        logs: list[list[int]] = []
        options = Options(device="cpu", backend="numpy", threads=1, on_error=on_error, disabled_rules=disabled)
        try:
            ds = _build(program, damaged, logs).with_options(options)
        except gp.SpecError:  # a window that the image is too small for: the same chain either way
            results.append(["spec"])
            notes.append([])
            continue
        if not disabled:
            lowered = lower(ds.plan, ds.options().resolve())
            FIRED.update(lowered.fired)
            FIRED.update(lowered.placer.fired)
        results.append(_outcomes(ds))
        notes.append(logs)
    _same(*results)
    # A function that notes what it sees is called for the same elements in the same order. What reads ahead may have
    # called it for more of them.
    for seen in zip(*notes, strict=True):
        shorter, longer = sorted(seen, key=len)
        assert longer[: len(shorter)] == shorter


def test_random_chains_give_the_same_with_all_rewrites_and_with_none() -> None:
    FIRED.clear()
    _compare()
    rare = {rule: FIRED[rule] for rule in RULES if FIRED[rule] < LEAST}

    assert not rare, f"these rules fired too rarely to be tested: {rare}"


def test_the_comparison_sees_a_wrong_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule below takes one element too few; programs are found that show it."""
    from gpupipe.optimize import rules
    from gpupipe.plan.node import Node
    from gpupipe.plan.steps import Take

    def merge_takes(node: Node) -> Node | None:
        if isinstance(node, Take) and node.count > 1:
            return Take(node.source, node.count - 1, line=node.line)
        return None

    monkeypatch.setattr(rules, "PLAN_RULES", (merge_takes,))
    with pytest.raises(AssertionError):
        _compare()
