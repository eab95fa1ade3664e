"""A state taken behind any element goes on with exactly the next one."""

from __future__ import annotations

import json
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from tests.chains import damage
from tests.chains.damage import write
from tests.reliability.consumer import crop
from tests.reliability.resume import behind, goes_on, taken


def twice(x: Any) -> Any:
    return x * 2


def odd(x: Any) -> Any:
    return bool(np.asarray(x) % 2)  # `bool` makes it ordinary Python


def fails_at_seven(x: Any) -> Any:
    if int(np.asarray(x)) % 7 == 6:
        raise ValueError("seven")
    return np.asarray(x) + 0


def fails_first(x: Any) -> Any:
    if int(x) < 3:
        raise ValueError("first")
    return np.asarray(x) + 0


def counted() -> Any:
    yield from (np.int64(i) for i in range(23))


def pairs(x: Any) -> Any:
    return gp.Dataset.from_tensors(x).repeat(2)


def some(x: Any) -> Any:
    return gp.Dataset.range(int(np.asarray(x)) % 4)


def add(state: Any, x: Any) -> Any:
    return state + np.asarray(x), state


def run(n: int = 23) -> Any:
    return gp.Dataset.range(n)


CHAINS: dict[str, Any] = {
    "range": lambda: run(),
    "slices": lambda: gp.Dataset.from_tensor_slices({"a": np.arange(9.0), "b": [str(i) for i in range(9)]}),
    "list": lambda: gp.Dataset.from_list([{"a": i} for i in range(5)]),
    "generator": lambda: gp.Dataset.from_generator(counted, output_signature=gp.TensorSpec((), "int64")),
    "counter": lambda: gp.Dataset.counter(3, 2).take(15),
    "counter of floats": lambda: gp.Dataset.counter(0.1, 0.1, dtype="float32").take(1100).skip(1080),
    "random": lambda: gp.Dataset.random(seed=3).take(1040).skip(1020),
    "shard": lambda: run().shard(3, 1),
    "places": lambda: run(12).map(fails_at_seven).pick([9, 7, 7, 2, 11, 0]),
    "repeat": lambda: run(5).repeat(4),
    "enumerate": lambda: run().map(odd).enumerate(start=5),
    "concatenate": lambda: run(5).concatenate(run(4)).concatenate(run(3)),
    "zip": lambda: gp.Dataset.zip((run(7), run(9).shuffle(4))),
    "shuffle": lambda: run().shuffle(6, seed=1),
    "global shuffle": lambda: run(40).shuffle(gp.ALL, seed=2),
    "streams": lambda: run(40).shuffle(gp.ALL, seed=2, streams=3, window=4).map(twice),
    "rebatch": lambda: run().batch(4).rebatch([2, 3]),
    "padded": lambda: run().map(lambda x: np.arange(int(np.asarray(x)) % 4), traced=False).padded_batch(3),
    "ragged": lambda: run().map(lambda x: np.arange(int(np.asarray(x)) % 4), traced=False).ragged_batch(3),
    "filter": lambda: run().filter(lambda x: x % 3 == 0),
    "map with numbers": lambda: run().map(lambda x, rng: rng.random() + np.asarray(x), rng=True),
    "map in threads": lambda: run().map(lambda x: np.asarray(x) + 1, num_parallel_calls=3, traced=False),
    "flat_map": lambda: run(9).flat_map(pairs),
    "interleave": lambda: run(9).interleave(pairs, cycle_length=3),
    "interleave in Python": lambda: run(12).interleave(some, cycle_length=4, block_length=2),
    "prefetch": lambda: run().prefetch(3),
    "cache, repeat": lambda: run(7).map(odd).cache().repeat(3),
    "take_while": lambda: run().take_while(lambda x: x < 9).repeat(2),
    "scan": lambda: run().scan(np.int64(0), add),
    "unique": lambda: run().map(lambda x: x % 5).unique(),
    "window, flat_map": lambda: run().window(3, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(3)),
    "group_by_window": lambda: run().group_by_window(
        lambda x: np.asarray(x, np.int64) % 3, lambda key, window: window.batch(4), window_size=4
    ),
    "bucket": lambda: run().bucket_by_sequence_length(
        lambda x: np.asarray(x, np.int32), bucket_boundaries=[5, 12], bucket_batch_sizes=[2, 3, 4], no_padding=True
    ),
    "buckets of sizes": lambda: (
        run().shuffle(7).bucket_by_image_size([(2, 3), (3, 2)], 3, size_func=lambda x: (1 + int(np.asarray(x)) % 5, 3))
    ),
    "sample": lambda: gp.Dataset.sample_from_datasets([run(9), run(12).shuffle(3)], [0.3, 0.7], seed=1),
    "choose": lambda: gp.Dataset.choose_from_datasets([run(9), run(12)], run(18).map(lambda x: x % 2)),
    "resample": lambda: run(60).rejection_resample(lambda x: x % 2, [0.2, 0.8], seed=1),
    "pad": lambda: gp.Dataset.from_tensor_slices({"a": np.arange(5)}).pad_to_cardinality(9),
    "assert too many": lambda: run(5).filter(odd).assert_cardinality(4),
    "ignore_errors": lambda: run().map(fails_at_seven).ignore_errors().batch(3),
    "errors": lambda: run().map(fails_at_seven).batch(3),
    "errors in windows": lambda: run().map(fails_at_seven).batch(1).window(3, shift=1),
    "errors in rebatch": lambda: run().map(fails_at_seven).batch(2).rebatch(3),
    "errors in a zip": lambda: gp.Dataset.zip((run(), run().map(fails_at_seven).batch(2))),
    "errors in a shuffle": lambda: run().map(fails_at_seven).batch(1).shuffle(4).repeat(2),
    "errors at the begin": lambda: run(9).map(fails_first),
    "errors at the begin, in threads": lambda: run(9).map(fails_first, num_parallel_calls=2),
    "indexable": lambda: gp.Dataset.from_indexable(list(range(20))).shuffle(gp.ALL).batch(3),
}


