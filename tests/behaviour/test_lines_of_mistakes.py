"""Whatever is raised while a user's function is traced says on which line of the user's own."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, PlanError, TensorSpec, TraceError, ops
from gpupipe.errors import PlanKeyError, PlanTypeError, SpecError

OPS: Any = ops
X = Dataset.from_tensor_slices(np.zeros((2, 9, 8, 3), np.uint8))
PAIR = Dataset.from_tensor_slices({"image": np.zeros((2, 9, 8, 3), np.uint8), "mask": np.zeros((2, 9, 8, 1), np.uint8)})
RECORDS = Dataset.from_tensor_slices([b""])
FEATURES: Any = {
    "image/encoded": gp.io.FixedLenFeature((), bytes),
    "image/class/label": gp.io.FixedLenFeature((), "int64"),
}


SETTINGS: dict[str, Any] = {}


class Config:
    """A user's own object."""


def real(x: Any) -> Any:
    return ops.cast(x, "float32")


def _parsed(record: Any) -> Any:
    return gp.io.parse_single_example(record, FEATURES)


def _none(x: Any) -> None:
    return None


SLIPS: dict[str, tuple[Dataset, Callable[[Any], Any], type[Exception], str]] = {
    "a feature": (RECORDS, lambda r: _parsed(r)["image/encode"], PlanKeyError, "'image/encode', at .*mean 'image/enc"),
    "a key": (PAIR, lambda d: ops.flip_left_right(d["imge"]), KeyError, "the element has no 'imge', .* mean 'image'"),
    "np.stack": (X, lambda x: np.stack([real(x), x]), TraceError, r"needs np\.stack of a value .* use ops\.stack\("),
    "np.exp": (X, lambda x: np.exp(real(x)), TraceError, r"needs np\.exp of a value .* ops for it, wrap .*py_function"),
    "a method": (X, lambda x: real(x).astype("float32"), TraceError, r"the attribute \.astype .* use ops\.cast\("),
    "a list of indices": (X, lambda x: real(x)[[0, 1]], TraceError, r"a subscript of a value .* use ops\.gather\("),
    "an assignment": (X, lambda x: real(x).__setitem__(0, 1), TraceError, "needs assignment to a part of a value"),
    "an operator": (X, lambda x: real(x) @ x, TraceError, "unsupported operand .*; .*py_function"),
    "a key of one's own": (X, lambda x: (real(x), SETTINGS["lr"]), TraceError, r"KeyError\('lr'\), at .*; use ops"),
    "an attribute of one's own": (X, lambda x: (real(x), Config().lr), TraceError, "no attribute 'lr'.*, at"),  # type: ignore[attr-defined]
    "a truth value": (X, lambda x: x if real(x) else real(x), TraceError, "needs a truth value"),
    "a dict for a tuple": (
        PAIR,
        lambda d: OPS.random_flip_left_right(d),
        PlanTypeError,
        r"needs images, got a dict; give a tuple of images: random_flip_left_right\(\(x\['image'\], x\['mask'\]\)\)",
    ),
    "a size": (X, lambda x: ops.resize(x, (0, -3)), SpecError, "resize needs height from 1"),
    "a spec below": (X, lambda x: (real(x), TensorSpec((-1,), "int64")), PlanError, "needs dimensions >= 0"),
    "a name": (X, lambda x: OPS.crop_mirror_normalize(x), PlanError, r"at \S+:\d+; write normalize\(random_flip_left"),
    "a large constant": (X, lambda x: real(x) + np.zeros((60000, 1, 1, 3)), PlanError, "at most 1048576 bytes"),
    "what is returned": (X, lambda x: (real(x), Config()), PlanTypeError, "a leaf needs"),
    "a dict for a value": (PAIR, lambda d: OPS.cast(d, "float32"), PlanTypeError, r"got a dict; give it x\['image'\]"),
    "a set": (X, lambda x: {"a": real(x), "b": {1}}, PlanError, "ordered structure"),
    "nothing": (X, lambda x: _none(real(x)), PlanTypeError, "returns an element, got None from the lambda"),
    "a batch op": (X, lambda x: ops.mixup(x, 1, num_classes=3)[0], SpecError, "all rows of a batch at once"),
}


