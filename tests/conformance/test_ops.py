"""Every case of every op on every executor, against the op's reference."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import SpecError
from gpupipe.graph.arithmetic import Arithmetic
from gpupipe.graph.eager import eager_rng, sizes_of
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.shapes import Reshaping
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.sometimes import Sometimes
from gpupipe.ops.catalogue import CATALOGUE as EVERY
from gpupipe.ops.cutmix import Cutmix
from gpupipe.ops.dali_function import DaliFunction
from gpupipe.ops.mixup import Mixup
from gpupipe.ops.mixup_or_cutmix import MixupOrCutmix
from gpupipe.ops.random_grayscale import RandomGrayscale
from gpupipe.spec import TensorSpec, as_leaf, byte_array, spec_of
from tests.conformance.harness import ROWS, Batch, assert_close, decomposed, on_executors

pytestmark = pytest.mark.conformance


def layout_of(case: Case) -> str | None:
    """Layout of the (first) result."""
    return Batch.of(case, rows=1).call.specs[0].layout


def _resizes(case: Case) -> bool:
    image = case.op.domain == "image" or (isinstance(case.op, Reshaping) and case.op.given is not None)
    return image and "CHW" not in (*case.layouts, layout_of(case))


ELSEWHERE: dict[type[Op], str] = {
    DaliFunction: "tests/ops/test_dali_function.py",
    Cutmix: "tests/ops/test_mixup_cutmix.py",
    Mixup: "tests/ops/test_mixup_cutmix.py",
    MixupOrCutmix: "tests/ops/test_mixup_or_cutmix.py",
}
"""What has no meaning for one element in NumPy: ops on batches, and what a user says in DALI's words."""

CATALOGUE = [cls for cls in EVERY if cls not in ELSEWHERE]
CLASSES: tuple[type[Op], ...] = (*CATALOGUE, Arithmetic)
CASES = [case for cls in CLASSES for case in cls.cases()]
EAGER_CASES = [case for case in CASES if not isinstance(case.op, Arithmetic)]  # on arrays + is NumPy's own
UNSAID = [
    case
    for case in CASES
    if case.op.domain == "image" and not case.op.decodes and case.layouts and case.layouts[0] in ("HWC", "CHW")
]

COMPOSED = [case for case in CASES if case.op.decompose()]
PARTS = {type(part) for case in COMPOSED for part, _ in case.op.decompose()}
WITHOUT_A_FUNCTION = set(
    "CornerCrop Crop CropAndResizeAll CropMirrorNormalize DecodeSmallerJpeg Fit Flip LookUp NativeDecoding "
    "ResizeArea ResizeFlip ResizeWindow Reverse Subscript Turn".split()
)
"""What functions of other names, and the optimizer, make of a call."""


@pytest.mark.parametrize("varying", [False, True], ids=["static", "varying"])
@pytest.mark.parametrize(("case", "kind"), on_executors(CASES))
def test_an_executor_agrees_with_the_reference(case: Case, kind: str, varying: bool) -> None:
    batch = Batch.of(case, varying=varying)

    rows = batch.run(kind)

    assert len(rows) == ROWS
    for got, expected in zip(rows, batch.references(), strict=True):
        for result, meant, spec in zip(got, expected, batch.call.specs, strict=True):
            assert_close(result, meant, case, spec.layout, kind)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_result_has_the_spec_and_the_size_that_were_inferred(case: Case) -> None:
    for batch in (Batch.of(case), Batch.of(case, varying=True, rows=1)):
        rows = batch.references()
        for result, spec in zip(rows[0], batch.call.specs, strict=True):
            assert spec.dtype is bytes or result.dtype == spec.dtype
            assert spec.shape is not None
            assert len(spec.shape) == result.ndim
            assert all(n in (None, m) for n, m in zip(spec.shape, result.shape, strict=True))
        if _resizes(case):
            for size, (result, *_rest) in zip(batch.values.sizes(batch.call), rows, strict=True):
                first = int(result.ndim == 4)  # the frames of a clip
                assert tuple(size) == (result.shape[first : first + 2] if result.ndim >= 2 else (0, 0))
    if case in UNSAID:
        batch = Batch.of(replace(case, layouts=()), varying=True)
        layout = batch.call.specs[0].layout
        assert layout is not None
        first = layout.index("H")
        for size, (result, *_rest) in zip(batch.values.sizes(batch.results[0]), batch.references(), strict=True):
            assert tuple(size) == result.shape[first : first + 2]


def test_the_optimizer_asks_every_op_that_says_when_it_changes_nothing() -> None:
    """It asks no op that draws: see `drop_identities` and `merge_adjacent`."""
    known = {type(case.op): case.op for case in CASES if case.op.parameters}

    assert [name.__name__ for name, op in known.items() if op.supports("is_identity") or op.supports("merge")] == []


def test_ops_say_which_layout_they_take() -> None:
    for case in UNSAID:
        first, *others = (spec_of(as_leaf(x)) for x in case.inputs)
        others = [replace(spec, layout=layout) for spec, layout in zip_longest(others, case.layouts[1:])]

        assert case.op.infer(first, *others) == case.op.infer(replace(first, layout=case.op.takes), *others), case


