"""What fails: ignore_errors, assert_cardinality, pad_to_cardinality, get_single_element, and random chains."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import gpupipe as gp
from gpupipe import Dataset, Options, TensorSpec, ops
from gpupipe.flow.bad.policy import ErrorPolicy
from gpupipe.flow.element import Hole, Replacement, Stream
from tests.behaviour.model import outcomes, run
from tests.behaviour.programs import Program, build, elements, model, programs
from tests.chains.damage import bad_scan, bad_tables, jpeg, no_thread_left

R = Dataset.range
HOST = Options(device="cpu", backend="numpy")


def inverse(x: Any) -> Any:
    """Numbers that are no multiple of 3; the others fail."""
    return int(x) if int(x) % 3 else 1 // 0


def failing(count: int) -> Dataset:
    return R(count).map(inverse, spec=TensorSpec((), "int64"))


def _failing_batches(i: Any) -> Dataset:
    return failing(int(i) + 5).batch(2)


# ---- ignore_errors


Row = tuple[str, Callable[[Dataset], Dataset], list[Any]]

ELEMENTS: list[Row] = [
    ("behind take it has fewer", lambda d: d.take(4).ignore_errors(), [1, 2]),
    ("before shard", lambda d: d.ignore_errors().shard(2, 1), [2, 5, 8]),
    ("before enumerate", lambda d: d.ignore_errors().enumerate().take(2), [(0, 1), (1, 2)]),
    ("before batch: one element", lambda d: d.ignore_errors().batch(2), [[1, 2], [4, 5], [7, 8]]),
    ("before zip: pairs shift", lambda d: Dataset.zip(d.ignore_errors(), R(3)), [(1, 0), (2, 1), (4, 2)]),
    ("behind repeat", lambda d: d.take(2).repeat(3).ignore_errors(), [1, 1, 1]),
    ("before cache", lambda d: d.ignore_errors().cache().repeat(2), [1, 2, 4, 5, 7, 8] * 2),
    ("behind cache", lambda d: d.cache().ignore_errors().repeat(2), [1, 2, 4, 5, 7, 8] * 2),
    ("in a flat_map", lambda d: R(2).flat_map(lambda i: failing(3).ignore_errors()), [1, 2, 1, 2]),
    ("behind a filter that fails", lambda d: R(4).filter(lambda x: inverse(x) > 1).ignore_errors(), [2]),
]
BATCHES: list[Row] = [
    ("behind batch and prefetch", lambda d: d.batch(2).prefetch(2).ignore_errors().prefetch(1), [[4, 5], [8]]),
    ("behind padded_batch", lambda d: d.padded_batch(2).ignore_errors(), [[4, 5], [8]]),
    ("behind batch and a map", lambda d: d.batch(2).map(lambda x: x + 1).ignore_errors(), [[5, 6], [9]]),
    ("between batch and a map", lambda d: d.batch(2).ignore_errors().map(lambda x: x + 1), [[5, 6], [9]]),
    ("behind datasets made while it runs", lambda d: R(2).flat_map(_failing_batches).ignore_errors(), [[4], [4, 5]]),
]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(("make", "expected"), [pytest.param(*row[1:], id=row[0]) for row in ELEMENTS])
def test_where_it_leaves_out_elements(make: Callable[[Dataset], Dataset], expected: list[Any], on_error: str) -> None:
    chain = make(failing(9)).with_options(Options(on_error=on_error))  # type: ignore[arg-type]

    assert outcomes(chain) == expected


@pytest.mark.parametrize(("make", "expected"), [pytest.param(*row[1:], id=row[0]) for row in BATCHES])
def test_where_it_leaves_out_whole_batches(make: Callable[[Dataset], Dataset], expected: list[Any]) -> None:
    assert outcomes(make(failing(9))) == expected


def test_a_row_of_an_existing_batch_that_fails_leaves_out_the_batch() -> None:
    def shared(x: Any) -> Any:
        return ops.py_function(lambda v: np.int64(6 // (int(v) - 1)), [x], spec=TensorSpec((), "int64"))

    batches = R(6).batch(2).cache().map(shared)

    assert outcomes(batches) == ["error", [-6], [6, 3], [2, 1]]
    assert outcomes(batches.ignore_errors()) == [[6, 3], [2, 1]]
    assert outcomes(batches.ignore_errors().map(lambda x: x + 1)) == [[7, 4], [3, 2]]


def test_on_error_replace_does_not_bring_back_what_was_ignored() -> None:
    options = Options(on_error="replace")

    assert outcomes(failing(6).ignore_errors().batch(2).with_options(options)) == [[1, 2], [4, 5]]
    assert outcomes(failing(6).batch(2).ignore_errors().with_options(options)) == [[1, 1], [2, 2], [4, 5]]


def test_what_is_left_out_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gpupipe"):
        items = iter(R(0, 90, 3).map(inverse, spec=TensorSpec((), "int64")).ignore_errors())
        assert list(items) == []

    assert items.left_out == 30
    *lines, last = [record.getMessage() for record in caplog.records]
    assert len(lines) == 10
    assert "gave no element" in last
    assert lines[0].startswith("left out: range at index 0: map: raised ZeroDivisionError")


def _image(data: Any) -> Any:
    return ops.resize(ops.decode_jpeg(data, channels=3), (8, 8))


def _pictures() -> list[bytes]:
    """Seven images; the second has damage that only the decoder sees, the fourth is none, the sixth is damaged too."""
    good = [jpeg(number) for number in range(7)]
    return [good[0], bad_scan(good[1]), good[2], b"no image", good[4], bad_tables(good[5]), good[6]]


@pytest.mark.parametrize(
    ("backend", "rule", "on_error"),
    [
        ("numpy", "", "raise"),
        ("numpy", "deferral", "skip"),
        ("numpy", "map_and_batch", "replace"),
        ("dali", "", "raise"),
    ],
)
def test_images_that_cannot_be_decoded_do_not_come_into_a_batch(backend: Any, on_error: Any, rule: str) -> None:
    options = Options(device="cpu", backend=backend, on_error=on_error, disabled_rules=(rule,) if rule else ())
    chain = Dataset.from_tensor_slices(_pictures()).map(_image).ignore_errors().with_options(options)
    expected = run(Dataset.from_tensor_slices(_pictures()[::2]).map(_image).with_options(options))

    assert run(chain) == expected
    assert run(chain.batch(3)) == [expected[:3], expected[3:]]
    assert run(chain.take(3)) == expected[:3]
    mapped = list(chain.batch(3).map(lambda x: x + 1))
    np.testing.assert_array_equal(np.concatenate(mapped), np.array(expected, mapped[0].dtype) + 1)


def test_a_batch_with_an_image_that_cannot_be_decoded_is_left_out_as_a_whole() -> None:
    chain = Dataset.from_tensor_slices(_pictures()).map(_image).batch(2).ignore_errors().with_options(HOST)

    assert [len(batch) for batch in chain] == [1]


def test_a_map_over_batches_behind_it_may_fail_and_is_not_ignored() -> None:
    data = ([jpeg(0), b"no image", jpeg(2), jpeg(3), jpeg(4)], [0, 0, 0, 20, 0])
    images = Dataset.from_tensor_slices(data).map(lambda x, y: (ops.resize(ops.decode_jpeg(x, 3), (24, 32)), y))

    def cut(x: Any, y: Any) -> Any:  # fails where y is 20
        return ops.crop_to_bounding_box(x, y, 0, 16, 16)

    before = outcomes(images.ignore_errors().batch(2).map(cut).with_options(HOST))
    assert before.count("error") == 1
    assert [len(batch) for batch in before if batch != "error"] == [2, 1]
    behind = outcomes(images.batch(2).ignore_errors().prefetch(1).map(cut).with_options(HOST))
    assert behind.count("error") == 1


def test_a_batch_whose_rows_do_not_stack_is_an_error_behind_ignored_images() -> None:
    sizes = [jpeg(0), b"no image", jpeg(1), jpeg(2, 8, 8), jpeg(3)]
    chain = Dataset.from_tensor_slices(sizes).map(lambda x: ops.decode_jpeg(x, channels=3)).ignore_errors()

    for rules in ((), ("map_and_batch",)):
        seen = outcomes(chain.batch(2).with_options(HOST.merge(Options(disabled_rules=rules))))
        assert [type(batch) for batch in seen] == [list, str]


# ---- assert_cardinality


@pytest.mark.parametrize(
    ("count", "said", "text"),
    [
        (4, 5, "was promised 5 elements, got only 4"),
        (6, 5, "was promised 5 elements, got at least 6"),
        (2, -1, "was promised an infinite number of elements, got only 2"),
        (1, 0, "was promised 0 elements, got at least 1"),
    ],
)
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_a_wrong_promise_is_an_error_behind_the_last_element(count: int, said: int, text: str, on_error: str) -> None:
    chain = R(count).assert_cardinality(said).with_options(Options(on_error=on_error))  # type: ignore[arg-type]
    items = iter(chain)
    good = [int(next(items)) for _ in range(count if said < 0 else min(count, said))]

    with pytest.raises(gp.DataError, match=text):
        next(items)
    assert good == list(range(len(good)))
    with pytest.raises(StopIteration):
        next(items)


def test_elements_that_failed_count() -> None:
    assert outcomes(failing(4).assert_cardinality(4)) == ["error", 1, 2, "error"]
    assert outcomes(failing(4).ignore_errors().assert_cardinality(2)) == [1, 2]
    assert outcomes(failing(4).ignore_errors().assert_cardinality(4)) == [1, 2, "error"]


@pytest.mark.parametrize(("count", "kind"), [(-2, ValueError), (-3, ValueError), (1.5, TypeError), ("5", TypeError)])
def test_a_promise_that_is_no_number(count: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="assert_cardinality needs"):
        R(3).assert_cardinality(count)


@pytest.mark.parametrize("step", [lambda d: d, lambda d: d.batch(1), lambda d: d.map(lambda x: x + 1)])
def test_what_is_skipped_was_not_there(step: Callable[[Dataset], Dataset]) -> None:
    skipping = Options(on_error="skip")

    assert outcomes(step(failing(4).assert_cardinality(4)).with_options(skipping))[-1] == "error"
    assert "error" not in outcomes(step(failing(4).assert_cardinality(2)).with_options(skipping))
    assert "error" not in outcomes(step(failing(4).assert_cardinality(4)).with_options(Options(on_error="replace")))


# ---- pad_to_cardinality


def test_all_ranks_have_equally_many_batches() -> None:
    chain = Dataset.from_tensor_slices({"x": np.arange(10)})
    ranks = [run(chain.shard(4, rank).pad_to_cardinality(3, mask_key="real")) for rank in range(4)]

    assert [len(elements) for elements in ranks] == [3] * 4
    assert sorted(one["x"] for elements in ranks for one in elements if one["real"]) == list(range(10))


def test_a_dimension_that_is_not_known_is_as_large_as_in_the_last_element() -> None:
    chain = R(1, 3).map(lambda n: {"x": np.ones((int(n), 2)), "n": {"m": int(n)}}).pad_to_cardinality(3)

    assert run(chain)[-1] == {"x": [[0, 0], [0, 0]], "n": {"m": 0}, "valid": False}


PADDED: dict[str, list[Any]] = {
    "raise": ["error", 1, 2, "error", 4, None, None],
    "skip": [1, 2, 4, None, None],
    "replace": [1, 1, 2, 2, 4],
}


@pytest.mark.parametrize("on_error", PADDED)
def test_zeros_fill_up_for_elements_that_failed(on_error: Any) -> None:
    rows = R(5).map(lambda x: {"a": inverse(x)}, spec={"a": TensorSpec((), "int64")})
    chain = rows.pad_to_cardinality(5).with_options(Options(on_error=on_error))
    wanted: list[Any] = [x if x == "error" else {"a": x or 0, "valid": x is not None} for x in PADDED[on_error]]
    good = [x for x in wanted if x != "error"]

    assert outcomes(chain) == wanted
    assert outcomes(chain.ignore_errors()) == good
    assert outcomes(chain.repeat(2)) == 2 * wanted
    batches: list[Any] = [batch for batch in outcomes(chain.batch(2)) if batch != "error"]
    assert [batch["a"] for batch in batches] == [[x["a"] for x in good[i : i + 2]] for i in (0, 2, 4)]
    assert [len(batch["valid"]) for batch in batches] == [2, 2, 1]


def test_padding_has_keys_of_its_own() -> None:
    chain = Dataset.from_tensor_slices({"a": np.arange(2)}).pad_to_cardinality(6)
    drawn = chain.map(lambda x, rng: float(rng.random()), rng=True)

    assert len(set(run(drawn))) == 6
    assert run(drawn.with_options(Options(seed=1))) != run(drawn.with_options(Options(seed=2)))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Dataset.from_tensor_slices({"a": [1, 2]}).pad_to_cardinality(1), "at most 1 elements, got 2"),
        (lambda: Dataset.from_tensor_slices({"valid": [1, 2]}).pad_to_cardinality(4), "without the key 'valid'"),
        (lambda: Dataset.from_tensor_slices({"a": [1, 2]}).pad_to_cardinality(-1), ">= 0"),
        (lambda: list(R(2).map(lambda x: (int(x),)).pad_to_cardinality(4)), r"dicts.*pad_to_cardinality at"),
    ],
)
def test_what_cannot_be_padded(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(gp.PlanError, match=text):
        make()


# ---- get_single_element, first


def test_none_or_several_are_an_error_and_no_thread_is_left() -> None:
    with no_thread_left():
        with pytest.raises(ValueError, match="got an empty one"):
            R(0).get_single_element()
        with pytest.raises(IndexError, match="empty"):
            R(0).first()
        with pytest.raises(ValueError, match="got more than one"):
            R(2).prefetch(2).get_single_element()
        with pytest.raises(gp.DataError, match="ZeroDivisionError"):
            failing(1).prefetch(2).get_single_element()


# ---- elements that fail, against a plain model over random chains


POLICIES = ["raise", "skip", "replace"]


@pytest.mark.parametrize("on_error", POLICIES)
@settings(max_examples=120, deadline=None, database=None, derandomize=True)
@given(program=programs(failing=True))
def test_random_chains_give_what_the_model_says(on_error: str, program: Program) -> None:
    dataset = build(program).with_options(Options(on_error=on_error))  # type: ignore[arg-type]

    assert elements(dataset) == model(program, on_error)


@pytest.mark.parametrize("on_error", POLICIES)
@settings(max_examples=110, deadline=None, database=None, derandomize=True)
@given(program=programs(failing=True, pictures=True, most=4))
def test_random_chains_of_pictures_do_too(on_error: str, program: Program) -> None:
    dataset = build(program).with_options(Options(on_error=on_error, backend="numpy", device="cpu"))  # type: ignore[arg-type]

    assert elements(dataset) == model(program, on_error)


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(program=programs())
def test_random_chains_without_failures_do_too_and_never_say_a_wrong_number(program: Program) -> None:
    dataset, expected = build(program), model(program)

    assert elements(dataset) == expected
    assert dataset.cardinality() in (gp.UNKNOWN_CARDINALITY, len(expected))


def test_a_replacement_keeps_the_identity_of_the_bad_element_and_says_so() -> None:
    policy = ErrorPolicy("replace", lambda hole: None, lambda: False, False, lambda hole: False, lambda hole, who: None)
    policy.good(((0,), Stream(7, "file"), 0))

    ((value, stream, position),) = policy.bad((Hole(gp.DataError("no 1")), Stream(7, "file"), 1))

    assert (value, stream.key, position) == ((0,), 7, 1)
    assert type(stream) is Replacement
