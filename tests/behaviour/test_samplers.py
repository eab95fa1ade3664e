"""Samplers: places that come again are other draws, a sampler is told its epoch, a resume has its places or none."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.load.state import sealed
from gpupipe.plan.places import visits_of
from tests.behaviour.model import plain
from tests.behaviour.test_pick import files

Range = gp.Dataset.range

PLACES = [5, 3, 17, 3, 3, 19, 5, 0]


def _drawn(x: Any, rng: np.random.Generator) -> tuple[int, float]:
    return int(x), float(rng.random())


def drawn(ds: gp.Dataset) -> gp.Dataset:
    return ds.map(_drawn, rng=True)


def images(count: int = 12) -> gp.Dataset:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 12, 12, 3), dtype=np.uint8)
    return gp.Dataset.from_tensor_slices((pixels, np.arange(count))).map(lambda x, y: (ops.random_crop(x, (6, 6)), y))


def found(ds: gp.Dataset, epoch: int = 0) -> list[Any]:
    return [plain(element) for element in ds.iterator(epoch=epoch)]


def in_passes(ds: gp.Dataset, places: list[int], epoch: int = 0) -> list[Any]:
    """What each place gives on each visit: its element of that pass of a repeat."""
    n, passes, seen = len(ds), ds.repeat().epoch(epoch), Counter[int]()
    wanted = []
    for place in places:
        wanted.append(plain(passes[place + n * seen[place]]))
        seen[place] += 1
    return wanted


def _cached(ds: gp.Dataset) -> gp.Dataset:
    ds = ds.cache()
    list(ds)
    return ds


CHAINS: dict[str, Any] = {
    "range": lambda: drawn(Range(20)),
    "threads": lambda: Range(20).map(_drawn, rng=True, num_parallel_calls=3),
    "image": lambda: images(20),
    "joined": lambda: drawn(Range(8).concatenate(Range(12))),
    "repeated": lambda: drawn(Range(10).repeat(2)),
    "zipped": lambda: drawn(gp.Dataset.zip((Range(20), Range(20))).map(lambda a, b: a + 0 * b)),
    "cached": lambda: drawn(_cached(Range(20))),
    "sliced": lambda: drawn(Range(40)[::2]),
    "batched": lambda: Range(60).map(_drawn, rng=True).batch(3),
    "a short batch": lambda: Range(59).map(_drawn, rng=True).batch(3),
    "padded": lambda: Range(60).map(_drawn, rng=True).padded_batch(3),
    "picked": lambda: drawn(Range(20).pick(range(19, -1, -1))),
}


@pytest.mark.parametrize("rules", [True, False], ids=["rules", "no rules"])
@pytest.mark.parametrize("name", CHAINS)
def test_a_place_that_comes_again_has_the_random_numbers_of_another_pass(name: str, rules: bool) -> None:
    ds = CHAINS[name]()
    wanted = in_passes(ds, PLACES, 2)
    if not rules:
        ds = ds.with_options(gp.Options(disabled_rules=("sink_selects", "choose_rows", "choose_batches")))

    for given in (PLACES, iter(PLACES), lambda: iter(PLACES)):
        assert found(ds.pick(given), 2) == wanted
    chosen = ds.pick(PLACES).epoch(2)
    assert [plain(chosen[i]) for i in (7, 4, 1, 3)] == [wanted[i] for i in (7, 4, 1, 3)]
    assert len({str(x) for x in wanted}) == len(PLACES)
    again = found(ds.pick(PLACES, redraw=False), 2)
    assert again[1] == again[3] == again[4] == wanted[1]


def test_records_of_files_that_come_again_are_the_same_records_with_other_numbers(tmp_path: Path) -> None:
    ds = files(tmp_path).map(lambda record, rng: (record, rng.random()), rng=True)
    n = len(ds)
    places = [0, n - 1, 0, 7, 7, 0]

    assert found(ds.pick(places)) == in_passes(ds, places)
    assert [x[0] for x in found(ds.pick(lambda: places))] == [plain(ds[i])[0] for i in places]


def _inside(folder: Path) -> gp.Dataset:
    files(folder)
    names = gp.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False)
    return names.flat_map(lambda path: gp.TFRecordDataset(path).shuffle(gp.ALL, seed=4))


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: Range(20).shuffle(gp.ALL, seed=3),
        lambda folder: Range(20).shuffle(gp.ALL, streams=2, window=4),
        lambda folder: Range(20).shuffle(gp.ALL).batch(2),
        _inside,
    ],
    ids=["all", "streams", "batches", "inside"],
)
def test_a_place_that_comes_again_is_the_same_element_behind_a_shuffle(make: Any, tmp_path: Path) -> None:
    ds, places = make(tmp_path), [3, 9, 3, 3, 9]
    fixed = ds.epoch(1)

    assert found(ds.pick(places), 1) == [plain(fixed[i]) for i in places]
    assert found(ds.pick(lambda: places), 1) == [plain(fixed[i]) for i in places]


@pytest.mark.parametrize("given", [[0, 0], lambda: iter([0, 0])], ids=["list", "function"])
def test_visits_passes_and_picks_of_picks_all_draw_different_numbers(given: Any) -> None:
    for ds in (
        drawn(Range(1).pick(given).repeat(3)),
        drawn(Range(1).repeat(2).pick(given)) if isinstance(given, list) else drawn(Range(1).pick(given).repeat(2)),
        drawn(Range(1).pick([0, 0]).pick([0, 1, 0, 1])),
        drawn(Range(1).pick([0, 0]).repeat(2).pick([0, 3, 0, 1, 2])),
    ):
        values = [x[1] for x in found(ds)]
        assert len(set(values)) == len(values) >= 2


@pytest.mark.parametrize("backend", ["numpy", "fast", "dali"])
def test_an_endless_sampler_crops_an_image_in_another_way_each_time(backend: Any) -> None:
    def endless() -> Iterator[int]:
        rng = np.random.default_rng(0)
        while True:
            yield from rng.permutation(12).tolist()

    crops, same = defaultdict(set), defaultdict(set)
    base = images().with_options(gp.Options(device="cpu", backend=backend))
    for x, y in base.pick(endless).batch(6).take(20):
        for image, label in zip(x, y, strict=True):
            crops[int(label)].add(image.tobytes())
    for x, y in base.pick(endless, redraw=False).batch(6).take(20):
        for image, label in zip(x, y, strict=True):
            same[int(label)].add(image.tobytes())

    # Of 49 windows 10 drawn with replacement: 9.1 distinct on average, and never fewer than 6 in 12 images.
    assert min(map(len, crops.values())) >= 6
    assert set(map(len, same.values())) == {1}


def test_visits_of_indices_are_how_often_each_came_before() -> None:
    indices = np.random.default_rng(1).integers(0, 7, 200)
    seen = Counter[int]()
    for index, visit in zip(indices.tolist(), visits_of(indices).tolist(), strict=True):
        assert visit == seen[index]
        seen[index] += 1
    assert visits_of(np.zeros(0, np.int64)).tolist() == []


# ---- the epoch of a sampler


def permuted(epoch: int) -> list[int]:
    order: list[int] = np.random.default_rng(epoch).permutation(20).tolist()
    return order * 2


class Counting:
    """A sampler that is told its epoch, as PyTorch's DistributedSampler."""

    def __init__(self) -> None:
        self.epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(permuted(self.epoch))

    def __len__(self) -> int:
        return 40


