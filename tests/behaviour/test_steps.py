"""Steps on single elements: map, filter, take, skip, repeat, shard, enumerate, flat_map, apply, prefetch, cache."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, TensorSpec
from tests.behaviour.model import plain, run


def _noted(calls: list[int], x: Any) -> Any:
    calls.append(int(x))
    return x


# ---- map


def test_parallel_calls_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=10)

    def meet(x: Any) -> Any:
        both.wait()
        return x

    assert run(Dataset.range(4).map(meet, num_parallel_calls=2)) == [0, 1, 2, 3]


def test_the_spec_of_a_python_function_is_checked() -> None:
    good = Dataset.range(3).map(lambda x: np.arange(int(x)), spec=TensorSpec((None,), "int64"))
    bad = Dataset.range(3).map(lambda x: int(x) / 2, spec=TensorSpec((), "int64"))

    assert good.element_spec == TensorSpec((None,), "int64")
    assert run(good) == [[], [0], [0, 1]]
    with pytest.raises(gp.DataError, match="map needs int64, got float64"):
        run(bad)


# ---- filter


@pytest.mark.parametrize("answer", [bool, np.bool_, lambda x: np.array(bool(x))], ids=["bool", "np.bool_", "0-d array"])
def test_a_predicate_may_return_any_boolean(answer: Any) -> None:
    assert run(Dataset.range(6).filter(lambda x: answer(int(x) % 2))) == [1, 3, 5]


# ---- flat_map, apply


@pytest.mark.parametrize("method", ["flat_map", "interleave"])
def test_functions_inside_may_use_the_element_of_the_function_around_them(method: str) -> None:
    def tens(a: Any) -> Dataset:
        inner = Dataset.range(4).filter(lambda b: bool(b >= a)).map(lambda b: (a * 10 + b, str(int(a))))
        return inner.concatenate(Dataset.from_generator(lambda n: iter([(np.int64(n), "end")]), args=(a,)))

    got = run(getattr(Dataset.range(2), method)(tens))

    expected = [[(a * 10 + b, b"%d" % a) for b in range(a, 4)] + [(a, b"end")] for a in range(2)]
    assert sorted(got) == sorted(expected[0] + expected[1])


# ---- cache


def test_delivered_batches_are_writable_and_single_arrays_cannot_change_the_source() -> None:
    source = np.arange(6).reshape(3, 2)
    for dataset in (Dataset.from_tensor_slices(source), Dataset.from_tensor_slices(source).cache()):
        for _ in range(2):
            assert all(batch.flags.writeable for batch in dataset.batch(2).cache())
            for row in dataset:
                with pytest.raises(ValueError, match="read-only"):
                    row += 1


def test_elements_of_two_iterators_do_not_share_a_cache_that_is_being_filled() -> None:
    calls: list[int] = []
    dataset = Dataset.range(3).map(lambda x: _noted(calls, x)).cache()
    one, two = iter(dataset), iter(dataset)

    assert [plain(x) for pair in zip(one, two, strict=True) for x in pair] == [0, 0, 1, 1, 2, 2]
    assert len(calls) == 6
    assert run(dataset.repeat(3)) == [0, 1, 2] * 3
    assert len(calls) == 6


# ---- repeat: a pass that happens to be empty ends nothing; one that stays empty says so

FORMS: dict[str, Callable[[Dataset], Dataset]] = {
    "repeat": lambda ds: ds,
    "shuffle and repeat": lambda ds: ds.shuffle(9),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Callable[[Dataset], Dataset]:
    """What stands in front of the repeat."""
    return FORMS[request.param]


def passes_of(sizes: Sequence[int], rest: int = 0) -> tuple[Dataset, list[int]]:
    """A dataset whose passes have so many elements, later ones `rest`; and the sizes of those that were begun."""
    begun: list[int] = []

    def numbers() -> Any:
        begun.append(sizes[len(begun)] if len(begun) < len(sizes) else rest)
        return range(100 * len(begun), 100 * len(begun) + begun[-1])

    return Dataset.from_generator(numbers, output_signature=gp.TensorSpec((), "int64")), begun


@pytest.mark.parametrize(
    "sizes", [[0, 2], [0, 0, 3], [2, 0, 2], [1, 0, 0, 0, 1], [0] * 40 + [2], [0, 0], [2, 0]], ids=str
)
def test_a_counted_repeat_goes_on_behind_an_empty_pass(sizes: list[int], form: Callable[[Dataset], Dataset]) -> None:
    source, begun = passes_of(sizes)

    got = run(form(source).repeat(len(sizes)))

    assert [x // 100 for x in got] == [i + 1 for i, size in enumerate(sizes) for _ in range(size)]
    assert sorted(got) == [100 * (i + 1) + j for i, size in enumerate(sizes) for j in range(size)]
    assert begun == sizes


@pytest.mark.parametrize("sizes", [[0, 2], [2, 0, 2], [1, *[0] * 9, 1, *[0] * 9, 1]], ids=str)
def test_an_endless_repeat_goes_on_behind_some_empty_passes(
    sizes: list[int], form: Callable[[Dataset], Dataset], caplog: pytest.LogCaptureFixture
) -> None:
    source, _ = passes_of(sizes)

    assert sorted(run(form(source).repeat().take(sum(sizes)))) == [
        100 * (i + 1) + j for i, size in enumerate(sizes) for j in range(size)
    ]
    assert caplog.messages == []


def test_an_endless_repeat_of_what_stays_empty_ends_and_says_so(
    form: Callable[[Dataset], Dataset], caplog: pytest.LogCaptureFixture
) -> None:
    source, begun = passes_of([0, 1, 0, 2])

    with caplog.at_level(logging.WARNING, "gpupipe"):
        got = run(form(source).repeat())

    assert len(got) == 3
    assert begun == [0, 1, 0, 2, *[0] * 10]
    (said,) = caplog.messages
    assert "repeat() at " in said or "shuffle_and_repeat(9, " in said
    assert f"{__file__}:" in said
    assert "ends after 10 passes in a row without an element" in said


def test_a_state_behind_an_empty_pass_goes_on_in_its_pass(form: Callable[[Dataset], Dataset]) -> None:
    def chain() -> Dataset:
        # Which elements are left depends on the pass: here some passes of the repeat are empty.
        return form(Dataset.range(3).map(lambda x, rng: rng.random() + x, rng=True).filter(lambda x: x < 0.2)).repeat(
            30
        )

    whole = run(chain().iterator(epoch=0))
    assert 0 < len(whole) < 25

    for n in range(len(whole) + 1):
        items = chain().iterator(epoch=0)
        head = [float(next(items)) for _ in range(n)]
        again = chain().iterator()
        again.load_state_dict(items.state_dict())
        assert head + run(again) == whole


# ---- the contract of a running step (`flow/step.py`)

FLOW = sorted((Path(gp.__file__).parent / "flow").rglob("*.py"))


@pytest.mark.parametrize("path", FLOW, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_a_step_can_do_is_never_looked_up_by_name(path: Path) -> None:
    assert re.findall(r"getattr\(.*(?:snapshot|close|ready|ahead)", path.read_text(encoding="utf-8")) == []
