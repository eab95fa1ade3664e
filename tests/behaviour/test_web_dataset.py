"""WebDataset: samples of tar archives as elements, what identifies them, and how a chain of them goes on."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.errors import ParseError, PlanError, PlanTypeError, RecordError
from gpupipe.spec import TensorSpec
from tests.extract.archives import archive, pairs
from tests.reliability.resume import goes_on

SIZES = [4, 0, 9, 1]
BYTES = TensorSpec((), bytes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for i, size in enumerate(SIZES):
        path = Path(archive(tmp_path / "data" / f"{i}.tar", [(f"{i}{name}", data) for name, data in pairs(size, 50)]))
        (tmp_path / "data" / f"{i}.tar.gz").write_bytes(gzip.compress(path.read_bytes()))
    return tmp_path / "data"


def tars(folder: Path, ending: str = ".tar") -> list[str]:
    return [str(folder / f"{i}{ending}") for i in range(len(SIZES))]


@pytest.mark.parametrize(
    ("keys", "spec", "first"),
    [
        ("cls", BYTES, b"0"),
        ("CLS", BYTES, b"0"),
        (("jpg", "cls"), (BYTES, BYTES), (bytes(50), b"0")),
        ({"x": "png;jpg", "k": "__key__"}, {"x": BYTES, "k": BYTES}, {"x": bytes(50), "k": b"0d/0000"}),
        (
            (("jpg",), {"a": "cls", "b": "cls"}),
            ((BYTES,), {"a": BYTES, "b": BYTES}),
            ((bytes(50),), {"a": b"0", "b": b"0"}),
        ),
    ],
)
def test_elements_have_the_nesting_of_the_keys(folder: Path, keys: Any, spec: Any, first: Any) -> None:
    ds = gp.WebDataset(tars(folder), keys)
    assert ds.element_spec == spec
    elements = list(ds)
    assert elements[0] == first
    assert len(elements) == sum(SIZES)


@pytest.mark.parametrize(
    ("keys", "kind", "text"),
    [
        *(
            (x, PlanError, "extensions as they follow the first dot")
            for x in (".jpg", "", "jpg;", "a/jpg", "*.png", "pn?")
        ),
        ("jpg;__key__", PlanError, "needs '__key__' alone"),
        (["jpg", "cls"], PlanTypeError, r'like keys=\("jpg;png", "cls"\), got \["jpg|like keys='),
        ((b"jpg",), PlanTypeError, "extensions as text"),
        ((), PlanError, "empty"),
    ],
)
def test_keys_that_are_no_extensions_are_refused(keys: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        gp.WebDataset("x.tar", keys)
    with pytest.raises(PlanError, match="compression_type is one of"):
        gp.WebDataset("x.tar", "jpg", compression_type="gzip")


CHAINS: dict[str, Callable[[Path], Dataset]] = {
    "compressed": lambda d: gp.WebDataset(tars(d, ".tar.gz"), ("cls", "__key__")),
    "a buffer": lambda d: gp.WebDataset(tars(d), ("cls", "jpg")).shuffle(4, seed=1),
    "a compressed buffer": lambda d: gp.WebDataset(tars(d, ".tar.gz"), "cls").shuffle(4, seed=1),
    "interleave": lambda d: (
        Dataset.list_files(str(d / "*.tar"), seed=1)
        .interleave(lambda path: gp.WebDataset(path, {"a": "cls"}), cycle_length=2, num_parallel_calls=2)
        .shuffle(3)
        .batch(2)
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_state_behind_any_sample_goes_on_with_the_next(folder: Path, name: str) -> None:
    def build() -> Dataset:
        return CHAINS[name](folder)

    assert len(goes_on(build)) > 4


def test_an_index_is_kept_in_a_folder_and_found_there(folder: Path) -> None:
    whole, kept = list(gp.WebDataset(tars(folder), "cls")), folder.parent / "kept"
    for at in (folder, shutil.copytree(folder, folder.parent / "moved")):
        ds = gp.WebDataset(tars(at), "cls", index=kept)
        assert [list(ds), list(ds.skip(2))] == [whole, whole[2:]]


def test_a_state_behind_a_bad_sample_goes_on_with_the_next(folder: Path) -> None:
    path = folder / "2.tar"
    raw = bytearray(path.read_bytes())
    raw[2048 * 3] ^= 1
    raw[2048 * 6] ^= 1
    path.write_bytes(raw)

    def build() -> Dataset:
        return gp.WebDataset(tars(folder), ("cls", "jpg")).with_options(Options(on_error="skip"))

    with iter(build()) as items:
        assert len(list(items)) == sum(SIZES) - 2
        assert [(error.file, error.offset, error.stage) for error in items.errors] == [
            (str(path), offset, "read") for offset in (6144, 7168, 12288, 13312)
        ]
    goes_on(build)


def test_a_damaged_archive_that_was_read_in_order_has_all_its_places(folder: Path) -> None:
    path = folder / "2.tar"
    data = bytearray(path.read_bytes())
    data[3 * 2048 + 100] ^= 0xFF  # the header of the fourth sample
    path.write_bytes(data)
    ds = gp.WebDataset(str(path), ("__key__", "jpg"))

    with iter(ds.with_options(Options(on_error="skip"))) as items:
        good, bad = list(items), items.errors

    assert [error.offset for error in bad] == [6144, 7168]  # the header, and a sample without its image
    assert len(ds) == len(good) + len(bad) == 10
    assert [ds[i] for i in range(10) if i not in (3, 4)] == good
    with pytest.raises(RecordError, match="at offset 6144"):
        ds[3]


@pytest.mark.parametrize("how", [None, "GZIP"])
def test_a_compressed_archive_cannot_be_indexed(folder: Path, how: str | None) -> None:
    ds = gp.WebDataset(tars(folder, ".tar.gz"), "cls", compression_type=how)
    assert [int(x) for x in ds] == [*range(4), *range(9), 0]
    with pytest.raises(PlanTypeError, match="unknown before it is read"):
        len(ds)
    with pytest.raises(PlanTypeError, match=r"WebDataset.*cannot be indexed: (it reads|a) compressed"):
        ds[0]
    names = Dataset.from_tensor_slices(tars(folder, ".tar.gz"))
    with pytest.raises(PlanTypeError, match=r"needs uncompressed archives, got .*0.tar.gz"):
        names.flat_map(lambda path: gp.WebDataset(path, "cls"))[0]


def test_archives_behind_a_url_are_read_and_cannot_be_indexed(folder: Path) -> None:
    files = fsspec.filesystem("memory")
    for path in (*tars(folder), *tars(folder, ".tar.gz")):
        files.pipe_file(f"/shards/{Path(path).name}", Path(path).read_bytes())
    local = list(gp.WebDataset(tars(folder), ("jpg", "cls")))
    for ending in (".tar", ".tar.gz"):
        ds = gp.WebDataset([f"memory://shards/{i}{ending}" for i in range(4)], ("jpg", "cls"))
        assert list(ds) == local
        with pytest.raises(PlanTypeError, match="cannot be indexed: it reads"):
            ds[0]
    with pytest.raises(gp.DataError, match="no such file"):
        list(gp.WebDataset("memory://shards/none.tar", "jpg"))


def test_a_sample_without_a_wanted_member_says_what_it_has(folder: Path) -> None:
    text = r"0.tar at offset 0: read: a sample needs a member 'txt;json', 0d/0000 has jpg, cls"
    with pytest.raises(ParseError, match=text):
        list(gp.WebDataset(tars(folder), ("jpg", "txt;json")))
    left = gp.WebDataset(tars(folder), ("jpg", "txt")).with_options(Options(on_error="skip"))
    assert list(left) == []


def test_a_shuffle_holds_references_to_payloads(folder: Path) -> None:
    text = str(gp.WebDataset(tars(folder), ("jpg", "cls")).shuffle(4, seed=1).explain())

    assert "as references (file, offset, length)" in text and "shuffle(4, seed=1) holding 4 references" in text


def test_an_archive_that_changed_under_its_index_is_noticed(folder: Path) -> None:
    path = folder / "0.tar"
    ds = gp.WebDataset(str(path), ("__key__", "cls"))
    assert len(ds) == 4
    before = path.stat()
    raw = path.read_bytes()
    path.write_bytes(bytes(512) + raw[:-512])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(RecordError, match=r"0.tar at offset 0: read: no sample starts here any more"):
        ds[0]
    assert ds[0] == (b"0d/0000", b"0")  # found by a new index