SAMPLERS: dict[str, Any] = {
    "function": lambda: permuted,
    "default": lambda: lambda epoch=7: permuted(epoch),
    "set_epoch": Counting,
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_gets_the_epoch_and_a_new_process_goes_on_in_it(name: str) -> None:
    ds = drawn(Range(20)).pick(SAMPLERS[name]()).batch(3)
    whole = [found(ds, epoch) for epoch in range(4)]

    assert [[int(x) for batch in epoch for x in batch[0]] for epoch in whole] == [permuted(e) for e in range(4)]
    for epoch, count in itertools.product((0, 2, 3), (0, 1, 6, 13)):
        items = ds.iterator(epoch=epoch)
        before = [plain(next(items)) for _ in range(count)]
        again = drawn(Range(20)).pick(SAMPLERS[name]()).batch(3).iterator(epoch=epoch)
        again.load_state_dict(items.state_dict())
        assert before + [plain(x) for x in again] == whole[epoch]


def test_a_resume_with_other_places_is_refused() -> None:
    rng = np.random.default_rng(0)
    ds = Range(20).pick(lambda: rng.permutation(20))
    items = ds.iterator(epoch=0)
    for _ in range(6):
        next(items)

    again = ds.iterator(epoch=0)
    again.load_state_dict(items.state_dict())
    with pytest.raises(gp.StateError, match=r"needs the places .* got .* others before the position .* epoch 0"):
        next(again)


def test_the_length_of_a_sampler_is_that_of_the_dataset() -> None:
    ds = Range(20).pick(Counting())

    assert len(ds) == 40 and len(ds.batch(3)) == 14 and len(ds.as_numpy_iterator().__class__.__name__) > 0
    assert len(Range(20).batch(2).pick(Counting())) == 40
    with pytest.raises(TypeError):
        len(Range(20).pick(lambda: iter([1])))


class Wrong(Counting):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    def __len__(self) -> int:
        return 10


@pytest.mark.parametrize(("count", "text"), [(9, "only 9"), (11, "more than 10")])
def test_a_sampler_of_another_length_than_it_says_is_an_error(count: int, text: str) -> None:
    items = iter(Range(20).pick(Wrong(count)))
    assert [int(next(items)) for _ in range(9)] == list(range(9))
    with pytest.raises(gp.PlanError, match=f"as len\\(\\) of the Wrong said, 10, got {text}"):
        list(items)


def _global() -> Any:
    return np.random.permutation(20)


class Captured:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __iter__(self) -> Iterator[int]:
        return iter(self.rng.permutation(20).tolist())


@pytest.mark.parametrize(
    ("given", "source"),
    [(_global, "np.random.permutation"), (Captured(), "self.rng"), (permuted, ""), (Counting(), ""), ([3, 3], "")],
    ids=["global", "captured", "of the epoch", "told the epoch", "list"],
)
def test_a_sampler_without_a_seed_is_a_finding(given: Any, source: str) -> None:
    findings = [str(one) for one in Range(20).pick(given).check()]

    assert [f"pick draws from {source}" in one and "function of the epoch" in one for one in findings] == [True] * bool(
        source
    ), findings


# ---- samplers of PyTorch and of libraries above it


def _torch_samplers() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    data = torch.utils.data
    weights = [1.0] * 10 + [3.0] * 10

    def seeded(seed: int = 5) -> Any:
        return torch.Generator().manual_seed(seed)

    return {
        "random": lambda: data.RandomSampler(range(20)),
        "random, seeded": lambda: data.RandomSampler(range(20), generator=seeded()),
        "with replacement": lambda: data.RandomSampler(range(20), True, 30, generator=seeded()),
        "weighted": lambda: data.WeightedRandomSampler(weights, 50),
        "weighted, seeded": lambda: data.WeightedRandomSampler(weights, 50, generator=seeded()),
        "subset": lambda: data.SubsetRandomSampler([2, 4, 6, 8]),
        "distributed": lambda: data.DistributedSampler(range(20), 3, 1, seed=2),
    }


NAMES = ("random", "random, seeded", "with replacement", "weighted", "weighted, seeded", "subset", "distributed")


@pytest.mark.parametrize("name", NAMES)
def test_samplers_of_pytorch_draw_by_epoch_and_go_on_in_any(name: str) -> None:
    make = _torch_samplers()[name]
    first = list(make())
    sampler = make()
    ds = drawn(Range(20)).pick(sampler)
    whole = [found(ds, epoch) for epoch in range(3)]

    assert len(ds) == len(first) == len(whole[0])
    assert len({str([x[0] for x in epoch]) for epoch in whole}) == 3
    if "seeded" in name or name == "distributed":
        assert [x[0] for x in whole[0]] == [int(i) for i in first]  # the first epoch is PyTorch's own
    assert found(ds.with_options(gp.Options(seed=8)), 0) != whole[0]
    for epoch, count in ((0, 3), (2, 0), (2, 3)):
        items = ds.iterator(epoch=epoch)
        before = [plain(next(items)) for _ in range(count)]
        again = drawn(Range(20)).pick(make()).iterator(epoch=epoch)
        again.load_state_dict(items.state_dict())
        assert before + [plain(x) for x in again] == whole[epoch]
    if name != "distributed":
        assert [int(i) for i in make()] == [int(i) for i in sampler] or "seeded" not in name  # it was not drawn from


def test_tensors_are_places() -> None:
    torch = pytest.importorskip("torch")

    assert found(Range(20).pick(torch.where(torch.arange(20) % 7 == 1)[0])) == [1, 8, 15]
    assert found(Range(20).pick([torch.tensor(4), torch.tensor(2)])) == [4, 2]
    assert found(Range(20).pick(iter(torch.tensor([4, 2, 4])))) == [4, 2, 4]
    with pytest.raises(gp.PlanError, match="needs integers of one dtype"):
        Range(20).pick(torch.ones(3))


# ---- states of versions before places drew anew


def test_an_old_state_is_refused_where_places_come_again_and_names_the_way_on() -> None:
    def chain(**how: Any) -> Any:
        return drawn(Range(20)).pick(PLACES, **how).iterator(epoch=0)

    items = chain(redraw=False)
    before = [plain(next(items)) for _ in range(3)]
    old = items.state_dict()
    assert old["law"] == 2  # as every chain's without a pick that draws anew
    with pytest.raises(gp.StateError, match=r"another draw.*pick\(\.\.\., redraw=False\)"):
        chain().load_state_dict(old)
    again = chain(redraw=False)
    again.load_state_dict(old)
    assert before + [plain(x) for x in again] == found(drawn(Range(20)).pick(PLACES, redraw=False))
    assert Range(20).pick([4, 2]).iterator(epoch=0).state_dict()["law"] == 2  # none comes again
    newer = chain().state_dict()
    with pytest.raises(gp.StateError, match="law of random numbers 2, got 3"):
        chain(redraw=False).load_state_dict(sealed(newer))


# ---- batches of places


class Batches:
    """A batch sampler of the user's own."""

    batch_size = 3

    def __init__(self, lists: list[Any]) -> None:
        self.lists = lists

    def __iter__(self) -> Iterator[Any]:
        return iter(self.lists)

    def __len__(self) -> int:
        return len(self.lists)


LISTS = [[4, 2, 4], [1, 4, 0], [7]]


@pytest.mark.parametrize("given", [LISTS, tuple(map(tuple, LISTS)), Batches(LISTS)], ids=["list", "tuple", "sampler"])
def test_lists_of_places_make_batches(given: Any) -> None:
    ds = drawn(Range(9))
    wanted = in_passes(ds, [4, 2, 4, 1, 4, 0, 7])
    batches = ds.pick(given)

    assert len(batches) == 3
    assert [list(zip(*plain(batch), strict=True)) for batch in batches.iterator(epoch=0)] == [
        [tuple(x) for x in wanted[i : i + 3]] for i in (0, 3, 6)
    ]
    items = batches.iterator(epoch=0)
    next(items)
    again = batches.iterator(epoch=0)
    again.load_state_dict(items.state_dict())
    assert len(list(again)) == 2


def test_batch_samplers_of_pytorch_make_batches_by_epoch() -> None:
    data = pytest.importorskip("torch").utils.data

    for drop, count in ((True, 5), (False, 6)):
        sampler = data.BatchSampler(data.DistributedSampler(range(23), 1, 0, seed=3), 4, drop)
        ds = Range(23).pick(sampler)
        epochs = [found(ds, epoch) for epoch in range(2)]
        for epoch, batches in enumerate(epochs):
            sampler.sampler.set_epoch(epoch)
            assert batches == [list(map(int, batch)) for batch in sampler]
        assert len(ds) == len(epochs[0]) == count and epochs[0] != epochs[1]


@pytest.mark.parametrize(
    ("lists", "number", "size"), [([[1, 2, 3], [1], [2, 3, 4]], 1, 1), ([[1, 2, 3], [1, 2, 3, 4]], 1, 4), ([[]], 0, 0)]
)
def test_a_batch_sampler_of_other_sizes_than_it_says_is_an_error(lists: Any, number: int, size: int) -> None:
    text = f"the batch_size of Batches, 3, but the last one, got {size} places in batch {number}; give pick a list"
    with pytest.raises(gp.DataError, match=text):
        list(Range(9).pick(Batches(lists)))


def test_a_list_of_lists_may_have_batches_of_many_sizes() -> None:
    lists = [[1], [2, 3, 3], [4, 5], [6, 7, 8]]
    ds = drawn(Range(9)).pick(lists)

    assert len(ds) == 4
    assert [list(batch[0]) for batch in found(ds)] == lists
    with pytest.raises(gp.PlanError, match="a place in each batch, got none in batch 1"):
        Range(9).pick([[1], []])


# ---- random chains


def _again(*columns: Any) -> tuple[Any, ...]:
    *values, rng = columns
    return (*values, float(rng.random()))


BELOW: dict[str, Any] = {
    "map": lambda ds, r: ds.map(_again, rng=True),
    "threads": lambda ds, r: ds.map(_again, rng=True, num_parallel_calls=2),
    "shuffle": lambda ds, r: ds.shuffle(gp.ALL, seed=r.randint(0, 3)),
    "cache": lambda ds, r: ds.cache(),
    "repeat": lambda ds, r: ds.repeat(2),
    "joined": lambda ds, r: ds.concatenate(ds),
    "slice": lambda ds, r: ds[1:],
}

ABOVE: dict[str, Any] = {
    "map": BELOW["map"],
    "threads": BELOW["threads"],
    "shuffle": lambda ds, r: ds.shuffle(4, seed=1),
    "prefetch": lambda ds, r: ds.prefetch(2),
    "repeat": lambda ds, r: ds.repeat(2),
    "take": lambda ds, r: ds.take(9),
    "shard": lambda ds, r: ds.shard(2, 1),
}


def random_chain(seed: int, form: Any, off: bool = False) -> gp.Dataset:
    """A chain with a pick of places that come again, given as a list or by a function."""
    r = random.Random(seed)
    ds = Range(r.randint(3, 9)).map(lambda x: (x,))
    for name in r.choices(sorted(BELOW), k=r.randint(0, 3)):
        ds = BELOW[name](ds, r)
    if batched := r.random() < 0.3:
        ds = ds.batch(r.choice([1, 2, 3]))
    places = [r.randrange(len(ds)) for _ in range(r.randint(2, 12))]
    ds = ds.pick(form([*places, places[0]]))
    if r.random() < 0.3 and form is list:
        ds = ds.pick([0, 1, 0])
    for name in r.choices(sorted(ABOVE), k=r.randint(0, 3)):
        if not (batched and name in BELOW):
            ds = ABOVE[name](ds, r)
    rules = ("sink_selects", "choose_rows", "choose_batches") if off else ()
    return ds.with_options(gp.Options(disabled_rules=rules))


@pytest.mark.parametrize("form", [list, lambda places: lambda: iter(places)], ids=["list", "function"])
def test_random_chains_give_the_same_without_rules_and_after_a_resume(form: Any) -> None:
    for seed in range(60):
        whole = found(random_chain(seed, form), seed % 3)
        assert found(random_chain(seed, form, off=True), seed % 3) == whole, seed

        items = random_chain(seed, form).iterator(epoch=seed % 3)
        before = [plain(next(items)) for _ in range(seed % (len(whole) + 1))]
        again = random_chain(seed, form).iterator(epoch=seed % 3)
        again.load_state_dict(items.state_dict())
        assert before + [plain(x) for x in again] == whole, seed
