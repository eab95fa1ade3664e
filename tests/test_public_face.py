"""What tab completion shows: the public names, and an error that says the right name for those that people look for."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from types import ModuleType

import pytest

import gpupipe as gp
from gpupipe import compat, io, ops
from gpupipe.graph.op import Op
from gpupipe.ops.catalogue import CATALOGUE
from tests.test_imports import in_a_new_process


@pytest.mark.parametrize("module", [gp, ops, io, compat], ids=lambda module: module.__name__)
def test_every_public_name_is_there_and_is_public(module: ModuleType) -> None:
    assert dir(module) == sorted(module.__all__)
    for name in dir(module):
        value = getattr(module, name)
        assert not (inspect.isclass(value) and issubclass(value, Op)), name
        assert not inspect.ismodule(value) or value in (io, ops), name


def test_a_fresh_process_shows_nothing_else() -> None:
    """Whatever was imported by a chain that ran: modules are attributes of their package, too."""
    code = (
        "import numpy as np, gpupipe as gp\n"
        "from gpupipe import ops\n"
        "list(gp.Dataset.range(2).map(lambda x: ops.cast(x, np.float32)))\n"
        "assert dir(gp) == sorted(gp.__all__) and dir(ops) == sorted(ops.__all__)\n"
        "print([name for name in dir(ops) if type(getattr(ops, name)) is type(gp)])"
    )
    assert in_a_new_process(code) == "[]"


@pytest.mark.parametrize(
    ("module", "name", "way"),
    [
        (gp, "RaggedTensor", "use gpupipe.Ragged"),
        (gp, "Datset", "did you mean Dataset?"),
        (gp, "from_tensor_slices", "use gpupipe.Dataset.from_tensor_slices"),
        (gp, "parse_example", "use gpupipe.io.parse_example"),
        (gp, "random_crop", "use gpupipe.ops.random_crop"),
        (gp, "make_one_shot_iterator", "use gpupipe.compat.make_one_shot_iterator"),
        (gp, "data", "the names of tf.data are in gpupipe itself: gpupipe.Dataset"),
        (ops, "RandomHorizontalFlip", "use random_flip_left_right"),
        (ops, "SanitizeBoundingBoxes", "use clip_boxes"),
        (ops, "MixUp", "did you mean mixup?"),
        (ops, "random_flip", "use random_flip_left_right or random_flip_up_down"),
        (ops, "random_horizontal_flip", "use random_flip_left_right"),
        (ops, "random_blur", "did you mean random_gaussian_blur?"),
        (ops, "read_file", "use gpupipe.io.read_file"),
    ],
)
def test_a_name_that_people_look_for_says_the_right_one(module: ModuleType, name: str, way: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert str(caught.value) == f"module {module.__name__!r} has no attribute {name!r}; {way}"


def test_a_dataset_shows_only_what_users_call() -> None:
    hidden = {"numbered", "refuse_epoch", "requested_epoch"}
    assert not hidden & set(dir(gp.Dataset.range(1)))


def test_python_adds_no_name_of_its_own_to_the_text() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from gpupipe import ops; ops.random_flip"], capture_output=True, text=True, check=False
    )
    assert done.stderr.rstrip().endswith("; use random_flip_left_right or random_flip_up_down")


@pytest.mark.parametrize("module", [gp, ops, io])
@pytest.mark.parametrize("name", ["_private", "__wrapped__", "nothing_like_it_at_all"])
def test_a_name_that_nobody_has_is_an_attribute_error(module: ModuleType, name: str) -> None:
    with pytest.raises(AttributeError, match=r"has no attribute '\w+'$"):
        getattr(module, name)
    assert not hasattr(module, name)


def test_every_op_that_a_user_calls_is_a_function_and_every_class_of_one_is_listed() -> None:
    listed = {cls.__name__.lower() for cls in CATALOGUE}
    for name in set(ops.__all__) - {"IMAGENET_MEAN", "IMAGENET_STD", "Sample"}:
        assert inspect.isfunction(getattr(ops, name)), name
        # decode_jpeg and crop_to_bounding_box, several crops, or operators of arithmetic; or they make functions of ops
        several = ("decode_and_crop_jpeg", "clip", "minimum", "maximum", "five_crop", "ten_crop")
        made_of_others = name in several or name.startswith("from_")
        assert made_of_others or name.replace("_", "") in listed, name


def test_the_module_of_ops_is_pickled_by_name_and_shows_its_files() -> None:
    assert pickle.loads(pickle.dumps(gp.ops)) is copy.deepcopy(gp.ops) is gp.ops

    code = "import gpupipe.ops.resize, gpupipe.ops.catalogue; from gpupipe import ops; "
    code += "print(ops.catalogue.__name__, ops.resize.__name__, type(ops.resize).__name__)"
    assert in_a_new_process(code).split() == ["gpupipe.ops.catalogue", "resize", "function"]


def test_ops_that_are_reloaded_are_imported_again() -> None:
    code = "import importlib, sys; from gpupipe import ops; ops.resize; "
    code += "new = importlib.reload(sys.modules['gpupipe.ops.resize']).resize; "
    code += "print(importlib.reload(ops).resize is new)"
    assert in_a_new_process(code) == "True"


@pytest.mark.parametrize("name", ["errors", "dataset", "options", "compat", "io", "ops"])
def test_a_module_is_there_before_anything_of_it_was_used(name: str) -> None:
    assert in_a_new_process(f"import gpupipe; print(bool(gpupipe.{name}.__all__))") == "True"
