"""tfdata_chains: the chains whose elements and specs are compared, a row for each."""

from __future__ import annotations

from functools import partial

import numpy as np

from tests.differential import tfdata_sides as sides
from tests.differential.tfdata_sides import (
    BIG,
    TEXTS,
    Chain,
    Point,
    dicts,
    from_generator,
    holey,
    on,
    pairs,
    points,
    triangle,
)

I64 = np.int64


CASES: dict[str, Chain] = {
    # 1.2 structure
    "structure: named tuple": lambda D: D.from_tensors(Point(I64(1), np.array([2, 3], np.float32))),
    "structure: map makes a named tuple": lambda D: D.range(3).map(lambda x: Point(x, (x, x + 1))),
    "structure: named tuple filtered": lambda D: points(D).filter(lambda p: p.x % 2 == 0),
    "structure: named tuple in batches": lambda D: points(D).batch(2),
    "structure: named tuple in a dict": lambda D: D.from_tensor_slices({"p": Point(np.arange(2), np.arange(2))}),
    "structure: zip of a named tuple": lambda D: D.zip(Point(D.range(3), D.range(3, 6))),
    "structure: named tuple concatenated": lambda D: points(D).concatenate(points(D).skip(3)),
    "structure: None leaf": lambda D: D.from_tensors((I64(1), None)),
    "structure: None leaves sliced": lambda D: holey(D),
    "structure: None leaves mapped": lambda D: holey(D).map(lambda d: (d["a"], d["c"][0], d["b"])),
    "structure: None leaves batched": lambda D: holey(D).batch(2),
    "structure: None leaves unbatched": lambda D: holey(D).batch(2).unbatch(),
    "structure: None leaves zipped": lambda D: D.zip(holey(D), D.range(3)),
    "structure: map returns None inside": lambda D: D.range(3).map(lambda x: {"a": x, "b": None}),
    "structure: list at the top becomes a tuple": lambda D: D.range(3).map(lambda x: [x, x * 2, x * 3]),
    "structure: list below is stacked": lambda D: D.range(3).map(lambda x: (x, [x, x + 1])),
    "structure: one-tuple stays": lambda D: D.range(3).map(lambda x: (x,)).map(lambda x: (x,)),
    "structure: keys keep their order": lambda D: dicts(D).map(lambda d: {"z": d["a"], "b": d["b"], "a": d["b"]}),
    "structure: numbers as keys": lambda D: D.from_tensor_slices({2: np.arange(3), 1: np.arange(3)}),
    "structure: deep, mapped": lambda D: D.from_tensor_slices({"a": ({"c": np.arange(2)}, np.arange(2))}).map(
        lambda d: ((d["a"][0]["c"],), {"e": d["a"]})
    ),
    "structure: unpacks for filter": lambda D: pairs(D).filter(lambda a, b: a > 2),
    "structure: unpacks for flat_map": lambda D: pairs(D).flat_map(lambda a, b: D.from_tensor_slices(b)),
    "structure: constants": lambda D: D.range(2).map(lambda x: (np.float32(1.5), True, "text", b"b\0", x)),
    "structure: a constant alone": lambda D: D.range(2).map(lambda x: np.arange(3)),
    "structure: text is bytes": lambda D: D.from_tensor_slices({"s": ["ä", "", "z"]}).batch(2),
    # 1.3 sources
    "range negative": lambda D: D.range(-3, 2),
    "range downwards past 0": lambda D: D.range(3, -4, -3),
    "range of NumPy's integers": lambda D: D.range(I64(2), I64(6), I64(2)),
    "range beyond 32 bits": lambda D: D.range(BIG, BIG + 3),
    "tensors float16": lambda D: D.from_tensors(np.array([0.1, 65504], np.float16)),
    "tensors empty": lambda D: D.from_tensors(np.zeros((0, 3), np.float32)),
    "tensors 0-d": lambda D: D.from_tensors(np.array(7, np.int16)),
    "tensors lists of text": lambda D: D.from_tensors([["a", "bb"], ["", "ü"]]),
    "tensors NumPy bytes": lambda D: D.from_tensors(np.array([b"ab", b"c"])),
    "tensors NumPy text": lambda D: D.from_tensors(np.array(["ab", "ç"])),
    "tensors a big integer": lambda D: D.from_tensors(BIG),
    "tensors uint64": lambda D: D.from_tensors(np.array([2**64 - 1], np.uint64)),
    "slices list of arrays": lambda D: D.from_tensor_slices([np.arange(2), np.arange(2, 4)]),
    "generator of a class": lambda D: D.from_generator(sides.Counting(3), output_signature=on(D).Spec((), I64)),
    "generator of nothing": lambda D: from_generator(D, output_types=I64),
    "generator output_types and output_shapes": lambda D: from_generator(
        D, ([1, 2], 3), ([4, 5], 6), output_types=(I64, np.int32), output_shapes=((2,), ())
    ),
    "generator of lists": lambda D: from_generator(D, [1, 2], [3], output_signature=on(D).Spec((None,), I64)),
    "generator of text": lambda D: from_generator(D, "a", b"b\0", output_signature=on(D).Spec((), on(D).text)),
    "generator of dicts": lambda D: from_generator(
        D, {"a": 1, "b": [1.5]}, output_signature={"a": on(D).Spec((), I64), "b": on(D).Spec((1,), np.float32)}
    ),
    "generator of arrays of several ranks": lambda D: from_generator(
        D, np.zeros(2), np.zeros((1, 2)), output_types=np.float64
    ),
    # 1.4 map and filter
    "map synchronous": lambda D: D.range(5).map(lambda x: x + 1, synchronous=True),
    "map synchronous False": lambda D: D.range(5).map(lambda x: x + 1, num_parallel_calls=2, synchronous=False),
    "map slices": lambda D: D.from_tensors(np.arange(20).reshape(4, 5)).map(lambda x: (x[1], x[1:3, ::2], x[..., -1])),
    "map a new axis": lambda D: D.range(2).map(lambda x: x).batch(2).map(lambda x: x[:, None]),
    "map floor divides floats": lambda D: D.from_tensor_slices(np.array([-3, 2, 5], np.float32)).map(
        lambda x: (x // 2, x % 2)
    ),
    "map power": lambda D: D.range(4).map(lambda x: x**2),
    "map from the left": lambda D: D.range(1, 4).map(lambda x: (10 - x, 10 + x, 10 * x, 10 // x, 10 % x)),
    "map compares bytes": lambda D: D.from_tensor_slices(TEXTS).map(lambda x: (x == b"ccc", x != b"")),
    "map logic": lambda D: D.range(6).map(lambda x: ((x > 1) & (x < 4), (x < 1) | (x > 4))),
    "map a new axis of one": lambda D: (
        D.from_tensor_slices(np.array([250, 3], np.uint8)).map(lambda x: x[None]).unbatch()
    ),
    "map of batches of pairs": lambda D: pairs(D).batch(4).map(lambda a, b: (b[:, 0], a * 2)),
    "map with a default": lambda D: D.range(3).map(lambda x, y=2: x + y),
    "map of any number of arguments": lambda D: pairs(D).map(lambda *parts: (parts[1], parts[0])),
    "map of a partial": lambda D: D.range(3).map(partial(sides.scaled, by=5)),
    "map of a callable": lambda D: D.range(3).map(sides.Scaling(3)),
    "map of a method": lambda D: D.range(3).map(sides.Scaling(3).more),
    "map bits": lambda D: D.range(6).map(lambda x: (x & 3, x | 1, x ^ 1)),
    "filter a batch by its first": lambda D: D.range(9).batch(3).filter(lambda x: x[0] != 3),
    "filter by a bool leaf": lambda D: D.from_tensor_slices(([True, False, True], [1, 2, 3])).filter(lambda ok, x: ok),
    # take, skip, repeat, shard, enumerate, prefetch, apply
    "take most negative": lambda D: D.range(3).take(-100),
    "skip -1 of an endless one": lambda D: D.range(3).repeat(2).skip(-1),
    "repeat -1": lambda D: D.range(3).repeat(-1).take(5),
    "repeat of an empty generator": lambda D: from_generator(D, output_types=I64).repeat(),
    "repeat over empty passes": lambda D: D.from_generator(sides.in_passes(0, 2, 0, 1), output_types=I64).repeat(4),
    "repeat of nothing skipped": lambda D: D.range(4).skip(-1).repeat(),
    "shard of a filtered one": lambda D: D.range(20).filter(lambda x: x % 3 == 0).shard(2, 1),
    "enumerate dicts": lambda D: dicts(D).enumerate(),
    "enumerate beyond 32 bits": lambda D: D.range(2).enumerate(BIG),
    "prefetch 0": lambda D: D.range(5).prefetch(0),
    "prefetch None": lambda D: D.range(5).prefetch(None),
    "apply a function of its own": lambda D: D.range(4).apply(lambda d: d.concatenate(d.map(lambda x: -x))),
    # 1.5 flat_map, interleave
    "flat_map to pairs": lambda D: D.range(3).flat_map(lambda x: D.zip(D.range(x), D.from_tensors(x).repeat())),
    "flat_map of a dict": lambda D: dicts(D).flat_map(lambda d: D.from_tensors(d["a"]).repeat(d["b"])),
    "flat_map of which some are empty": lambda D: D.range(4).flat_map(
        lambda n: D.range(n % 2).map(lambda x: (x, [x, x]))
    ),
    "flat_map to an endless one": lambda D: D.range(2).flat_map(lambda x: D.from_tensors(x).repeat()).take(3),
    "interleave cycle -1": lambda D: D.range(2).interleave(lambda x: D.range(x + 3), cycle_length=-1, block_length=9),
    "interleave default": lambda D: D.range(3).interleave(lambda x: D.range(x * 10, x * 10 + 4), cycle_length=16),
    "interleave of nothings": lambda D: D.range(5).interleave(lambda x: D.range(0), 2),
    "interleave endless ones": lambda D: D.range(9).interleave(lambda x: D.from_tensors(x).repeat(), 3, 2).take(9),
    "interleave deterministic": lambda D: D.range(6).interleave(
        lambda x: D.range(x), 4, 1, num_parallel_calls=4, deterministic=True
    ),
    # 1.6 shuffle of which the order is known
    # 1.7 batch
    "batch beyond, dropped": lambda D: D.range(3).batch(9, drop_remainder=True),
    "batch parallel": lambda D: D.range(9).batch(2, num_parallel_calls=2, deterministic=True),
    "batch of empty vectors": lambda D: D.from_tensor_slices(np.zeros((3, 0), np.float32)).batch(2),
    "batch of equal unknown shapes": lambda D: triangle(D).filter(lambda x: x[-1] == 2).repeat(3).batch(2),
    # padded_batch
    "padded: two unknown dimensions": lambda D: sides.squares(D).padded_batch(3),
    "padded: to a shape": lambda D: sides.squares(D).padded_batch(2, padded_shapes=[4, 5]),
    "padded: -1 is None": lambda D: sides.squares(D).padded_batch(2, padded_shapes=[-1, 5]),
    "padded: known to more": lambda D: D.from_tensor_slices(np.ones((3, 2), np.float32)).padded_batch(2, [4]),
    "padded: value of text": lambda D: D.from_tensor_slices([["a"], ["b"]]).padded_batch(2, [3], padding_values=b"-"),
    "padded: bool by default": lambda D: D.from_tensor_slices([[True], [True]]).padded_batch(2, [2]),
    "padded: a dict": lambda D: D.zip({"a": triangle(D), "b": D.range(9)}).padded_batch(
        2, {"a": [5], "b": []}, {"a": I64(9), "b": None}
    ),
    "padded: a named tuple": lambda D: D.zip(Point(triangle(D), D.range(9))).padded_batch(2),
    "padded: one value for all": lambda D: D.zip(triangle(D), triangle(D)).padded_batch(2, padding_values=I64(-1)),
    "padded: one of them empty": lambda D: triangle(D).map(lambda x: x[1:]).padded_batch(2),
    # unbatch, cache
    "unbatch of batches of batches": lambda D: D.range(9).batch(2).batch(2).unbatch(),
    "unbatch of no rows": lambda D: D.from_tensor_slices(np.zeros((3, 0), I64)).unbatch(),
    "unbatch where some have no rows": lambda D: triangle(D).map(lambda x: x[1:]).unbatch(),
    "unbatch unknown": lambda D: triangle(D).unbatch(),
    "cache taken": lambda D: D.range(5).cache().take(2).repeat(2),
    "cache of nothing": lambda D: D.range(0).cache().repeat(2),
    "cache of unequal shapes": lambda D: triangle(D).cache().repeat(2),
    # 1.8 zip, concatenate
    "zip by name": lambda D: D.zip(datasets=(D.range(3), D.range(4))),
    "zip one dataset": lambda D: D.zip(D.range(3)),
    "zip the same twice": lambda D: (lambda d: D.zip(d, d))(D.range(3).map(lambda x: x * x)),
    "concatenate itself": lambda D: (lambda d: d.concatenate(d))(D.range(3)),
    "concatenate lengths": lambda D: D.from_tensors(np.arange(2)).concatenate(D.from_tensors(np.arange(3))),
    "concatenate ranks of text": lambda D: D.from_tensors("a").concatenate(D.from_tensors(["b", "c"])),
    "concatenate keys of several": lambda D: dicts(D).concatenate(D.from_tensors({"a": b"last", "b": I64(9)})),
    "concatenate keys of functions": lambda D: (
        D.range(2)
        .map(lambda x: {"a": [x], "b": (x, [x + 1])})
        .concatenate(D.range(5, 7).map(lambda x: {"b": (x + 2, [x + 3]), "a": [x]}))
    ),
    # shapes that meet, arithmetic by type, steps behind each other
    "more: batch of None leaf only struct": lambda D: holey(D).map(lambda d: (d["b"], d["a"])).batch(2),
    "more: padded spec drop": lambda D: D.from_tensor_slices(np.ones((4, 2))).padded_batch(3, [4], drop_remainder=True),
    "more: gen spec padded 2d": lambda D: from_generator(
        D, [[1, 2]], [[2, 3], [4, 5]], output_signature=on(D).Spec((None, 2), I64)
    ).padded_batch(2, padded_shapes=[3, None]),
    "more: concat spec ranks": lambda D: D.from_tensors(np.zeros((2, 3))).concatenate(D.from_tensors(np.zeros((2,)))),
    "more: concat then padded": lambda D: (
        D.from_tensors(np.zeros((2, 3))).concatenate(D.from_tensors(np.zeros((2, 4)))).padded_batch(2)
    ),
    "more: map slices spec2": lambda D: D.from_tensors(np.zeros((4, 3))).map(
        lambda x: (x[:, 1], x[0, 0], x[::2], x[-1:], x[5:])
    ),
    "more: batch slices spec": lambda D: (
        D.from_tensor_slices(np.zeros((4, 3, 2))).batch(3).map(lambda x: (x[:2], x[:, 1], x[0]))
    ),
    "more: broadcast": lambda D: D.from_tensors((np.ones((2, 3)), np.ones(3))).map(lambda a, b: a + b),
    "more: mixed f32 int": lambda D: D.from_tensor_slices(np.array([1, 2], np.float32)).map(
        lambda x: (x + 1, x - 1, 1 - x, x / 3, 3 / x, x**2)
    ),
    "more: f16": lambda D: D.from_tensor_slices(np.array([1, 2], np.float16)).map(lambda x: (x / 3, x * 2)),
    "more: pow neg": lambda D: D.from_tensor_slices(np.array([4.0, 2], np.float32)).map(lambda x: x**-1),
    "more: int overflow": lambda D: D.from_tensor_slices(np.array([2**31 - 1], np.int32)).map(lambda x: x + 1),
    "more: interleave captures": lambda D: (lambda d: D.range(3).interleave(lambda x: d.map(lambda y: y + x), 2))(
        D.range(3)
    ),
    # whole chains
    # what is plain
    "range with a step": lambda D: D.range(1, 10, 3),
    "range downwards": lambda D: D.range(5, 0, -2),
    "range of nothing": lambda D: D.range(5, 0),
    "range as float32": lambda D: D.range(3, output_type=np.float32),
    "from_tensors tuple": lambda D: D.from_tensors((1, [2, 3])),
    "from_tensors dict": lambda D: D.from_tensors({"a": 1, "b": (2, b"x")}),
    "from_tensors list of tuples": lambda D: D.from_tensors([(1, 2), (3, 4)]),
    "from_tensors bytes": lambda D: D.from_tensors(b"a\0b\0"),
    "slices nested": lambda D: D.from_tensor_slices({"a": [1, 2], "b": ([3, 4], [[5], [6]])}),
    "slices of strings": lambda D: D.from_tensor_slices(["x", "yy"]),
    "slices list of tuples": lambda D: D.from_tensor_slices([(1, 2), (3, 4)]),
    "slices of nothing": lambda D: D.from_tensor_slices(np.zeros((0, 3), np.float32)),
    "slices one-tuple": lambda D: D.from_tensor_slices(([1, 2],)),
    "map AUTOTUNE": lambda D: D.range(20).map(lambda x: x - 1, num_parallel_calls=-1),
    "map // and % of negatives": lambda D: D.range(-4, 4).map(lambda x: (x // 3, x % 3)),
    "map comparisons": lambda D: D.range(4).map(lambda x: (x < 2, x <= 2, x > 2, x >= 2)),
    "map negative": lambda D: D.range(3).map(lambda x: -x),
    "filter nothing through": lambda D: D.range(4).filter(lambda x: x > 9),
    "take -7": lambda D: D.range(5).take(-7),
    "take too many": lambda D: D.range(5).take(99),
    "skip too many": lambda D: D.range(5).skip(99),
    "repeat 0": lambda D: D.range(3).repeat(0),
    "repeat of nothing": lambda D: D.range(0).repeat(),
    "repeat of filtered nothing": lambda D: D.range(3).filter(lambda x: x > 5).repeat(),
    "shard of too few": lambda D: D.range(2).shard(5, 4),
    "enumerate": lambda D: D.from_tensor_slices(([1, 2], [3, 4])).enumerate(),
    "enumerate from -2": lambda D: D.range(3).enumerate(-2),
    "batch of bytes": lambda D: D.from_tensor_slices(TEXTS).batch(2),
    "batch of images": lambda D: D.from_tensor_slices(np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3)).batch(2),
    "unbatch slices": lambda D: D.from_tensor_slices(np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3)).unbatch(),
    "unbatch of pairs": lambda D: D.from_tensors(([1, 2], [3, 4])).unbatch(),
    "padded_batch to 5": lambda D: triangle(D).padded_batch(2, padded_shapes=[5], padding_values=I64(-1)),
    "padded_batch of a pair": lambda D: D.zip(triangle(D), triangle(D)).padded_batch(
        2, ([4], [None]), (I64(-1), I64(7))
    ),
    "padded_batch None value": lambda D: D.zip(triangle(D), triangle(D)).padded_batch(4, ([4], [-1]), (None, I64(7))),
    "zip tuple": lambda D: D.zip((D.range(3), D.range(5))),
    "zip one-tuple": lambda D: D.zip((D.range(2),)),
    "zip with an endless one": lambda D: D.zip(D.range(3), D.range(2).repeat()),
    "concatenate ranks": lambda D: D.from_tensors([1, 2]).concatenate(D.from_tensors(1)),
    "concatenate keys": lambda D: D.from_tensors({"a": 1, "b": 2}).concatenate(D.from_tensors({"b": 3, "a": 4})),
    "flat_map nested": lambda D: D.range(3).flat_map(lambda a: D.range(2).flat_map(lambda b: D.from_tensors((a, b)))),
    "flat_map uses the outer one": lambda D: D.range(3).flat_map(lambda a: D.range(2).map(lambda b: a * 10 + b)),
}