@pytest.mark.parametrize(("source", "function", "kind", "text"), SLIPS.values(), ids=SLIPS)
def test_a_slip_in_a_traced_function_names_the_line(
    source: Dataset, function: Callable[[Any], Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text) as caught:
        source.map(function)

    said = str(caught.value)
    assert isinstance(caught.value, PlanError)
    assert said.count("test_lines_of_mistakes.py:") == 1
    assert "site-packages" not in said
    line = int(said.partition("test_lines_of_mistakes.py:")[2].split(";")[0].split(",")[0].split()[0])
    assert line > 30  # a row of the table, or the function that it calls


def test_so_it_is_in_a_function_that_returns_datasets() -> None:
    with pytest.raises(KeyError, match=r"the element has no 'imge', .* mean 'image'") as caught:
        PAIR.flat_map(lambda d: Dataset.from_tensors(d["imge"]))

    assert str(caught.value).count("test_lines_of_mistakes.py:") == 1


LIBRARY = """from gpupipe import ops
def bright(x):
    return ops.adjust_gamma(x, 'a')
def wrong(x):
    return ops.cast(x, 'float32').shape
"""


@pytest.mark.parametrize(("name", "line"), [("bright", 3), ("wrong", 5)])
def test_a_function_of_a_library_that_is_traced_itself_is(name: str, line: int) -> None:
    names: dict[str, Any] = {"__name__": "some_library"}
    exec(compile(LIBRARY, "/site-packages/some_library.py", "exec"), names)

    with pytest.raises(PlanError, match=rf"some_library\.py:{line}"):
        X.map(names[name])


@pytest.mark.parametrize("fn", [ops.rot90, partial(ops.mixup, labels=np.eye(2, dtype=np.float32))])
def test_where_no_line_is_the_users_a_message_names_none(fn: Any) -> None:
    """A map gets an op itself: the only line of the user's is that of the map, which the traceback has."""
    ds = Dataset.from_tensor_slices(np.zeros((2, 4, 4, 3), np.float16))
    with pytest.raises(SpecError) as caught:
        ds.map(fn)

    assert not re.search(r", at ($|;)", str(caught.value))


def test_numpys_operators_are_pythons() -> None:
    def function(x: Any) -> Any:
        y = np.float32(2) * real(x) + np.array([1, 2, 3], np.float32)
        return np.subtract(np.multiply(y, 0.5), np.abs(np.negative(x / np.float64(4))))

    chain = X.map(function)

    assert "[traced]" in chain.plan.describe()
    np.testing.assert_allclose(next(iter(chain))[0, 0], [0.5, 1, 1.5])


def test_the_fall_back_to_python_says_the_line_of_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="gpupipe"):
        X.map(lambda x: (ops.flip_left_right, SETTINGS["lr"]))

    assert "KeyError('lr'), at " in caplog.text
    assert "test_lines_of_mistakes.py:" in caplog.text


# ---- what is said elsewhere


def test_what_changes_an_element_in_place_is_told_to_copy_it() -> None:
    def minus(x: Any) -> Any:
        x -= 1
        return x

    spec = TensorSpec((9, 8, 3), "uint8")
    for chain in (X.map(minus, traced=False), X.map(lambda x: ops.py_function(minus, (x,), spec)).batch(2)):
        with pytest.raises(gp.DataError, match=r"raised ValueError: .*read-only; .* copy first, x = x\.copy\(\)"):
            next(iter(chain))


@pytest.mark.parametrize("kind", [gp.TFRecordDataset, gp.TextLineDataset])
def test_a_pattern_is_no_file(kind: type[Dataset], tmp_path: Path) -> None:
    made: Any = kind
    (tmp_path / "odd*").write_bytes(b"")

    with pytest.raises(PlanError, match=r"needs names of files, got the pattern .*train-\*'; Dataset.list_files"):
        made(str(tmp_path / "train-*"))
    assert list(made(str(tmp_path / "odd*"))) == []


def test_a_feature_of_another_library_is_named() -> None:
    tf = pytest.importorskip("tensorflow")
    made: Any = tf.io.FixedLenFeature((), "int64")

    with pytest.raises(PlanTypeError, match=r"such as gpupipe\.io\.FixedLenFeature, got FixedLenFeature of tensorflow"):
        gp.io.parse_single_example(b"", {"a": made})


def test_a_line_in_a_cell_of_a_notebook_is_named_by_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython compiles a cell as a file of a temporary folder, which nobody can open."""
    file = "/tmp/ipykernel_7/831.py"
    compiler = SimpleNamespace(format_code_name=lambda name: ("Cell", "In[3]") if name == file else None)
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(compile=compiler))
    cell = {"__name__": "__main__", "X": X, "real": real}

    def run(code: str) -> Any:
        return eval(compile(f"\n{code}", file, "eval"), cell)

    def raised() -> str:
        with pytest.raises(PlanKeyError, match="no 'imge'") as caught:
            run("X.map(lambda x: {'image': real(x)}).map(lambda d: real(d['imge']))")
        return str(caught.value)

    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert "at In[3]:2" in raised()
    assert [str(finding).partition(": ")[0] for finding in run("X.repeat().shuffle(2)").check()] == ["In[3]:2"]
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert f"at {file}:2" in raised()