@pytest.mark.parametrize(("case", "kind"), on_executors(COMPOSED, apart=True))
def test_an_op_taken_apart_agrees_with_the_reference(case: Case, kind: str) -> None:
    batch = Batch.of(case, varying=True)

    rows = batch.in_parts().run(kind)

    for (got,), (expected,) in zip(rows, batch.references(), strict=True):
        assert_close(got, expected, case, batch.call.spec.layout, kind)


@pytest.mark.parametrize("case", COMPOSED, ids=str)
def test_the_parts_of_an_op_give_exactly_its_result(case: Case) -> None:
    batch = Batch.of(case)
    for row, (expected, *_rest) in enumerate(batch.references()):
        got = decomposed(case.op, batch.arguments(row))

        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("case", EAGER_CASES, ids=str)
def test_eager_calls_give_the_reference_and_with_a_batch_its_rows(case: Case) -> None:
    op, inputs = case.op, case.inputs
    first = as_leaf(inputs[0]) if inputs else None
    drawn = op.draw(eager_rng(op.name, 7), sizes_of(op, first)) if op.parameters else ()
    expected = op.reference(*inputs, *(param[0] for param in drawn))

    got = apply(op, *inputs, seed=7)

    for result, meant in zip(_results(got), _results(expected), strict=True):
        np.testing.assert_array_equal(result, meant)
    if not op.random and op.domain != "host" and not isinstance(op, Reshaping):  # NumPy's meaning on any array
        batches = [byte_array([x] * 3) if isinstance(x, bytes) else np.stack([x] * 3) for x in inputs]
        for result, row in zip(_results(apply(op, *batches)), _results(got), strict=True):
            np.testing.assert_array_equal(result, np.stack([row] * 3))


def _results(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("case", [case for case in CASES if case.op.random], ids=str)
def test_rows_draw_by_their_key_and_by_the_epoch(case: Case) -> None:
    def drawn(rows: int, epoch: int = 0) -> list[Array]:
        batch = Batch.of(case, rows=rows, epoch=epoch)
        return [np.asarray(batch.values.rows(param)) for param in batch.call.params]

    for few, many, later in zip(drawn(8), drawn(64), drawn(64, epoch=1), strict=True):
        np.testing.assert_array_equal(few, many[:8])
        if len(np.unique(many, axis=0)) > 1:  # a probability of 1 draws the same for everybody
            assert not np.array_equal(many, later)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_op_has_cases_for_all_its_executors(cls: type[Op]) -> None:
    cases = list(cls.cases())

    assert cases or cls in PARTS
    assert all(type(case.op) is cls for case in cases)
    assert cls.domain == "host" or all(case.op.supports("dali") for case in cases)
    assert all(case.op.supports("reference") for case in cases)


@pytest.mark.parametrize("cls", [cls for cls in CATALOGUE if issubclass(cls, Sometimes)], ids=lambda cls: cls.__name__)
def test_an_op_with_a_probability_has_a_fast_form_where_the_op_that_it_applies_has_one(cls: type[Sometimes]) -> None:
    inner = {type(case.op.changed) for case in cls.cases() if cls is not RandomGrayscale}  # type: ignore[attr-defined]

    assert any(op.fast is not Op.fast for op in inner) == (cls.fast is not Op.fast)


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_every_op_has_a_public_function_of_its_name(cls: type[Op]) -> None:
    name = snake_case(cls.__name__)

    assert (name in ops.__all__) is (cls.__name__ not in WITHOUT_A_FUNCTION)
    assert cls.__name__ in WITHOUT_A_FUNCTION or callable(getattr(ops, name))


@pytest.mark.parametrize("cls", ELSEWHERE, ids=lambda cls: cls.__name__)
def test_an_op_that_is_tested_elsewhere_has_no_meaning_for_one_element(cls: type[Op]) -> None:
    assert cls.rows == "batch" or cls.reference is Op.reference
    assert (Path(__file__).parents[2] / ELSEWHERE[cls]).exists()


def test_names_of_cases_tell_them_apart() -> None:
    assert [name for name, count in Counter(map(str, CASES)).items() if count > 1] == []


@pytest.mark.parametrize("cls", [cls for cls in CATALOGUE if cls.domain == "image"], ids=lambda cls: cls.__name__)
def test_an_op_on_images_refuses_what_is_no_image(cls: type[Op]) -> None:
    parts = [part for case in COMPOSED for part, _ in case.op.decompose()]
    every = [op for op in (*(case.op for case in CASES), *parts) if type(op) is cls]

    assert every
    for op in every:
        with pytest.raises(SpecError, match="needs"):
            op.infer(*[TensorSpec((), "float32")] * getattr(op, "images", 1))


def snake_case(name: str) -> str:
    """DecodeJpeg -> decode_jpeg."""
    return "".join("_" * (i > 0) + c.lower() if c.isupper() else c for i, c in enumerate(name))