def with_options(build: Any, **options: Any) -> Any:
    return lambda: build().with_options(gp.Options(**options))


@pytest.mark.parametrize(
    ("name", "on_error"),
    [
        (name, policy)
        for n, name in enumerate(CHAINS)  # all policies where something fails, else one in its turn
        for k, policy in enumerate(("raise", "skip", "replace"))
        if "errors" in name or "places" in name or n % 3 == k
    ],
)
def test_a_state_goes_on_with_the_next_element(name: str, on_error: str) -> None:
    build = with_options(CHAINS[name], on_error=on_error)
    with iter(build()) as items:
        count = len(taken(items))
    goes_on(build, None if count < 30 else [0, 1, 2, 7, 20, count])


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_nothing_but_bad_images_at_the_begin(on_error: Any, tmp_path: Path) -> None:
    images = [damage.bad_scan(damage.jpeg(n)) if n < 13 else damage.jpeg(n) for n in range(30)]
    write(tmp_path / "images", [damage.example(n, image) for n, image in enumerate(images)])
    options = gp.Options(device="cpu", backend="numpy", on_error=on_error)

    goes_on(lambda: gp.TFRecordDataset(tmp_path / "images").map(crop).batch(4).with_options(options))


def slow(x: Any) -> Any:
    time.sleep(0.0004 * (hash((int(x), 5)) % 4))
    return np.asarray(x) + 0


def mixed_up(ds: Any, calls: int = 3) -> Any:
    return ds.map(slow, num_parallel_calls=calls, deterministic=False)


def in_any_order(x: Any) -> Any:
    return mixed_up(run(4))


def called_in_any_order(x: Any) -> Any:
    return mixed_up(run(int(x) % 3 + 2))


HOLDS: dict[str, Any] = {
    "shuffle": lambda: mixed_up(run(40)).shuffle(7),
    "unbatch": lambda: mixed_up(run(40)).batch(4).unbatch(),
    "group_by_window": lambda: mixed_up(run(40)).group_by_window(
        lambda x: np.asarray(x, np.int64) % 3, lambda key, window: window.batch(4), window_size=4
    ),
    "zip": lambda: gp.Dataset.zip((mixed_up(run(40)), run(40))),
    "cache": lambda: mixed_up(run(40)).cache().batch(3),
    "interleave": lambda: run(8).interleave(in_any_order, cycle_length=3),
    "shard": lambda: mixed_up(run(40)).shard(3, 1, even="drop"),
}
"""Steps that hold some of it."""


