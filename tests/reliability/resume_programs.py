"""Random chains out of every step there is, described as data so that a failure can be made smaller.

Elements are integers for the most part, or batches of them: what is tested is where a chain stands, not what it
computes. `SOURCES` and `STEPS` name all parts, so that a test can count that each of them was run.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, ops
from gpupipe.plan.index import loses_batches
from tests.chains import damage

Step = tuple[Any, ...]


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
        return not any(_reads_ahead(part) or part[0] in _CACHES for part in parts)


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
    *[
        "sample",
        "choose",
        "traced",
        "python",
        "parallel",
        "drawn",
        "filter",
        "scan",
        "unique",
        "zip",
        "zip itself",
        "pad",
    ],
)
"""Steps of datasets that a function makes of each element."""


def _inner_drawn(rng: random.Random) -> Any:
    """How a function makes a dataset of an element: by name, or the steps behind a range."""
    if rng.random() < 0.6:
        return rng.choice(_FORMS_DRAWN)
    return tuple(_drawn(rng.choice(_INSIDE), rng) for _ in range(rng.randint(1, 3)))


# By name: the kind of the elements, and what else is drawn.
_SOURCES: dict[str, tuple[str, list[Drawn]]] = {
    "range": ("number", [_MANY]),
    "slices": ("number", [_MANY]),
    "list": ("number", [_MANY]),
    "tensors": ("number", [_FEW]),
    "generator": ("number", [_MANY, _FLAG, _one(None, 0, 2, 7)]),
    "indexable": ("number", [_MANY, _bad, _THREADS]),
    "counter": ("number", [_MANY]),
    "random": ("number", [_MANY, _FLAG]),
    "loaded": ("number", [_one("plain", "gzip", "parts")]),
    "loaded parts": ("number", [_to(1, 3)]),
    "text": ("bytes", [_one("*.txt", "*.txt.gz"), _THREADS]),
    "fixed": ("bytes", [_one("*.bin", "*.bin.gz"), _THREADS]),
    "records": ("record", [_one("*.tfrecord", "*.tfrecord.gz"), _THREADS]),
    "files": ("record", [_FLAG, _to(1, 4), _THREADS]),
    "pictures": ("picture", [_MANY]),
}

_KINDS = ("number", "batch", "bytes", "record", "picture", "image", "images")
_N, _B = ("number",), ("batch",)
# By name: before which kinds of elements it may stand, how often, what kind follows (None: the same), what is drawn.
_STEPS: dict[str, tuple[tuple[str, ...], int, str | None, list[Drawn]]] = {
    "take": (_KINDS, 1, None, [_to(-1, 20)]),
    "skip": (_KINDS, 1, None, [_FEW]),
    "repeat": (_KINDS, 1, None, [_to(0, 3)]),
    "endless": (_KINDS, 1, None, [_to(1, 30)]),
    "shard": (_KINDS, 1, None, [_to(1, 3), _to(0, 2)]),
    "prefetch": (_KINDS, 1, None, [_to(-1, 3)]),
    "shuffle": (_KINDS, 2, None, [_to(1, 12), _SEED, _FLAG]),
    "shuffle all": (_KINDS, 3, None, [_SEED, _FLAG]),
    "slice": (_KINDS, 4, None, [_to(-4, 4), _to(-4, 20), _one(1, 2, -1)]),
    "split": (_KINDS, 4, None, [_to(0, 1)]),
    "cache": (_KINDS, 2, None, []),
    "cache file": (_KINDS, 1, None, []),
    "snapshot": (_KINDS, 1, None, [_one("NONE", "GZIP")]),
    "ignore errors": (_KINDS, 1, None, []),
    "concatenate": (_KINDS, 1, None, [_FEW]),
    "sample": (_KINDS, 1, None, [_SEED, _FLAG, _FLAG]),
    "sample by a dataset": (_KINDS, 1, None, [_FLAG]),
    "choose": (_KINDS, 1, None, [_picks(2, 12), _FLAG]),
    "enumerate": (_KINDS, 1, None, [_to(-1, 2)]),
    "assert": (_KINDS, 1, None, [_to(0, 12)]),
    "traced": (_N, 1, None, []),
    "python": (_N, 2, None, [_bad]),
    "parallel": (_N, 1, None, [_bad, _to(1, 3)]),
    "drawn": (_N, 1, None, []),
    "two kinds": (_N, 3, None, [_to(2, 4), _THREADS]),
    "filter": (_N, 3, None, [_to(2, 4)]),
    "python filter": (_N, 1, None, [_to(2, 4), _bad]),
    "take while": (_N, 1, None, [_to(3, 30), _FLAG]),
    "scan": (_N, 2, None, [_bad, _FLAG]),
    "overtaking": (_N, 0, None, [_bad, _to(1, 3)]),
    "overtaking interleave": (_N, 0, None, [_inner_drawn, _to(1, 4), _to(1, 2)]),
    "unique": (_N, 3, None, [_to(3, 9)]),
    "zip": (_N, 1, None, [_to(0, 20)]),
    "zip itself": (_N, 1, None, [_to(0, 3)]),
    "resample": (_N, 1, None, [_FLAG]),
    "pad": (_N, 1, None, [_to(3, 20)]),
    "flat_map": (_N, 2, None, [_inner_drawn]),
    "interleave": (_N, 2, None, [_inner_drawn, _to(1, 4), _to(1, 3), _THREADS]),
    "batch": (_N, 3, "batch", [_to(1, 5), _FLAG]),
    "window": (
        _N, 2, "batch",
        [_to(1, 5), _to(1, 5), _to(1, 2), _FLAG,
         _one("batches", "shuffled", "elements", "interleaved", "drawn")],
    ),
    "windows": (_N, 1, "windows", [_to(1, 5), _to(1, 5)]),
    "padded batch": (_N, 3, "batch", [_to(1, 4), _FLAG]),
    "ragged batch": (_N, 1, "batch", [_to(1, 4), _FLAG, _FLAG]),
    "bucket": (_N, 1, "batch", [_to(1, 3), _one("pad", "boundary", "none"), _FLAG]),
    "size bucket": (_N, 1, "batch", [_to(1, 4), _one("sizes", "pixels"), _FLAG]),
    "group": (_N, 2, "batch", [_to(1, 4), _to(1, 5), _to(1, 3), _bad]),
    "unbatch": (_B, 4, "number", []),
    "rebatch": (_B, 3, None, [_picks(4, 2, 1), _FLAG]),
    "map over batches": (_B, 2, None, [_bad]),
    "parse text": (("bytes",), 9, "number", [_bad]),
    "parse": (("record",), 20, "number", []),
    "parse and decode": (("record",), 8, "image", [_CROP]),
    "decode": (("picture",), 30, "image", [_CROP]),
    "mirror": (("image",), 16, None, []),
    "sum": (("image",), 16, "number", []),
    "image batch": (("image",), 30, "images", [_to(1, 4), _FLAG]),
    "unbatch images": (("images",), 30, "image", []),
    "sums": (("images",), 20, "batch", []),
}  # fmt: skip
SOURCES, STEPS = frozenset(_SOURCES), frozenset(_STEPS)

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
    kind: [name for name, (before, weight, _, _) in _STEPS.items() if kind in before for _ in range(weight)]
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
    pixels = np.random.default_rng(n).integers(0, 256, (2, 2, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).resize((8, 8)).save(stream, "JPEG", quality=90)
    data = stream.getvalue()
    match n % 11:
        case 3:
            return damage.bad_scan(data)
        case 6:
            return data[:100]
        case _:
            return data


FEATURES = {"image": gp.io.FixedLenFeature((), bytes), "number": gp.io.FixedLenFeature((), "int64")}


# ---- as chains


def build(program: Program, files: Path, caches: Path, skips: bool) -> tuple[Dataset, list[str]]:
    """The chain, and the names of the parts that it is made of: a step that does not fit here is left out.

    Args:
        program: what to build.
        files: what `write_files` wrote.
        caches: a folder for caches in files.
        skips: whether bad elements are skipped; then single batches are not chosen by index.
    """
    ds, names, numbers = _source(program.source, files), [program.source[0]], count()
    for step in program.steps:
        try:
            longer = _append(ds, step, caches / str(next(numbers)))
        except (gp.PlanError, gp.SpecError, TypeError):
            continue
        if skips and loses_batches(longer.plan) is not None:
            continue
        ds = longer
        names.append(step[0])
    return ds, names


def _source(source: Step, files: Path) -> Dataset:
    match source:
        case ("range", n):
            return Dataset.range(n)
        case ("slices", n):
            return Dataset.from_tensor_slices(np.arange(n) * 2)
        case ("list", n):
            return Dataset.from_list([np.arange(i % 4) for i in range(n)]).map(_total, traced=False)
        case ("tensors", n):
            return Dataset.from_tensors(np.int64(n)).repeat(n + 2)
        case ("generator", n, signed, bad):
            spec = gp.TensorSpec((), "int64") if signed else None
            return Dataset.from_generator(_counting(n, bad), output_signature=spec)
        case ("indexable", n, bad, calls):
            return Dataset.from_indexable(_Items(n, bad), gp.TensorSpec((), "int64"), num_parallel_calls=calls)
        case ("counter", n):
            return Dataset.counter(3, 2).take(n)
        case ("random", n, anew):
            return Dataset.random(seed=3, rerandomize_each_iteration=anew).take(n).map(lambda x: x % 50)
        case ("loaded", kind):
            return Dataset.load(files / kind)
        case ("loaded parts", cycle):
            return Dataset.load(files / "parts", reader_func=lambda parts: parts.interleave(lambda x: x, cycle))
        case ("text", pattern, readers):
            return gp.TextLineDataset(_names(files, pattern), _compression(pattern), num_parallel_reads=readers)
        case ("fixed", pattern, readers):
            return gp.FixedLengthRecordDataset(
                _names(files, pattern), 3, 6, 3, None, _compression(pattern), num_parallel_reads=readers
            )
        case ("records", pattern, readers):
            return gp.TFRecordDataset(_names(files, pattern), _compression(pattern), num_parallel_reads=readers)
        case ("files", shuffled, cycle, calls):
            names = Dataset.list_files(str(files / "*.tfrecord"), shuffle=shuffled, seed=1)
            return names.interleave(gp.TFRecordDataset, cycle_length=cycle, num_parallel_calls=calls)
        case ("pictures", n):
            return Dataset.from_tensor_slices(np.array([_picture(i) for i in range(n)], object))
    raise AssertionError(source)


def _names(files: Path, pattern: str) -> list[str]:
    return sorted(map(str, files.glob(pattern)))


def _compression(pattern: str) -> str:
    return "GZIP" if pattern.endswith(".gz") else ""


class _Items:
    """Numbers, some of which cannot be had."""

    def __init__(self, n: int, bad: tuple[int, int]) -> None:
        self.n, self.bad = n, bad

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, place: int) -> Any:
        if place % self.bad[0] == self.bad[1]:
            raise KeyError(place)
        return np.int64(place)


def _counting(n: int, bad: int | None) -> Callable[[], Any]:
    def numbers() -> Any:
        for i in range(n):
            if i == bad:
                raise ValueError("no more")
            yield np.int64(i)

    return numbers


def _append(ds: Dataset, step: Step, path: Path) -> Dataset:
    match step:
        case ("take" | "skip" | "repeat" | "prefetch" | "shuffle" | "cache" | "batch" | "unbatch", *args):
            return getattr(ds, step[0])(*args)  # type: ignore[no-any-return]
        case ("endless", n):
            return ds.repeat().take(n)
        case ("shard", n, index):
            return ds.shard(n, index % n, even=(None, "drop", "wrap")[(n + index) % 3])
        case ("shuffle all", seed, anew):
            return ds.shuffle(gp.ALL, seed, anew)
        case ("slice", start, stop, stride):
            return ds[start:stop:stride]
        case ("split", part):
            return ds.split([0.6, 0.4], seed=3)[part]
        case ("cache file",):
            return ds.cache(path)
        case ("snapshot", compression):
            return ds.snapshot(path, compression)
        case ("ignore errors",):
            return ds.ignore_errors()
        case ("enumerate", start):
            return ds.enumerate(start).map(lambda i, x: x)
        case ("assert", n):
            return ds.assert_cardinality(n)
        case ("rebatch", sizes, drop):
            return ds.rebatch(list(sizes), drop)
        case ("map over batches", bad):
            return ds.map(_plus(1, bad), traced=False)
        case ("concatenate" | "sample" | "sample by a dataset" | "choose" | "zip" | "zip itself", *_):
            return _joined(ds, step)
        case ("window" | "windows" | "padded batch" | "ragged batch" | "bucket" | "size bucket" | "group", *_):
            return _gathered(ds, step)
        case ("flat_map", form):
            return ds.flat_map(_inner(form))
        case ("interleave", form, cycle, block, calls):
            return ds.interleave(_inner(form), cycle, block, calls)
        case ("overtaking interleave", form, cycle, block):
            return ds.interleave(_inner(form), cycle, block, 2, deterministic=False)
        case ("parse text", bad):
            return ds.map(_plus(0, bad), traced=False)
        case ("parse",):
            return ds.map(lambda record: gp.io.parse_single_example(record, FEATURES)["number"])
        case ("parse and decode" | "decode" | "mirror" | "sum" | "sums" | "image batch" | "unbatch images", *_):
            return _pictured(ds, step)
    return _counted(ds, step)


def _counted(ds: Dataset, step: Step) -> Dataset:
    """Steps over numbers."""
    match step:
        case ("traced",):
            return ds.map(lambda x: x * 2 + 1)
        case ("python", bad):
            return ds.map(_plus(1, bad), traced=False)
        case ("parallel", bad, calls):
            return ds.map(_plus(2, bad), num_parallel_calls=calls, traced=False)
        case ("overtaking", bad, calls):
            return ds.map(_slowly(bad), num_parallel_calls=calls, traced=False, deterministic=False)
        case ("two kinds", m, calls):
            return ds.map(_of_two_kinds(m), num_parallel_calls=calls, traced=False)
        case ("drawn",):
            return ds.map(_drawn_for, rng=True)
        case ("filter", m):
            return ds.filter(lambda x: x % m != 1)
        case ("python filter", m, bad):
            return ds.filter(_some(m, bad))
        case ("take while", most, traced):
            return ds.take_while((lambda x: x < most) if traced else _below(most))
        case ("scan", bad, declared):
            return ds.scan(np.int64(0), _added(bad), spec=gp.TensorSpec((), "int64") if declared else None)
        case ("unique", m):
            return ds.map(lambda x: x % m).unique()
        case ("resample", known):
            return ds.rejection_resample(lambda x: x % 2, [0.3, 0.7], [0.5, 0.5] if known else None, seed=1).map(
                lambda label, x: x
            )
        case ("pad", n):
            return ds.map(lambda x: {"x": x}).pad_to_cardinality(n).map(lambda d: d["x"] * 2 + d["valid"])
    raise AssertionError(step)


def _joined(ds: Dataset, step: Step) -> Dataset:
    """A chain and parts of itself in one, or numbers beside it."""
    match step:
        case ("concatenate", few):
            return ds.concatenate(ds.take(few))
        case ("sample", seed, stop, anew):
            return Dataset.sample_from_datasets([ds, ds.skip(1)], [0.6, 0.4], seed, stop, anew)
        case ("sample by a dataset", stop):
            weights = Dataset.from_tensor_slices(np.array([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5]])).repeat()
            return Dataset.sample_from_datasets([ds, ds.take(3)], weights, 1, stop)
        case ("choose", picks, stop):
            choices = Dataset.from_tensor_slices(np.array(picks, np.int64))  # 2 is outside
            return Dataset.choose_from_datasets([ds, ds.take(2)], choices, stop)
        case ("zip", n):
            return Dataset.zip(ds, Dataset.range(n)).map(lambda a, b: a * 7 + b)
        case ("zip itself", ahead):
            return Dataset.zip(ds, ds.skip(ahead)).map(lambda a, b: a + b)
    raise AssertionError(step)


def _gathered(ds: Dataset, step: Step) -> Dataset:
    """Batches of numbers."""
    match step:
        case ("window", size, shift, stride, drop, how):
            windows = ds.window(size, shift, stride, drop)
            if how == "shuffled":
                windows = windows.shuffle(3)
            if how == "interleaved":
                return windows.interleave(lambda w: w, cycle_length=2).batch(2)
            if how == "elements":
                return windows.flat_map(lambda w: w).batch(2)
            if how == "drawn":
                return windows.map(lambda w, rng: np.int64(rng.integers(0, 50)), rng=True, traced=False).batch(2)
            return windows.flat_map(lambda w: w.batch(2))
        case ("windows", size, shift):
            return ds.window(size, shift)
        case ("padded batch", size, drop):
            return _rows(ds).padded_batch(size, drop_remainder=drop).map(_totals, traced=False)
        case ("ragged batch", size, drop, again):
            rows = _rows(ds).ragged_batch(size, drop)
            return (
                rows.unbatch().map(_total, traced=False).batch(2) if again else rows.map(_ragged_totals, traced=False)
            )
        case ("bucket", size, how, drop):
            batches = _rows(ds).bucket_by_sequence_length(
                lambda x: len(x),
                [2, 4],
                [size, 1, size + 1],
                no_padding=how == "none",
                pad_to_bucket_boundary=how == "boundary",
                drop_remainder=drop,
            )
            return batches.map(_ragged_totals, traced=False)
        case ("size bucket", size, how, drop):
            limits: Any = {"max_pixels": 9 * size} if how == "pixels" else {"buckets": [(1, 3), (5, 3)]}
            batches = ds.bucket_by_image_size(batch_size=size, size_func=_size, drop_remainder=drop, **limits)
            return batches.map(lambda x, size: x + size[0])
        case ("group", m, size, rows, bad):
            return ds.group_by_window(_key(m, bad), lambda key, group: group.batch(rows), size)
    raise AssertionError(step)


def _pictured(ds: Dataset, step: Step) -> Dataset:
    """Steps over images."""
    match step:
        case ("parse and decode", crop):
            return ds.map(lambda r: _cropped(ops.decode_jpeg(gp.io.parse_single_example(r, FEATURES)["image"]), crop))
        case ("decode", crop):
            return ds.map(lambda x: _cropped(ops.decode_jpeg(x, channels=3), crop))
        case ("mirror",):
            return ds.map(lambda x: ops.random_flip_left_right(x))
        case ("sum",):
            return ds.map(lambda x: np.asarray(x).sum(dtype=np.int64), traced=False)
        case ("image batch", size, drop):
            return ds.batch(size, drop)
        case ("unbatch images",):
            return ds.unbatch()
        case ("sums",):
            return ds.map(lambda x: np.asarray(x).sum(axis=(1, 2, 3), dtype=np.int64), traced=False)
    raise AssertionError(step)


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


def _is_bad(x: Any, bad: tuple[int, int]) -> bool:
    return _number(x) % bad[0] == bad[1]


def _plus(more: int, bad: tuple[int, int]) -> Callable[[Any], Any]:
    def plus(x: Any) -> Any:
        if _is_bad(x, bad):
            raise ValueError(f"{_number(x)} is bad")
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
        if _is_bad(x, bad):
            raise ValueError(f"{_number(x)} is bad")
        return _number(x) % m != 0

    return some


def _below(most: int) -> Callable[[Any], bool]:
    def below(x: Any) -> bool:
        return bool(_number(x) < most)

    return below


def _added(bad: tuple[int, int]) -> Callable[[Any, Any], Any]:
    def added(total: Any, x: Any) -> Any:
        if _is_bad(x, bad):
            raise ValueError(f"{_number(x)} is bad")
        return np.int64(total + x), np.int64(total * 2 + x)

    return added


def _key(m: int, bad: tuple[int, int]) -> Callable[[Any], Any]:
    def key(x: Any) -> Any:
        if _is_bad(x, bad):
            raise ValueError(f"{_number(x)} has no key")
        return np.int64(_number(x) % m)

    return key


def _rows(ds: Dataset) -> Dataset:
    """Numbers as rows of 0 to 3 times the number."""
    return ds.map(lambda x: np.full(_number(x) % 4, _number(x), np.int64), traced=False)


def _size(x: Any) -> tuple[int, int]:
    """A height of 1 to 3, and a width of 3."""
    return 1 + _number(x) % 3, 3


def _total(x: Any) -> Any:
    return np.int64(_number(x))


def _totals(x: Any) -> Any:
    return np.asarray(x).sum(axis=1, dtype=np.int64)


def _ragged_totals(x: Any) -> Any:
    rows = x.to_list() if isinstance(x, gp.Ragged) else np.asarray(x)
    return np.array([sum(row) for row in rows], np.int64)


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
    if _number(x) % 3 == 1:
        raise ValueError(f"{_number(x)} has no elements")
    return Dataset.range(_number(x) % 4)


def _generated(x: Any) -> Dataset:
    n = _number(x)
    return Dataset.from_generator(lambda: iter([np.int64(n)] * (n % 4)), output_signature=gp.TensorSpec((), "int64"))


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
