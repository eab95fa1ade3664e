"""transpose between the two layouts of an image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, ops
from gpupipe.errors import PlanError, SpecError
from gpupipe.graph.trace import trace
from gpupipe.spec import TensorSpec, flatten
from gpupipe.transform.machine import has_dali


def test_channels_move_to_the_front_and_back() -> None:
    x = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)

    front = ops.transpose(x, "CHW")

    assert front.shape == (4, 2, 3)
    assert front[3, 1, 2] == x[1, 2, 3]
    assert front.flags.c_contiguous
    np.testing.assert_array_equal(ops.transpose(front, "HWC"), x)


def test_a_batch_is_transposed_row_by_row() -> None:
    x = np.arange(2 * 3 * 4 * 1, dtype=np.uint8).reshape(2, 3, 4, 1)

    assert ops.transpose(x).shape == (2, 1, 3, 4)


def test_the_spec_follows() -> None:
    traced = trace(ops.transpose, flatten(0)[1], [TensorSpec((None, 224, 3), "uint8", "HWC")])

    assert traced is not None
    assert traced.outputs[0].spec == TensorSpec((3, None, 224), "uint8", "CHW")


def test_an_image_that_has_this_layout_already_is_refused() -> None:
    with pytest.raises(SpecError, match=r"transpose needs an image \{HWC\}, got uint8\[3,2,2\]\{CHW\}"):
        trace(ops.transpose, flatten(0)[1], [TensorSpec((3, 2, 2), "uint8", "CHW")])


def test_other_layouts_do_not_exist() -> None:
    with pytest.raises(PlanError, match='"CHW" or "HWC", got \'WHC\''):
        ops.transpose(np.zeros((1, 1, 1)), "WHC")  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["numpy"] + ["dali"] * has_dali())
def test_the_size_of_an_array_without_a_layout_is_that_of_the_layout_it_is_taken_for(backend: Any) -> None:
    planes = np.random.default_rng(0).integers(0, 256, (2, 3, 20, 30), np.uint8)

    def middle(x: Any) -> Any:
        return ops.center_crop(ops.transpose(x, "HWC"), (10, 12))

    made = list(Dataset.from_tensor_slices(planes).map(middle).with_options(Options(device="cpu", backend=backend)))

    np.testing.assert_array_equal(np.stack(made), planes.transpose(0, 2, 3, 1)[:, 5:15, 9:21])