def rows(elements: list[Any]) -> Counter[int]:
    found: Counter[int] = Counter()
    for _, leaves in elements:
        dtype, _, data = leaves[0]
        found.update(np.frombuffer(data, dtype).ravel().tolist())
    return found


@pytest.mark.parametrize("name", HOLDS)
def test_elements_in_any_order_that_a_step_holds_have_no_state(name: str) -> None:
    with iter(HOLDS[name]()) as items:
        items.state_dict()  # nothing came yet
        next(items)
        with pytest.raises(gp.StateError, match=rf"{name}.* at .*what is ready first.*deterministic=True"):
            items.state_dict()
        taken(items)
        assert items.state_dict()["stand"] == "end"


def test_a_good_element_in_any_order_that_stands_in_has_no_state() -> None:
    with iter(with_options(lambda: mixed_up(run(40)).batch(3), on_error="replace")()) as items:
        next(items)
        with pytest.raises(gp.StateError, match=r"replace.*what is ready first"):
            items.state_dict()


@pytest.mark.parametrize("batches", [True, False])
def test_records_in_a_shuffle_buffer_have_a_state_in_any_order(batches: bool, tmp_path: Path) -> None:
    for i in range(5):
        write(tmp_path / f"{i}.tfrecord", [b"%d" % (100 * i + j) for j in range(11 + i)])

    def build() -> Any:
        files = gp.Dataset.list_files(str(tmp_path / "*"), seed=1)
        ds = files.interleave(gp.TFRecordDataset, cycle_length=3, num_parallel_calls=2, deterministic=False)
        ds = ds.shuffle(16).repeat(2)
        return ds.batch(4).prefetch(2) if batches else ds

    def numbers(count: int | None, items: Any) -> list[int]:
        return [int(x) for element in islice(items, count) for x in np.ravel(element)]

    with iter(build()) as items:
        whole = Counter(numbers(None, items))
    for trial in range(0, 30 if batches else 120, 3):
        got: list[int] = []
        state: Any = None
        for count in (trial, 2, None):
            with iter(build()) as items:
                if state is not None:
                    items.load_state_dict(state)
                got += numbers(count, items)
                state = json.loads(json.dumps(items.state_dict()))
        assert Counter(got) == whole, trial


def test_what_is_no_record_has_no_state_in_any_order() -> None:
    texts = gp.Dataset.from_tensor_slices([b"%d" % i for i in range(40)])
    mixed = run(3).interleave(lambda x: texts, cycle_length=2, deterministic=False)
    with iter(mixed.shuffle(9)) as items:
        next(items)
        with pytest.raises(gp.StateError, match=r"needs records in shuffle\(9\).*deterministic=True"):
            items.state_dict()


def test_datasets_in_any_order_that_nobody_expected_are_refused() -> None:
    with iter(run(9).flat_map(called_in_any_order).shuffle(3)) as items:
        items.state_dict()
        next(items)
        with pytest.raises(gp.StateError, match=r"flat_map\(called_in_any_order\(\)\) at .*deterministic=True"):
            items.state_dict()


@pytest.mark.parametrize("size", [1, 3])
def test_a_file_that_was_filled_in_any_order_is_needed_to_go_on(size: int, tmp_path: Path) -> None:
    def build() -> Any:
        return mixed_up(run(12)).cache(str(tmp_path / "cache")).repeat(2).batch(size)

    with iter(build()) as items:
        before = taken(items, 18 // size)
        state = items.state_dict()
    after = behind(build(), state)
    for path in tmp_path.iterdir():
        path.unlink()
    with iter(build()) as items:
        items.load_state_dict(state)
        with pytest.raises(gp.StateError, match=r"needs .*cache.*, which cache filled as elements were ready"):
            next(items)

    assert rows(before + after) == Counter(dict.fromkeys(range(12), 2))
