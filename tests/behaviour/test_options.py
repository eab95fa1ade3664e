"""Options: merged along the chain, immutable, and what each of them does."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.errors import PlanTypeError
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.options import DecoderOptions
from tests.behaviour.model import run


def test_the_last_one_wins_and_the_rest_stays() -> None:
    dataset = (
        Dataset.range(3)
        .with_options(Options(threads=1, seed=5))
        .map(lambda x: x + 1)
        .with_options(Options(threads=2, on_error="skip"))
    )

    assert dataset.options() == Options(threads=2, seed=5, on_error="skip")
    assert run(dataset) == [1, 2, 3]


@pytest.mark.parametrize(
    "given",
    [
        {"device": "tpu"},
        {"device": "gpu:\u0661"},
        {"device": "gpu:" + 5000 * "9"},
        {"backend": "torch"},
        {"threads": 0},
        {"threads": 100_000},
        {"max_bad": 1 << 63},
        {"max_pixels": 1 << 63},
        {"on_error": "ignore"},
        {"max_pixels": -1},
        {"device_memory": 0},
        {"deterministic": 1},
        {"seed": 1.5},
        {"verify": -1},
        {"verify": True},
        {"verify": 1 << 64},
        {"wrong_pixels": "skip"},
        {"hw_decoder_load": 1.5},
        {"hw_decoder_load": float("nan")},
        {"hw_decoder_load": True},
        {"jpeg_fancy_upsampling": 1},
        {"approximate_decode": "yes"},
        {"preallocate": 500},
        {"preallocate": (500,)},
        {"preallocate": (0, 500)},
        {"preallocate": (10**30, 1)},
        {"preallocate": (1, 65_536)},
        {"preallocate": (65_535, 65_535)},
        {"disabled_rules": "merge_takes"},
        {"disabled_rules": (5,)},
    ],
    ids=lambda given: str(given)[:40],
)
def test_a_value_that_means_nothing_is_refused_by_name(given: dict[str, Any]) -> None:
    with pytest.raises(gp.PlanError, match=f"Options.{next(iter(given))} needs"):
        Options(**given)


ODD: list[Any] = [
    *(np.array(x) for x in ([True, False], [[1, 2]], 0.5, "x", [["raise", "warn"]])),
    *(10**5000, -(10**5000), (10**5000, 1), [7] * 10**6, np.timedelta64(1, "s"), np.ma.array(3, mask=True)),
]
"""Values of no option, of which some cannot be written down; an integer may be a seed."""


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Options)])
def test_an_array_and_what_cannot_be_written_down_are_refused_by_name_in_brief(name: str) -> None:
    names = [] if name == "disabled_rules" else [np.array(["raise", "warn"]), np.empty(0)]
    for value in [*ODD, *names]:
        given: dict[str, Any] = {name: value}
        if type(value) is int and name == "seed":
            assert len(repr(Options(**given))) < 1000
            continue
        with pytest.raises(gp.PlanError, match=f"Options.{name} needs") as caught:
            Options(**given)
        assert len(str(caught.value)) < 1200
        assert type(caught.value) is PlanTypeError or not isinstance(value, np.ndarray)


def test_the_largest_values_are_taken() -> None:
    options = Options(verify=(1 << 64) - 1, preallocate=(65_535, 10_922), device="gpu:999999999")

    images = Dataset.from_tensor_slices([encoded(picture(8, 8))] * 3).map(gp.ops.decode_jpeg).batch(2)

    assert options.resolve().verify == 2**64 - 1
    assert sum(map(len, images.with_options(Options(verify=options.verify, device="cpu")))) == 3


def test_a_tiny_host_memory_slows_down_and_changes_nothing() -> None:
    dataset = Dataset.range(50).batch(7).prefetch(4).map(lambda x: x + 1).prefetch(gp.AUTOTUNE)

    assert run(dataset.with_options(Options(host_memory=1))) == run(dataset)


def test_explain_names_rules_that_fired_and_rules_that_are_off() -> None:
    dataset = Dataset.range(9).take(5).take(3).shuffle(2).repeat(2)

    assert "merge_takes x1" in dataset.explain()
    assert "shuffle_and_repeat x1" in dataset.explain()
    off = dataset.with_options(Options(disabled_rules=("merge_takes",))).explain()
    assert "merge_takes x1" not in off
    assert "disabled: merge_takes" in off


def test_explain_calls_no_function_and_opens_no_generator() -> None:
    calls: list[int] = []

    def seen(x: Any = 0) -> Any:
        calls.append(1)
        return iter([1])

    Dataset.from_generator(seen).map(seen).filter(seen).batch(2).map(seen).explain()

    assert calls == []


def test_options_of_decoders_have_a_usual_value_and_are_merged() -> None:
    options = Options(hw_decoder_load=0, preallocate=[np.int32(500), 400]).merge(Options(jpeg_fancy_upsampling=False))  # type: ignore[arg-type]

    assert options.preallocate == (500, 400)
    assert options.resolve().decoding == DecoderOptions(0.0, False, (500, 400))
    assert Options().resolve().decoding == DecoderOptions(1.0, True, None)
    assert Options().resolve().verify == Options(verify=0).resolve().verify == 0


@pytest.mark.parametrize(
    ("option", "value", "usual"),
    [("hw_decoder_load", 0.5, 1.0), ("jpeg_fancy_upsampling", False, True), ("approximate_decode", True, False)],
)
def test_a_state_tells_options_of_decoders_that_change_pixels(option: str, value: Any, usual: Any) -> None:
    dataset = Dataset.range(9).batch(2)
    other = dataset.with_options(Options(**{option: value}))
    first, second = iter(dataset).state_dict(), iter(other).state_dict()

    iter(other).load_state_dict(second)
    iter(dataset.with_options(Options(**{option: usual}))).load_state_dict(first)
    iter(dataset).load_state_dict(iter(dataset.with_options(Options(preallocate=(9, 9), verify=5))).state_dict())
    with pytest.raises(gp.StateError, match=f"made with {option}={usual!r}, got one made with {option}={value!r}"):
        iter(dataset).load_state_dict(second)
    with pytest.raises(gp.StateError, match=f"made with {option}={value!r}, got one made with {option}={usual!r}"):
        iter(other).load_state_dict(first)
