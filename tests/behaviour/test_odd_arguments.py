"""Arguments that no step can use: numbers beyond 64 bits, names that no file can have, chains that are too deep."""

from __future__ import annotations

import dataclasses
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.errors import PlanTypeError
from gpupipe.load import mark
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.options import DecoderOptions
from tests.behaviour.model import outcomes, run

R = Dataset.range
LARGE = 2**63
ZEROS = np.zeros((4, 4, 3), np.uint8)
TRANSPOSE: Any = ops.transpose


def length(value: int) -> Any:
    """An object of this length, by its own account."""
    return type("Items", (), {"__len__": lambda self: value, "__getitem__": lambda self, i: i})()


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "batch": (lambda: R(3).batch(LARGE), gp.PlanError, "64 bits for batch_size, got 9223372036854775808"),
    "take": (lambda: R(3).take(LARGE), gp.PlanError, "64 bits for count"),
    "window": (lambda: R(3).window(10**9999), gp.PlanError, r"window needs .* got about 2\*\*33"),
    "rebatch": (lambda: R(3).batch(1).rebatch([1, LARGE]), gp.PlanError, "64 bits for batch_size"),
    "slice": (lambda: R(3)[:LARGE], gp.PlanError, "64 bits for a slice"),
    "place": (lambda: R(3)[LARGE], gp.PlanError, "64 bits for the index"),
    "range": (lambda: R(10**30), gp.PlanError, r"int64 can hold, got about 2\*\*100"),
    "range around the end": (lambda: R(LARGE - 2, LARGE + 2), gp.PlanError, "got 9223372036854775809"),
    "range of bytes": (lambda: R(254, 258, output_type="uint8"), gp.PlanError, "that uint8 can hold, got 257"),
    "range below": (lambda: R(5, -2, -1, output_type="uint8"), gp.PlanError, "that uint8 can hold, got -1"),
    "range of halves": (lambda: R(65_500, 70_000, 2000, output_type="float16"), gp.PlanError, "16 can hold, got 69500"),
    "range of many": (lambda: R(10**30, output_type="float64"), gp.PlanError, r"fewer than 2\*\*63 numbers"),
    "range dtype": (lambda: R(3, output_type="foo"), PlanTypeError, "dtype for output_type, got 'foo'"),
    "len": (lambda: len(R(2**62).repeat(4)), gp.PlanError, "got 18446744073709551616; use cardinality"),
    "ALL": (lambda: R(2**62).repeat(4).shuffle(gp.ALL), gp.PlanError, r"fewer than 2\*\*62 elements"),
    "place from the end": (lambda: R(2**62).repeat(4)[-1], gp.PlanError, r"indices below 2\*\*62"),
    "slice from the end": (lambda: R(2**62).repeat(4)[-3:], gp.PlanError, "indices from the start"),
    "NUL": (lambda: gp.TextLineDataset(["a\0b"]), gp.PlanError, "names without a NUL"),
    "NUL in a pattern": (lambda: Dataset.list_files("a\0b*"), gp.PlanError, "list_files needs names without a NUL"),
    "surrogate": (lambda: gp.TextLineDataset("\ud800"), gp.PlanError, r"the file system can hold, got '\\ud800'"),
    "surrogate in text": (lambda: Dataset.from_list(["\ud800"]), gp.PlanError, "text that UTF-8 can hold"),
    "surrogates in an array": (lambda: Dataset.from_tensors(np.array(["\ud800"])), gp.PlanError, "UTF-8"),
    "split None": (lambda: R(4).split(None), PlanTypeError, "list of fractions, .*got None"),  # type: ignore[arg-type]
    "counter step": (lambda: Dataset.counter(1, 10**400, "float32"), gp.PlanError, "a step that float32 can hold"),
    "counter start": (lambda: Dataset.counter(10**300, dtype="float32"), gp.PlanError, "a start that float32"),
    "no length": (lambda: Dataset.from_indexable(np.array(3)), PlanTypeError, "has a length, got ndarray"),
    "cuda": (lambda: Options(device="cuda:1"), gp.PlanError, "got 'cuda:1'; write \"gpu:1\"$"),
    "axes": (
        lambda: TRANSPOSE(ZEROS, (2, 0, 1)),
        gp.PlanError,
        r'got \(2, 0, 1\); write ops.transpose\(x, "CHW"\)$',
    ),
    "axes of many": (lambda: TRANSPOSE(ZEROS, [0, 2, 3, 1]), gp.PlanError, r'; write ops.transpose\(x, "HWC"\)$'),
    "means": (lambda: ops.normalize(ZEROS, (1, 2), (1, 1)), gp.GpupipeError, "write a number, or 3 of them, for each$"),
    "endless len": (lambda: len(R(3).repeat()), PlanTypeError, r"take\(n\) gives the first n"),
    "unknown len": (lambda: len(R(3).filter(bool)), PlanTypeError, r"sum\(1 for _ in ds\) counts .*assert_cardinality"),
    "no files": (lambda: Dataset.list_files("no/*.x"), gp.PlanError, "match no/.*; the working directory is /"),
    "no files there": (lambda: Dataset.list_files("/no/*.x"), gp.PlanError, "match /no/[*].x$"),
    "shuffle a file cache": (
        lambda: R(3).cache("c").shuffle(gp.ALL),
        gp.PlanError,
        r"use cache\(\) in memory, or ds.save",
    ),
    "lists": (
        lambda: list(R(1, 3).map(lambda x: [1] * int(x), traced=False)),
        gp.DataError,
        r"return np.array\(x\) for",
    ),
    "an empty list": (lambda: list(R(1).map(lambda x: [], traced=False)), gp.DataError, r"return np.array\(x\) for a"),
    "endless length": (lambda: Dataset.from_indexable(length(2**64)), PlanTypeError, "has a length, got Items"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_where_it_is_written(name: str) -> None:
    make, kind, text = REFUSED[name]

    with pytest.raises(kind, match=text):
        make()


def test_the_largest_numbers_are_fine() -> None:
    most = LARGE - 1

    assert run(R(3).batch(most)) == [[0, 1, 2]]
    assert run(R(3)[:most]) == run(R(3).take(most)) == [0, 1, 2]
    assert run(R(3)[::most]) == [0]
    assert run(R(3)[::-LARGE]) == [2]
    assert run(R(most - 1, LARGE)) == [most - 1, most]
    assert run(R(2**64 - 2, 2**64, output_type="uint64")) == [2**64 - 2, 2**64 - 1]
    assert run(R(0, 10**30, 10**30)) == [0]
    assert run(R(0, -(10**30))) == run(R(10**30, 0)) == []
    assert run(R(254, 256, output_type="uint8")) == [254, 255]
    assert R(2**62).repeat(4).cardinality() == 2**64
    assert R(2**62).repeat(4)[5] == 5
    assert run(R(2**62).repeat(4)[3:5]) == [3, 4]
    assert len(run(R(2**61).shuffle(gp.ALL).take(3))) == 3
    assert run(R(3).shuffle(3, seed=2**70)) != []
    assert run(Dataset.counter(float("inf"), dtype="float32").take(1)) == [float("inf")]


@pytest.mark.parametrize("name", ["a\0b", b"\xed\xa0\x80"])
@pytest.mark.parametrize("kind", [gp.TFRecordDataset, gp.TextLineDataset, lambda x: gp.FixedLengthRecordDataset(x, 2)])
def test_a_name_that_no_file_can_have_is_a_lost_file(kind: Any, name: Any, tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.write_bytes(b"")
    chain = kind(Dataset.from_tensor_slices([name, str(good)]))

    assert outcomes(chain) == outcomes(chain.with_options(Options(on_error="skip"))) == ["error"]
    assert outcomes(chain.with_options(Options(on_error="skip", lost_files="skip"))) == []
    assert outcomes(chain.ignore_errors()) == []


def test_a_loop_may_write_hundreds_of_maps() -> None:
    traced = R(2)
    for _ in range(600):
        traced = traced.map(lambda x: x + 1)

    assert run(traced) == [600, 601]


def test_a_chain_too_deep_for_states_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mark, "SELDOM", 0)
    chain = R(3)
    for _ in range(600):
        chain = chain.map(lambda x: int(x) + 1)

    assert run(chain) == [600, 601, 602]


def test_a_chain_that_is_too_deep_says_so_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    chain = R(3)
    for _ in range(1100):
        chain = chain.unique()

    with pytest.raises(gp.PlanError, match=r"too deep to run: 110[12] steps"):
        list(chain.prefetch(2))
    gc.collect()
    assert set(threading.enumerate()) <= before


# ---- Options: merged along the chain, immutable, and what each of them does


def test_the_last_one_wins_and_the_rest_stays() -> None:
    dataset = (
        Dataset.range(3)
        .with_options(Options(threads=1, seed=5))
        .map(lambda x: x + 1)
        .with_options(Options(threads=2, on_error="skip"))
    )

    assert dataset.options() == Options(threads=2, seed=5, on_error="skip")
    assert run(dataset) == [1, 2, 3]


MEANINGLESS: dict[str, list[Any]] = {
    "device": ["tpu", "gpu:x", "gpu:\u00b2", "gpu:\u0661", "gpu:" + 5000 * "9"],
    "backend": ["torch"],
    "threads": [0, 100_000],
    "max_bad": [1 << 63],
    "max_pixels": [1 << 63, -1],
    "on_error": ["ignore"],
    "host_memory": [0],
    "device_memory": [0],
    "deterministic": [1],
    "seed": [1.5],
    "verify": [-1, 0.5, True, 1 << 64],
    "wrong_pixels": ["skip"],
    "hw_decoder_load": [1.5, float("nan"), "0.5", True],
    "jpeg_fancy_upsampling": [1],
    "approximate_decode": ["yes"],
    "preallocate": [500, (500,), (0, 500), (500.0, 500), (10**30, 1), (1, 65_536), (65_535, 65_535)],
    "disabled_rules": ["merge_takes", 5, (5,)],
    "signing_parameters": ["token", 5, (5,)],
}


@pytest.mark.parametrize("name", MEANINGLESS)
def test_a_value_that_means_nothing_is_refused_by_name(name: str) -> None:
    for value in MEANINGLESS[name]:
        with pytest.raises(gp.PlanError, match=f"Options.{name} needs"):
            Options(**{name: value})


ODD: list[Any] = [
    *(np.array(x) for x in ([True, False], [[1, 2]], 0.5, "x", [["raise", "warn"]])),
    *(10**5000, -(10**5000), (10**5000, 1), [7] * 10**6, np.timedelta64(1, "s"), np.ma.array(3, mask=True)),
]
"""Values of no option, of which some cannot be written down; an integer may be a seed."""


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Options)])
def test_an_array_and_what_cannot_be_written_down_are_refused_by_name_in_brief(name: str) -> None:
    names = [] if name in ("disabled_rules", "signing_parameters") else [np.array(["raise", "warn"]), np.empty(0)]
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
