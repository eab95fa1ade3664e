"""What a cache depends on, and whose numbers the elements that it replays draw."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gpupipe import Dataset, Options, ops
from gpupipe.ops._shared.samples import noise
from gpupipe.transform.machine import has_dali
from tests.behaviour.model import outcomes, run


def _bad(x: Any) -> Any:
    if x == 2:
        raise ValueError("no")
    return x


EXPECTED: dict[Any, Any] = {
    "skip": [[0, 1], [3, 4], [5]],
    "replace": [[0, 1], [1, 3], [4, 5]],
    "raise": ["error", [0, 1], [3, 4], [5]],
}


@pytest.mark.parametrize("order", [["skip", "replace", "raise"], ["raise", "replace", "skip"]], ids=str)
def test_each_treatment_of_bad_elements_has_its_own_contents(order: list[Any]) -> None:
    chain = Dataset.range(6).map(_bad, traced=False).batch(2).cache()

    for on_error in order * 2:  # full the second time
        got = outcomes(chain.with_options(Options(on_error=on_error)))
        assert sorted(map(str, got)) == sorted(map(str, EXPECTED[on_error]))


@pytest.mark.parametrize("first", ["numpy", "dali"])
def test_each_executor_has_its_own_pixels(first: str) -> None:
    if not has_dali():
        pytest.skip("DALI is not installed")

    def chain() -> Dataset:
        images = Dataset.from_tensors(noise(40, 50)).repeat(2)
        return images.map(lambda x: ops.resize(x, (17, 23), antialias=True)).batch(2).cache()

    def pixels(dataset: Dataset, backend: Any) -> Any:
        (batch,) = dataset.with_options(Options(device="cpu", backend=backend))
        return np.asarray(batch)

    alone = {backend: pixels(chain(), backend) for backend in ("numpy", "dali")}
    assert not np.array_equal(alone["numpy"], alone["dali"])  # they round differently: that is how one can tell

    shared = chain()
    for backend in (first, "dali" if first == "numpy" else "numpy", first):
        np.testing.assert_array_equal(pixels(shared, backend), alone[backend])


def test_the_limit_of_pixels_is_part_of_it() -> None:
    out = io.BytesIO()
    Image.fromarray(noise(20, 20)).save(out, "JPEG")
    chain = Dataset.from_tensors(out.getvalue()).map(lambda x: ops.decode_jpeg(x)).cache()

    assert len(run(chain)) == 1
    assert outcomes(chain.with_options(Options(max_pixels=399))) == ["error"]
    assert len(run(chain.with_options(Options(max_pixels=400)))) == 1


@pytest.mark.parametrize("bad", [3])
def test_after_an_error_below_a_cache_every_element_still_has_its_own_numbers(bad: int) -> None:
    def fail(x: Any) -> Any:
        if x == bad:
            raise ValueError
        return x

    def drawn(x: Any, rng: np.random.Generator) -> Any:
        return x, rng.random()

    def numbers(step: Any) -> dict[int, float]:
        chain = Dataset.range(400).map(step, traced=False).batch(2).cache().unbatch().map(drawn, rng=True)
        return dict(element for element in outcomes(chain) if element != "error")  # both are in their first epoch

    expected = numbers(lambda x: x)
    got = numbers(fail)

    assert len(set(expected.values())) == 400
    assert len(set(got.values())) == len(got) == 399
    assert got == {x: number for x, number in expected.items() if x != bad}


def _drawn(x: Any, rng: np.random.Generator) -> Any:
    return x, rng.integers(10**9)


IMAGES = np.arange(9 * 4 * 4 * 3, dtype=np.int32).reshape(9, 4, 4, 3) % 251
CHAINS: dict[str, tuple[Callable[[], Dataset], Callable[[Dataset], Dataset]]] = {
    "numbers": (lambda: Dataset.range(9), lambda d: d.map(_drawn, rng=True)),
    "passes": (lambda: Dataset.range(4).repeat(2), lambda d: d.map(_drawn, rng=True)),
    "rows of batches": (lambda: Dataset.range(9).batch(4), lambda d: d.unbatch().map(_drawn, rng=True)),
    "traced ops on batches": (
        lambda: Dataset.from_tensor_slices(IMAGES.astype(np.uint8)).batch(4),
        lambda d: d.map(lambda x: ops.random_flip_left_right(x)),
    ),
}


def _in_epoch(dataset: Dataset, epoch: int) -> list[str]:
    dataset = dataset.with_options(Options(device="cpu", backend="numpy"))
    return [repr(element) for element in dataset.iterator(epoch=epoch)]


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("chain", CHAINS)
def test_behind_a_cache_random_numbers_are_those_without_it(tmp_path: Path, chain: str, where: str) -> None:
    make, draw = CHAINS[chain]
    without = draw(make())
    cached = make().cache() if where == "memory" else make().cache(tmp_path / "c")

    for epoch in (0, 1, 0, 2):  # the first fills it
        assert _in_epoch(draw(cached), epoch) == _in_epoch(without, epoch)
    assert _in_epoch(without, 0) != _in_epoch(without, 1)
    twice = _in_epoch(draw(cached.repeat(2)), 0)
    assert twice[: len(twice) // 2] == _in_epoch(without, 0)
    assert twice[len(twice) // 2 :] != _in_epoch(without, 0)  # a later pass draws anew
    assert _in_epoch(draw(cached.concatenate(cached)), 0)[len(twice) // 2 :] != _in_epoch(without, 0)


@pytest.mark.parametrize("full", [False, True])
def test_a_single_element_behind_a_cache_has_its_own_numbers(full: bool) -> None:
    cached = Dataset.range(7).cache()
    if full:
        run(cached)
    expected = run(Dataset.range(7).map(_drawn, rng=True))
    chain = cached.map(_drawn, rng=True)

    assert [(int(x), int(y)) for x, y in (chain[i] for i in range(7))] == expected
    rows = Dataset.range(7).batch(3).cache()
    if full:
        run(rows)
    assert [(int(x), int(y)) for x, y in rows.unbatch().map(_drawn, rng=True)] == expected
