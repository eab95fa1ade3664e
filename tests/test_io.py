"""gpupipe.io: Examples and files, eager and traced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import io
from gpupipe.errors import DirectoryError, MissingFileError, ParseError, PlanError, PlanTypeError, SpecError
from gpupipe.extract.storage.sharing import gil_is_on
from gpupipe.graph.host_values import HostValues
from gpupipe.graph.trace import Traced, trace
from gpupipe.spec import TensorSpec, flatten

RECORD = TensorSpec((), bytes)
FEATURES: dict[str, Any] = {
    "image": io.FixedLenFeature((), bytes),
    "label": io.FixedLenFeature((), "int64", default_value=-1),
    "box": io.FixedLenFeature((2, 2), "float32"),
    "words": io.VarLenFeature(bytes),
    "points": io.FixedLenSequenceFeature((2,), "int64", allow_missing=True, default_value=9),
    "ragged": io.RaggedFeature("float32"),
}
ROWS: list[dict[str, Any]] = [
    {"image": b"\xff\xd8\0", "label": 3, "box": [0.0, 1.0, 2.0, 3.5], "words": ["a", "bc"], "points": [1, 2]},
    {"image": b"", "box": np.zeros((2, 2), np.float32), "points": [3, 4, 5, 6], "ragged": [0.5, 1.5]},
]
EXAMPLES = list(map(io.encode_example, ROWS))

NO_FEATURES: Any = ["a"]


def traced(features: dict[str, Any], fn: Any = io.parse_single_example, batched: bool = False) -> Traced:
    """A function that parses, as a graph."""
    found = trace(lambda record: fn(record, features), flatten(0)[1], [RECORD], batched=batched)
    assert found is not None
    return found


def run(graph: Traced, records: list[Any]) -> Any:
    """What a graph over records gives, one list per leaf."""
    keys = np.arange(len(records), dtype=np.uint64)
    values = HostValues(len(records), lambda i: records, lambda i: keys, seed=0, epoch=0)
    return graph.structure.unflatten([list(values.rows(value)) for value in graph.outputs])


def test_one_example_gives_a_value_for_each_feature() -> None:
    got = io.parse_single_example(EXAMPLES[0], FEATURES)

    assert list(got) == list(FEATURES)
    assert type(got["image"]) is bytes and got["image"] == b"\xff\xd8\0"
    values = {name: (value.dtype, value.tolist()) for name, value in got.items() if name != "image"}
    assert values == {
        "label": (np.int64, 3), "box": (np.float32, [[0, 1], [2, 3.5]]), "words": (object, [b"a", b"bc"]),
        "points": (np.int64, [[1, 2]]), "ragged": (np.float32, []),
    }  # fmt: skip


def test_a_traced_parse_has_a_spec_for_each_feature_and_keeps_images_as_views() -> None:
    graph = traced(FEATURES)

    got = run(graph, [memoryview(example) for example in EXAMPLES])

    specs = graph.structure.unflatten([str(value.spec) for value in graph.outputs])
    expected = "bytes int64 float32[2,2] bytes[?] int64[?,2] float32[?]"
    assert specs == dict(zip(FEATURES, expected.split(), strict=True))
    assert isinstance(got["image"][0], memoryview if gil_is_on() else bytes)
    assert [bytes(image) for image in got["image"]] == [b"\xff\xd8\0", b""]
    assert got["label"] == [3, -1]
    assert [row.tolist() for row in got["points"]] == [[[1, 2]], [[3, 4], [5, 6]]]


def test_equal_features_make_equal_graphs() -> None:
    again = {name: replace(feature) for name, feature in FEATURES.items()}

    assert traced(FEATURES).outputs == traced(again).outputs
    assert traced(FEATURES).outputs != traced({**again, "label": io.FixedLenFeature((), "int64", 0)}).outputs


def test_a_batch_is_stacked_padded_or_ragged() -> None:
    got = io.parse_example(EXAMPLES, FEATURES)

    assert got["image"].tolist() == [b"\xff\xd8\0", b""]
    assert got["label"].tolist() == [3, -1]
    assert got["box"].shape == (2, 2, 2)
    assert got["points"].tolist() == [[[1, 2], [9, 9]], [[3, 4], [5, 6]]]
    words, ragged = got["words"], got["ragged"]
    assert isinstance(words, io.Ragged) and [row.tolist() for row in words] == [[b"a", b"bc"], []]
    assert (ragged.values.tolist(), ragged.row_splits.tolist()) == ([0.5, 1.5], [0, 0, 2])
    assert ragged[-1].tolist() == [0.5, 1.5]


def test_behind_a_batch_the_traced_parse_is_the_same_row_by_row() -> None:
    features = {name: FEATURES[name] for name in ("label", "box")}

    assert traced(features, io.parse_example, batched=True).outputs == traced(features).outputs
    with pytest.raises(SpecError, match="one length inside map, got VarLenFeature for 'words'"):
        traced(FEATURES, io.parse_example, batched=True)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: io.parse_single_example(b"", {}), PlanError, "at least one feature"),
        (lambda: io.parse_single_example(b"", NO_FEATURES), PlanTypeError, "a dict of features, got list"),
        (lambda: io.parse_single_example(b"", {"a": NO_FEATURES}), PlanTypeError, "feature 'a' needs a description"),
        (lambda: io.parse_single_example(EXAMPLES, FEATURES), SpecError, "one record as bytes, got list"),
        (lambda: io.parse_example(EXAMPLES[0], FEATURES), SpecError, "use parse_single_example"),
        (lambda: io.parse_example([1], FEATURES), SpecError, "got int for record 0"),
        (lambda: io.read_file(3), PlanError, "read_file needs one path, got int"),
    ],
)
def test_mistakes_name_what_is_needed(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_a_record_that_lacks_a_feature_is_named_in_a_batch() -> None:
    features = {"label": io.FixedLenFeature((), "int64")}

    with pytest.raises(ParseError, match=r"record 1: feature 'label' \(int64\) is required"):
        io.parse_example(EXAMPLES, features)


def test_a_traced_parse_needs_a_record() -> None:
    with pytest.raises(SpecError, match=r"needs one record, a bytes scalar, got int64.*test_io\.py"):
        trace(lambda x: io.parse_single_example(x, FEATURES), flatten(0)[1], [TensorSpec((), "int64")])


def test_a_file_is_read_by_name_or_path_eager_or_traced(tmp_path: Path) -> None:
    path = tmp_path / "é.bin"
    path.write_bytes(b"\0abc\0")
    graph = trace(io.read_file, flatten(0)[1], [RECORD])
    assert graph is not None

    assert io.read_file(path) == io.read_file(str(path)) == io.read_file(str(path).encode()) == b"\0abc\0"
    assert run(graph, [str(path).encode()]) == [b"\0abc\0"]
    assert graph.outputs[0].spec == RECORD


@pytest.mark.parametrize("name", ["a\0b", "a\ud800", "https://u:S3CRET@h/\ud800"])
def test_a_name_that_no_file_can_have_is_a_mistake(name: str) -> None:
    ds = gp.Dataset.range(2)
    calls: dict[str, Callable[[str], Any]] = {
        "read_file": io.read_file,
        "TFRecordWriter": io.TFRecordWriter,
        "save": ds.save,
        "cache": ds.cache,
        "snapshot": ds.snapshot,
    }
    for who, call in calls.items():
        with pytest.raises(PlanError, match=f"^{who} needs names") as caught:
            call(name)
        assert "S3CRET" not in f"{caught.value} {caught.value.__cause__!r} {caught.value.__context__!r}"


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="nowhere: read: no such file"):
        io.read_file(tmp_path / "nowhere")
    with pytest.raises(DirectoryError, match="a file is needed"):
        io.read_file(tmp_path)
