"""The chains of tf.data's performance guide, and one of 2018, as written for TensorFlow and for gpupipe.

The two files of a chain differ in import lines and prefixes only, and give the same elements in the same order. Where
the chain shuffles, or is sloppy, they give the same multiset.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from tests.behaviour.model import plain, run
from tests.chains.data import sample_folder

HERE = Path(__file__).parent
NAMES = ["artificial", "parallel_interleave", "input_of_2018"]
PREFIXES = (("tf.contrib.data.", "gp.compat."), ("tf.data.", "gp."), ("tf.io.", "gp.io."), ("tf.image.", "ops."))


def _body(path: Path) -> str:
    """A chain's code without its import lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith(("import ", "from "))).strip()


@pytest.mark.parametrize("name", NAMES)
def test_a_chain_differs_in_import_lines_and_prefixes_only(name: str) -> None:
    theirs, ours = (_body(HERE / folder / f"{name}.py") for folder in ("for_tensorflow", "for_gpupipe"))
    for old, new in PREFIXES:
        theirs = theirs.replace(old, new)

    assert ours == theirs
    assert "tf." not in ours
    assert "tensorflow" not in (HERE / "for_gpupipe" / f"{name}.py").read_text(encoding="utf-8")


def _chain(folder: str, name: str, *args: Any) -> Any:
    return importlib.import_module(f"tests.guide.{folder}.{name}").chain(*args)


@pytest.mark.tf
def test_a_chain_gives_tf_datas_elements_in_tf_datas_order(tf: Any) -> None:
    theirs = [plain(x) for x in _chain("for_tensorflow", "parallel_interleave").as_numpy_iterator()]

    assert run(_chain("for_gpupipe", "parallel_interleave")) == theirs == [[0], [0], [1], [1], [2], [2]]


@pytest.mark.tf
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(sample_folder() is None, reason="needs the sample of photographs (GPUPIPE_SAMPLE)")
def test_the_chain_of_2018_gives_the_same_multiset(tf: Any) -> None:
    pattern = f"{sample_folder()}/*.tfrecord"
    theirs = list(_chain("for_tensorflow", "input_of_2018", pattern).as_numpy_iterator())
    with gp.Dataset.as_numpy_iterator(_chain("for_gpupipe", "input_of_2018", pattern)) as items:
        ours = list(items)

    assert [image.shape for image, _ in ours] == [image.shape for image, _ in theirs]
    _same_multiset(ours, theirs)


def _same_multiset(ours: list[Any], theirs: list[Any]) -> None:
    """Match images by what they look like: no two of the sample are as near to each other as two decodings of one."""
    a, b = (np.concatenate([image for image, _ in part]).astype(np.float32) for part in (ours, theirs))
    x, y = (np.concatenate([label for _, label in part]) for part in (ours, theirs))
    left = list(range(len(b)))
    for image, label in zip(a, x, strict=True):
        near = [np.abs(b[i] - image).mean() for i in left]
        best = left.pop(int(np.argmin(near)))
        # tf.image.decode_image takes the fast DCT: up to 3 levels, 0.9 on average, before bilinear resizing.
        assert min(near) < 2
        assert y[best] == label
    assert not left


@pytest.fixture(scope="module")
def tf() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return pytest.importorskip("tensorflow")
