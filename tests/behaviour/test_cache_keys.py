"""What a cache depends on, and whose numbers the elements that it replays draw."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gpupipe import Dataset, Options, ops
from gpupipe.ops.samples import noise
from gpupipe.transform.choose import has_dali
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


def test_equal_options_share_one_pass() -> None:
    calls: list[int] = []

    def noted(x: Any) -> Any:
        calls.append(int(x))
        return x

    chain = Dataset.range(3).map(noted, traced=False).cache()
    for seed in (1, 2, 1, 2):
        assert run(chain.with_options(Options(seed=seed))) == [0, 1, 2]

    assert calls == [0, 1, 2] * 2  # once for each seed


@pytest.mark.parametrize("bad", [0, 3, 198])
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
