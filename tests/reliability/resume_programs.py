"""Random chains out of every step there is, described as data so that a failure can be made smaller.

Elements are integers for the most part, or batches of them: what is tested is where a chain stands, not what it
computes. `SOURCES` and `STEPS` name all parts, so that a test can count that each of them was run.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import gpupipe as gp
from gpupipe import Dataset, ops
from gpupipe.plan.index import loses_batches
from gpupipe.random import mix64
from tests.chains import damage

Step = tuple[Any, ...]

INT = gp.TensorSpec((), "int64")


@dataclass(frozen=True)
class Program:
    """A chain: where its elements come from, and its steps."""

    source: Step
    steps: tuple[Step, ...]

    @property
    def counts(self) -> bool:
        """Whether bad elements are noted in one way only.

        Not where threads read ahead, nor behind a cache: one that an iterator fills anew notes them anew. Nor where two
        steps say the same: nothing tells their errors apart.
        """
        parts = (self.source, *self.steps)
        if sum(part[0] == "assert" for part in parts) > 1:
            return False
        return not self.reads_ahead and not any(part[0] in _CACHES for part in parts)

    @property
    def reads_ahead(self) -> bool:
        """Whether threads read elements before they are asked for: what those are then depends on when."""
        return any(map(_reads_ahead, (self.source, *self.steps)))


Drawn = Callable[[random.Random], Any]


def _to(least: int, most: int) -> Drawn:
    return lambda rng: rng.randint(least, most)


def _one(*values: Any) -> Drawn:
    return lambda rng: rng.choice(values)


def _bad(rng: random.Random) -> tuple[int, int]:
    """Which numbers are bad, by divisor and remainder; often none is."""
    m = rng.randint(2, 5)
    return m, rng.choice([m, m, rng.randrange(m)])


def _picks(most: int, longest: int, least: int = 0) -> Drawn:
    return lambda rng: tuple(rng.randint(least, most) for _ in range(rng.randint(least, longest)))


_FLAG = _one(False, True)
_FEW = _to(0, 5)
_MANY = _one(1, 3, 7, 12, 25, 40)
_SEED = _one(None, 0, 1)
_THREADS = _one(None, None, 2)
_CROP = _one("crop", "resized crop", "mirror", "none")
_FORMS_DRAWN = ("range", "shuffled", "prefetched", "Python", "element", "fails", "nested", "generator", "cache")
_INSIDE = (
    *["take", "skip", "repeat", "endless", "shard", "prefetch", "shuffle", "shuffle all", "cache", "concatenate"],
    *["sample", "choose", "traced", "python", "parallel", "drawn", "filter", "scan", "unique", "zip", "zip itself"],
    "pad",
)
"""Steps of datasets that a function makes of each element."""


def _inner_drawn(rng: random.Random) -> Any:
    """How a function makes a dataset of an element: by name, or the steps behind a range."""
    if rng.random() < 0.6:
        return rng.choice(_FORMS_DRAWN)
    return tuple(_drawn(rng.choice(_INSIDE), rng) for _ in range(rng.randint(1, 3)))


# ---- files

FILES, RECORDS = 3, 6


def write_files(folder: Path) -> None:
    """What the programs read: some of it is damaged."""
    for i in range(FILES):
        numbers = range(i * RECORDS, (i + 1) * RECORDS)
        examples = [_example(n) for n in numbers]
        damage.write(folder / f"{i}.tfrecord", examples)
        data = bytearray((folder / f"{i}.tfrecord").read_bytes())
        if i < 2:
            data[sum(map(len, examples[: 4 - 3 * i])) + (4 - 3 * i) * damage.OVERHEAD + 30] ^= 1  # a payload
        if i == 2:
            del data[-5:]
        (folder / f"{i}.tfrecord").write_bytes(data)
        (folder / f"{i}.tfrecord.gz").write_bytes(gzip.compress(bytes(data), mtime=0))
        lines = b"".join(b"%d\n" % n if n % 5 != 4 else b"no number\n" for n in numbers)
        (folder / f"{i}.txt").write_bytes(lines)
        (folder / f"{i}.txt.gz").write_bytes(gzip.compress(lines, mtime=0)[: -9 if i == 1 else None])
        fixed = b"header" + b"".join(b"%03d" % n for n in numbers) + b"end"
        (folder / f"{i}.bin").write_bytes(fixed + b"1" * (i == 1))
        (folder / f"{i}.bin.gz").write_bytes(gzip.compress(fixed + b"1" * (i == 1), mtime=0))
    saved = Dataset.range(12).map(lambda x: x * 3)
    saved.save(folder / "plain")
    saved.save(folder / "gzip", compression="GZIP")
    saved.save(folder / "parts", shard_func=lambda x: int(x) % 3)


def _example(n: int) -> bytes:
    features: dict[str, Any] = {"image": _picture(n)}
    if n % 7 != 5:
        features["number"] = n
    return gp.io.encode_example(features)


@cache
def _picture(n: int) -> bytes:
    """A small photograph; some are damaged, in the header or behind it."""
    data = damage.jpeg(n, 16, 16)
    match n % 11:
        case 3:
            return damage.bad_scan(data)
        case 6:
            return data[:100]
        case _:
            return data


FEATURES = {"image": gp.io.FixedLenFeature((), bytes), "number": gp.io.FixedLenFeature((), "int64")}


# ---- parts


Made = Callable[..., Dataset]
# By name: the kind of the elements, what else is drawn, and what is built with it.
_SOURCES: dict[str, tuple[str, list[Drawn], Made]] = {
    "range": ("number", [_MANY], lambda files, n: Dataset.range(n)),
    "slices": ("number", [_MANY], lambda files, n: Dataset.from_tensor_slices(np.arange(n) * 2)),
    "list": ("number", [_MANY], lambda files, n: _totalled(Dataset.from_list([np.arange(i % 4) for i in range(n)]))),
    "tensors": ("number", [_FEW], lambda files, n: Dataset.from_tensors(np.int64(n)).repeat(n + 2)),
    "generator": (
        "number", [_MANY, _FLAG, _one(None, 0, 2, 7)],
        lambda _, n, signed, bad: Dataset.from_generator(_counting(n, bad), output_signature=INT if signed else None),
    ),
    "indexable": (
        "number", [_MANY, _bad, _THREADS],
        lambda files, n, bad, calls: Dataset.from_indexable(_Items(n, bad), INT, num_parallel_calls=calls),
    ),
    "counter": ("number", [_MANY], lambda files, n: Dataset.counter(3, 2).take(n)),
    "random": (
        "number", [_MANY, _FLAG],
        lambda files, n, anew: Dataset.random(seed=3, rerandomize_each_iteration=anew).take(n).map(lambda x: x % 50),
    ),
    "loaded": ("number", [_one("plain", "gzip", "parts")], lambda files, kind: Dataset.load(files / kind)),
    "loaded parts": (
        "number", [_to(1, 3)],
        lambda files, cycle: Dataset.load(files / "parts", reader_func=lambda parts: parts.interleave(_itself, cycle)),
    ),
    "text": (
        "bytes", [_one("*.txt", "*.txt.gz"), _THREADS],
        lambda files, pattern, readers: gp.TextLineDataset(*_matching(files, pattern), num_parallel_reads=readers),
    ),
    "fixed": (
        "bytes", [_one("*.bin", "*.bin.gz"), _THREADS],
        lambda files, pattern, readers: gp.FixedLengthRecordDataset(
            _matching(files, pattern)[0], 3, 6, 3, None, _matching(files, pattern)[1], num_parallel_reads=readers
        ),
    ),
    "records": (
        "record", [_one("*.tfrecord", "*.tfrecord.gz"), _THREADS],
        lambda files, pattern, readers: gp.TFRecordDataset(*_matching(files, pattern), num_parallel_reads=readers),
    ),
    "files": (
        "record", [_FLAG, _to(1, 4), _THREADS],
        lambda files, shuffled, cycle, calls: Dataset.list_files(
            str(files / "*.tfrecord"), shuffle=shuffled, seed=1
        ).interleave(gp.TFRecordDataset, cycle_length=cycle, num_parallel_calls=calls),
    ),
    "pictures": (
        "picture", [_MANY],
        lambda files, n: Dataset.from_tensor_slices(np.array([_picture(i) for i in range(n)], object)),
    ),
}  # fmt: skip

_KINDS = ("number", "batch", "bytes", "record", "picture", "image", "images")
_N, _B = ("number",), ("batch",)
# By name: before which kinds of elements it may stand, how often, what kind follows (None: the same), what is drawn,
# and how it is built. What keeps elements in a file gets its path last.
_STEPS: dict[str, tuple[tuple[str, ...], int, str | None, list[Drawn], Made]] = {
    "take": (_KINDS, 1, None, [_to(-1, 20)], Dataset.take),
    "skip": (_KINDS, 1, None, [_FEW], Dataset.skip),
    "repeat": (_KINDS, 1, None, [_to(0, 3)], Dataset.repeat),
    "endless": (_KINDS, 1, None, [_to(1, 30)], lambda ds, n: ds.repeat().take(n)),
    "shard": (
        _KINDS, 1, None, [_to(1, 3), _to(0, 2)],
        lambda ds, n, index: ds.shard(n, index % n, even=(None, "drop", "wrap")[(n + index) % 3]),
    ),
    "prefetch": (_KINDS, 1, None, [_to(-1, 3)], Dataset.prefetch),
    "shuffle": (_KINDS, 2, None, [_to(1, 12), _SEED, _FLAG], Dataset.shuffle),
    "shuffle all": (_KINDS, 3, None, [_SEED, _FLAG], lambda ds, seed, anew: ds.shuffle(gp.ALL, seed, anew)),
    "slice": (
        _KINDS, 4, None, [_to(-4, 4), _to(-4, 20), _one(1, 2, -1)],
        lambda ds, start, stop, stride: ds[start:stop:stride],
    ),
    "split": (_KINDS, 4, None, [_to(0, 1)], lambda ds, part: ds.split([0.6, 0.4], seed=3)[part]),
    "cache": (_KINDS, 2, None, [], Dataset.cache),
    "cache file": (_KINDS, 1, None, [], Dataset.cache),
    "snapshot": (_KINDS, 1, None, [_one("NONE", "GZIP")], lambda ds, packed, path: ds.snapshot(path, packed)),
    "ignore errors": (_KINDS, 1, None, [], Dataset.ignore_errors),
    "concatenate": (_KINDS, 1, None, [_FEW], lambda ds, few: ds.concatenate(ds.take(few))),
    "sample": (
        _KINDS, 1, None, [_SEED, _FLAG, _FLAG],
        lambda ds, *how: Dataset.sample_from_datasets([ds, ds.skip(1)], [0.6, 0.4], *how),
    ),
    "sample by a dataset": (
        _KINDS, 1, None, [_FLAG],
        lambda ds, stop: Dataset.sample_from_datasets([ds, ds.take(3)], _weights(), 1, stop),
    ),
    "choose": (
        _KINDS, 1, None, [_picks(2, 12), _FLAG],  # 2 is outside
        lambda ds, picks, stop: Dataset.choose_from_datasets(
            [ds, ds.take(2)], Dataset.from_tensor_slices(np.array(picks, np.int64)), stop
        ),
    ),
    "enumerate": (_KINDS, 1, None, [_to(-1, 2)], lambda ds, start: ds.enumerate(start).map(lambda i, x: x)),
    "assert": (_KINDS, 1, None, [_to(0, 12)], Dataset.assert_cardinality),
    "traced": (_N, 1, None, [], lambda ds: ds.map(lambda x: x * 2 + 1)),
    "python": (_N, 2, None, [_bad], lambda ds, bad: ds.map(_plus(1, bad), traced=False)),
    "parallel": (
        _N, 1, None, [_bad, _to(1, 3)],
        lambda ds, bad, calls: ds.map(_plus(2, bad), num_parallel_calls=calls, traced=False),
    ),
    "drawn": (_N, 1, None, [], lambda ds: ds.map(_drawn_for, rng=True)),
    "two kinds": (
        _N, 3, None, [_to(2, 4), _THREADS],
        lambda ds, m, calls: ds.map(_of_two_kinds(m), num_parallel_calls=calls, traced=False),
    ),
    "filter": (_N, 3, None, [_to(2, 4)], lambda ds, m: ds.filter(lambda x: x % m != 1)),
    "python filter": (_N, 1, None, [_to(2, 4), _bad], lambda ds, m, bad: ds.filter(_some(m, bad))),
    "take while": (
        _N, 1, None, [_to(3, 30), _FLAG],
        lambda ds, most, traced: ds.take_while((lambda x: x < most) if traced else lambda x: bool(_number(x) < most)),
    ),
    "scan": (
        _N, 2, None, [_bad, _FLAG],
        lambda ds, bad, declared: ds.scan(np.int64(0), _added(bad), spec=INT if declared else None),
    ),
    "overtaking": (
        _N, 0, None, [_bad, _to(1, 3)],
        lambda ds, bad, calls: ds.map(_slowly(bad), num_parallel_calls=calls, traced=False, deterministic=False),
    ),
    "overtaking interleave": (
        _N, 0, None, [_inner_drawn, _to(1, 4), _to(1, 2)],
        lambda ds, form, cycle, block: ds.interleave(_inner(form), cycle, block, 2, deterministic=False),
    ),
    "unique": (_N, 3, None, [_to(3, 9)], lambda ds, m: ds.map(lambda x: x % m).unique()),
    "zip": (
        _N, 1, None, [_to(0, 20)], lambda ds, n: Dataset.zip(ds, Dataset.range(n)).map(lambda a, b: a * 7 + b)
    ),
    "zip itself": (
        _N, 1, None, [_to(0, 3)], lambda ds, ahead: Dataset.zip(ds, ds.skip(ahead)).map(lambda a, b: a + b)
    ),
    "resample": (
        _N, 1, None, [_FLAG],
        lambda ds, known: ds.rejection_resample(
            lambda x: x % 2, [0.3, 0.7], [0.5, 0.5] if known else None, seed=1
        ).map(lambda label, x: x),
    ),
    "pad": (
        _N, 1, None, [_to(3, 20)],
        lambda ds, n: ds.map(lambda x: {"x": x}).pad_to_cardinality(n).map(lambda d: d["x"] * 2 + d["valid"]),
    ),
    "flat_map": (_N, 2, None, [_inner_drawn], lambda ds, form: ds.flat_map(_inner(form))),
    "interleave": (
        _N, 2, None, [_inner_drawn, _to(1, 4), _to(1, 3), _THREADS],
        lambda ds, form, *how: ds.interleave(_inner(form), *how),
    ),
    "batch": (_N, 3, "batch", [_to(1, 5), _FLAG], Dataset.batch),
    "window": (
        _N, 2, "batch",
        [_to(1, 5), _to(1, 5), _to(1, 2), _FLAG, _one("batches", "shuffled", "elements", "interleaved", "drawn")],
        lambda ds, *how: _WINDOWS[how[-1]](ds.window(*how[:-1])),
    ),
    "windows": (_N, 1, "windows", [_to(1, 5), _to(1, 5)], Dataset.window),
    "padded batch": (
        _N, 3, "batch", [_to(1, 4), _FLAG],
        lambda ds, size, drop: _rows(ds).padded_batch(size, drop_remainder=drop).map(_totals, traced=False),
    ),
    "ragged batch": (
        _N, 1, "batch", [_to(1, 4), _FLAG, _FLAG],
        lambda ds, size, drop, again: _ragged_totals(_rows(ds).ragged_batch(size, drop), again),
    ),
    "bucket": (
        _N, 1, "batch", [_to(1, 3), _one("pad", "boundary", "none"), _FLAG],
        lambda ds, size, how, drop: _rows(ds).bucket_by_sequence_length(
            lambda x: len(x), [2, 4], [size, 1, size + 1],
            no_padding=how == "none", pad_to_bucket_boundary=how == "boundary", drop_remainder=drop,
        ).map(_totals, traced=False),
    ),
    "size bucket": (
        _N, 1, "batch", [_to(1, 4), _one("sizes", "pixels"), _FLAG],
        lambda ds, size, how, drop: ds.bucket_by_image_size(
            batch_size=size, size_func=lambda x: (1 + _number(x) % 3, 3), drop_remainder=drop,
            **({"max_pixels": 9 * size} if how == "pixels" else {"buckets": [(1, 3), (5, 3)]}),
        ).map(lambda x, size: x + size[0]),
    ),
    "group": (
        _N, 2, "batch", [_to(1, 4), _to(1, 5), _to(1, 3), _bad],
        lambda ds, m, size, rows, bad: ds.group_by_window(_key(m, bad), lambda key, group: group.batch(rows), size),
    ),
    "unbatch": (_B, 4, "number", [], Dataset.unbatch),
    "rebatch": (_B, 3, None, [_picks(4, 2, 1), _FLAG], lambda ds, sizes, drop: ds.rebatch(list(sizes), drop)),
    "map over batches": (_B, 2, None, [_bad], lambda ds, bad: ds.map(_plus(1, bad), traced=False)),
    "parse text": (("bytes",), 9, "number", [_bad], lambda ds, bad: ds.map(_plus(0, bad), traced=False)),
    "parse": (("record",), 20, "number", [], lambda ds: ds.map(lambda record: _parsed(record)["number"])),
    "parse and decode": (
        ("record",), 8, "image", [_CROP],
        lambda ds, crop: ds.map(lambda record: _cropped(ops.decode_jpeg(_parsed(record)["image"]), crop)),
    ),
    "decode": (
        ("picture",), 30, "image", [_CROP],
        lambda ds, crop: ds.map(lambda x: _cropped(ops.decode_jpeg(x, channels=3), crop)),
    ),
    "mirror": (("image",), 16, None, [], lambda ds: ds.map(lambda x: ops.random_flip_left_right(x))),
    "sum": (("image",), 16, "number", [], lambda ds: _totalled(ds)),
    "image batch": (("image",), 30, "images", [_to(1, 4), _FLAG], Dataset.batch),
    "unbatch images": (("images",), 30, "image", [], Dataset.unbatch),
    "sums": (("images",), 20, "batch", [], lambda ds: ds.map(_totals, traced=False)),
}  # fmt: skip
SOURCES, STEPS = frozenset(_SOURCES), frozenset(_STEPS)
_WINDOWS: dict[str, Callable[[Dataset], Dataset]] = {
    "batches": lambda windows: windows.flat_map(lambda w: w.batch(2)),
    "shuffled": lambda windows: windows.shuffle(3).flat_map(lambda w: w.batch(2)),
    "elements": lambda windows: windows.flat_map(_itself).batch(2),
    "interleaved": lambda windows: windows.interleave(_itself, cycle_length=2).batch(2),
    "drawn": lambda windows: windows.map(lambda w, rng: np.int64(rng.integers(0, 50)), rng=True, traced=False).batch(2),
}

_CACHES = {"cache", "cache file", "snapshot"}
_AHEAD = {"prefetch", "parallel", "parse and decode", "decode"}


def _reads_ahead(part: Step) -> bool:
    name, *rest = part
    if name in ("flat_map", "interleave"):
        inner = rest[0]
        ahead = inner in ("prefetched", "cache") or (
            isinstance(inner, tuple) and any(step[0] in _AHEAD | _CACHES for step in inner)
        )
        return ahead or (name == "interleave" and rest[3] is not None)
    if name == "two kinds":
        return rest[1] is not None
    return name in _AHEAD or (name in ("indexable", "text", "fixed", "records", "files") and rest[-1] is not None)


def _drawn(name: str, rng: random.Random) -> Step:
    parts = _SOURCES[name][1] if name in _SOURCES else _STEPS[name][3]
    return name, *[part(rng) for part in parts]


_CHOICES = {
    kind: [name for name, (before, weight, *_) in _STEPS.items() if kind in before for _ in range(weight)]
    for kind in _KINDS
}


_PLACED = ("shuffle all", "slice", "split")
"""Steps that need to know places: behind most others they cannot be."""


def programs_with(part: str, rng: random.Random) -> Program:
    """A program that has this part."""
    while True:
        program = programs(rng)
        if part in _PLACED:
            if program.source[0] in ("range", "slices", "indexable", "list"):
                return Program(program.source, (_drawn(part, rng), *program.steps))
        elif part in {step[0] for step in (program.source, *program.steps)}:
            return program


def programs(rng: random.Random, most: int = 6, images: bool = False) -> Program:
    """A source and up to `most` steps; with `images`, pictures are decoded."""
    some = [name for name in _SOURCES if not images or _SOURCES[name][0] in ("picture", "record")]
    source = _drawn(rng.choice(some), rng)
    kind = _SOURCES[source[0]][0]
    steps: list[Step] = []
    for _ in range(rng.randint(1, most)):
        name = rng.choice(_CHOICES[kind])
        steps.append(_drawn(name, rng))
        kind = _STEPS[name][2] or kind
        if kind == "windows":
            break
    if images and kind in ("picture", "record"):
        steps += [_drawn("decode" if kind == "picture" else "parse and decode", rng), _drawn("image batch", rng)]
    return Program(source, tuple(steps))


# Where a chain gives what is ready first, these give the same elements whatever the order is.
_FREE = {
    "number": (
        *["overtaking", "overtaking interleave", "cache file", "ignore errors", "traced", "python", "filter"],
        *["concatenate", "python filter", "repeat", "batch", "batch", "batch"],
        *["prefetch", "shuffle", "flat_map", "unique", "group"],  # these hold elements: then there is no state
    ),
    "batch": ("prefetch", "prefetch", "prefetch", "cache file", "unbatch", "rebatch"),
}


def free_programs(rng: random.Random, most: int = 5) -> Program:
    """A chain that gives what is ready first, and the same elements in any order."""
    source = _drawn(rng.choice(["range", "slices", "indexable", "generator", "loaded"]), rng)
    steps: list[Step] = []
    kind = "number"
    for i in range(rng.randint(2, most)):
        name = rng.choice(_FREE[kind][:2] if i == 0 else _FREE[kind])
        step = _drawn(name, rng)
        match step:
            case ("batch" | "rebatch", size, _):
                step = name, size, False
            case ("bucket", size, *_):
                step = name, size, "pad", False  # sums, whatever they are padded to
            case ("concatenate", _):
                step = name, 0
        steps.append(step)
        kind = _STEPS[name][2] or kind
    return Program(source, tuple(steps))


# ---- as chains


def build(program: Program, files: Path, caches: Path, skips: bool) -> tuple[Dataset, list[str]]:
    """The chain, and the names of the parts that it is made of: a step that does not fit here is left out.

    Args:
        program: what to build.
        files: what `write_files` wrote.
        caches: a folder for caches in files.
        skips: whether bad elements are skipped; then single batches are not chosen by index.
    """
    name, *given = program.source
    ds, names = _SOURCES[name][2](files, *given), [name]
    for number, step in enumerate(program.steps):
        try:
            longer = _append(ds, step, caches / str(number))
        except (gp.PlanError, gp.SpecError, TypeError):
            continue
        if skips and loses_batches(longer.plan) is not None:
            continue
        ds = longer
        names.append(step[0])
    return ds, names


def _append(ds: Dataset, step: Step, path: Path) -> Dataset:
    name, *given = step
    return _STEPS[name][4](ds, *given, *([path] if name in ("cache file", "snapshot") else []))


def _matching(files: Path, pattern: str) -> tuple[list[str], str]:
    """The files of a pattern, and how they are compressed."""
    return sorted(map(str, files.glob(pattern))), "GZIP" if pattern.endswith(".gz") else ""


class _Items:
    """Numbers, some of which cannot be had."""

    def __init__(self, n: int, bad: tuple[int, int]) -> None:
        self.n, self.bad = n, bad

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, place: int) -> Any:
        if FAULTS.bad(place, place % self.bad[0] == self.bad[1]):
            raise KeyError(place)
        return np.int64(place)


def _counting(n: int, bad: int | None) -> Callable[[], Any]:
    def numbers() -> Any:
        for i in range(n):
            if i == bad:
                raise ValueError("no more")
            yield np.int64(i)

    return numbers


def _weights() -> Dataset:
    return Dataset.from_tensor_slices(np.array([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5]])).repeat()


def _parsed(record: Any) -> Any:
    return gp.io.parse_single_example(record, FEATURES)


def _cropped(image: Any, how: str) -> Any:
    match how:
        case "crop":
            return ops.random_crop(image, (4, 4, 3))
        case "resized crop":
            return ops.random_resized_crop(image, (4, 4))
        case "mirror":
            return ops.random_flip_left_right(image)
    return image


# ---- functions


def _number(x: Any) -> int:
    return int(x) if isinstance(x, bytes) else int(np.asarray(x).sum())


class Faults:
    """What changes between a state and its resume: functions fail for other elements, and other records are damaged.

    Attributes:
        anew: some elements that were good are bad.
        healed: some elements that were bad are good.
        salt: chooses which ones.
    """

    anew = healed = False
    salt = 0

    def changed(self, number: int, one_of: int) -> bool:
        """Whether an element is among those that change."""
        return mix64(number, self.salt) % one_of == 0

    def bad(self, number: int, before: bool) -> bool:
        """Whether an element is bad now."""
        if before:
            return not (self.healed and self.changed(number, 2))
        return self.anew and self.changed(number, 5)


FAULTS = Faults()


def damage_now(folder: Path) -> None:
    """Write the records again, with other ones damaged: as large as before, at the same time."""
    for i in range(FILES):
        path = folder / f"{i}.tfrecord"
        data, before = bytearray(path.read_bytes()), path.stat()
        start = 0
        for n in range(i * RECORDS, (i + 1) * RECORDS):
            size = len(_example(n))
            bad = (i, n % RECORDS) in ((0, 4), (1, 1))
            if start + damage.OVERHEAD + size <= len(data):
                data[start + 12 + 18] = _example(n)[18] ^ FAULTS.bad(n, bad)
            start += size + damage.OVERHEAD
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _refuse(x: Any, bad: tuple[int, int]) -> None:
    if FAULTS.bad(_number(x), _number(x) % bad[0] == bad[1]):
        raise ValueError(f"{_number(x)} is bad")


def _plus(more: int, bad: tuple[int, int]) -> Callable[[Any], Any]:
    def plus(x: Any) -> Any:
        _refuse(x, bad)
        return np.int64(_number(x)) if isinstance(x, bytes) else np.asarray(x)[()] + np.int64(more)

    return plus


def _of_two_kinds(m: int) -> Callable[[Any], Any]:
    """The first result says what the others have to be."""
    return lambda x: np.float64(x) if _number(x) % m == 1 else np.int64(x)


def _drawn_for(x: Any, rng: np.random.Generator) -> Any:
    return np.int64(x + rng.integers(0, 5))


def _slowly(bad: tuple[int, int]) -> Callable[[Any], Any]:
    plus = _plus(0, bad)

    def slowly(x: Any) -> Any:
        time.sleep(0.0002 * (_number(x) * 7 % 4))
        return plus(x)

    return slowly


def _some(m: int, bad: tuple[int, int]) -> Callable[[Any], bool]:
    def some(x: Any) -> bool:
        _refuse(x, bad)
        return _number(x) % m != 0

    return some


def _added(bad: tuple[int, int]) -> Callable[[Any, Any], Any]:
    def added(total: Any, x: Any) -> Any:
        _refuse(x, bad)
        return np.int64(total + x), np.int64(total * 2 + x)

    return added


def _key(m: int, bad: tuple[int, int]) -> Callable[[Any], Any]:
    def key(x: Any) -> Any:
        _refuse(x, bad)
        return np.int64(_number(x) % m)

    return key


def _rows(ds: Dataset) -> Dataset:
    """Numbers as rows of 0 to 3 times the number."""
    return ds.map(lambda x: np.full(_number(x) % 4, _number(x), np.int64), traced=False)


def _totalled(ds: Dataset) -> Dataset:
    return ds.map(lambda x: np.int64(_number(x)), traced=False)


def _totals(x: Any) -> Any:
    """The total of each row."""
    return np.array([np.sum(row) for row in (x.to_list() if isinstance(x, gp.Ragged) else np.asarray(x))], np.int64)


def _ragged_totals(ds: Dataset, again: bool) -> Dataset:
    return _totalled(ds.unbatch()).batch(2) if again else ds.map(_totals, traced=False)


def _itself(x: Any) -> Any:
    return x


def _inner(form: Any) -> Callable[[Any], Any]:
    """What makes a dataset of a number."""
    if isinstance(form, str):
        return _FORMS[form]

    def made(x: Any) -> Dataset:
        ds = Dataset.range(_number(x) % 6)
        for step in form:
            with contextlib.suppress(gp.PlanError, gp.SpecError):
                ds = _append(ds, step, Path())
        return _numbered(x, ds)

    return made


def _numbered(x: Any, numbers: Dataset) -> Dataset:
    """Numbers in another range for every element."""
    n = _number(x)
    return numbers.map(lambda i: np.int64(i) + 10 * n, traced=False)


def _fails(x: Any) -> Dataset:
    if FAULTS.bad(_number(x), _number(x) % 3 == 1):
        raise ValueError(f"{_number(x)} has no elements")
    return Dataset.range(_number(x) % 4)


def _generated(x: Any) -> Dataset:
    n = _number(x)
    return Dataset.from_generator(lambda: iter([np.int64(n)] * (n % 4)), output_signature=INT)


_FORMS: dict[str, Callable[[Any], Any]] = {
    "range": lambda x: Dataset.range(x % 4),
    "shuffled": lambda x: Dataset.range(5).shuffle(3).map(lambda i: i + x),
    "prefetched": lambda x: _numbered(x, Dataset.range(_number(x) % 5)).prefetch(2),
    "Python": lambda x: _numbered(x, Dataset.range(_number(x) % 4)),
    "element": lambda x: Dataset.from_tensors(x).repeat(2),
    "fails": _fails,
    "nested": lambda x: Dataset.range(3).flat_map(lambda y: Dataset.range(y + 1)).map(lambda i: i + x),
    "generator": _generated,
    "cache": lambda x: Dataset.range(3).cache().repeat(2),
}
