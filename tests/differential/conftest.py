"""tf.data, where it is installed."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from tests.differential.tfdata_sides import SIDES


@pytest.fixture(scope="module")
def tf() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tensorflow = pytest.importorskip("tensorflow")
    SIDES[tensorflow.data.Dataset] = SimpleNamespace(
        Spec=tensorflow.TensorSpec,
        text=tensorflow.string,
        TFRecordDataset=tensorflow.data.TFRecordDataset,
        io=tensorflow.io,
        int32=tensorflow.int32,
        int32_of=lambda x: tensorflow.cast(x, tensorflow.int32),
        from_list=tensorflow.data.experimental.from_list,
        assert_cardinality=lambda d, n: d.apply(tensorflow.data.experimental.assert_cardinality(n)),
        pad_to_cardinality=lambda d, n, **more: d.apply(tensorflow.data.experimental.pad_to_cardinality(n, **more)),
    )
    return tensorflow
