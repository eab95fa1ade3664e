"""NumPy's and HDF5's files: types of arrays, compressed ones, groups, what is refused; nothing is ever unpickled."""

from __future__ import annotations

import io
import pickle
import struct
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import PlanError, RecordError
from gpupipe.extract.storage.files import LOCAL
from gpupipe.extract.tables import numpy
from gpupipe.extract.tables.hdf5 import Hdf5
from gpupipe.spec import TensorSpec, spec_of
from tests.extract.tables.test_every_format import elements, skipping
from tests.reliability.test_hostile_files import memory_below

ARRAYS: dict[str, Any] = {
    **{
        name: np.arange(5).astype(name) for name in "int8 uint8 int16 uint32 int64 float16 float32 float64 bool".split()
    },
    "big-endian": np.arange(5, dtype=">i4"),
    "rows": np.arange(20, dtype=np.float32).reshape(5, 4),
    "images": np.arange(5 * 4 * 3 * 3, dtype=np.uint8).reshape(5, 4, 3, 3),
    "one column in Fortran order": np.asfortranarray(np.arange(5.0)),
    "byte strings": np.array([b"a", b"bcd", b"", b"e", b"f"]),
    "texts": np.array(["a", "ü", "", "e", "f"]),
    "none": np.zeros((0, 3), np.int16),
}


def _plain(array: Any) -> list[Any]:
    values = array.tolist()
    return [value.encode() if isinstance(value, str) else value for value in values]


def hdf5_file(path: Path) -> Any:
    return pytest.importorskip("h5py").File(path, "w")


def hdf5_of(path: Path, **datasets: Any) -> str:
    with hdf5_file(path) as file:
        for name, values in datasets.items():
            file[name] = values
    return str(path)


@pytest.mark.parametrize(
    ("name", "form"), [(name, form) for name in ARRAYS for form in ("npy", "hdf5") if (name, form) != ("texts", "hdf5")]
)
def test_the_items_of_an_array_are_those_that_its_library_reads(name: str, form: str, tmp_path: Path) -> None:
    if form == "npy":
        np.save(tmp_path / "one.npy", ARRAYS[name])
        expected = _plain(np.load(tmp_path / "one.npy", allow_pickle=False))
        ds: Any = gp.NumpyDataset(str(tmp_path / "one.npy"))
    else:
        ds = gp.HDF5Dataset(hdf5_of(tmp_path / "one", x=ARRAYS[name]), "x")
        with pytest.importorskip("h5py").File(tmp_path / "one") as file:
            expected = _plain(file["x"][:])

    assert elements(ds) == expected
    assert elements(ds[2:]) == expected[2:]
    assert len(ds) == len(expected)
    for value in ds:
        assert ds.element_spec == spec_of(value)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_the_items_of_several_arrays(save: Any, tmp_path: Path) -> None:
    given = {"x": ARRAYS["images"], "label": np.arange(5), "text": ARRAYS["texts"]}
    save(tmp_path / "one.npz", **given, other=np.arange(3))

    ds = gp.NumpyDataset(str(tmp_path / "one.npz"), ["label", "x", "text"])

    assert elements(ds) == [
        {"label": i, "x": given["x"][i].tolist(), "text": str(given["text"][i]).encode()} for i in range(5)
    ]
    assert elements(ds[3:]) == elements(ds)[3:]
    assert elements(gp.NumpyDataset(str(tmp_path / "one.npz"), "other")) == [0, 1, 2]
    with pytest.raises(RecordError, match=r"arrays of different lengths, \[3, 5\]; choose some with columns="):
        gp.NumpyDataset(str(tmp_path / "one.npz"))


class _Trap:
    """Unpickling it would be noticed."""

    sprung = False

    def __reduce__(self) -> Any:
        return _spring, ()


def _spring() -> None:
    _Trap.sprung = True


def test_objects_are_refused_and_never_unpickled(tmp_path: Path) -> None:
    trap = np.array([_Trap(), _Trap()], object)
    np.save(tmp_path / "one.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "one.npz", a=np.arange(2), trap=trap)
    (tmp_path / "pickle.npy").write_bytes(pickle.dumps(_Trap()))
    spec = TensorSpec((), "int64")

    with pytest.raises(PlanError, match="of Python objects, which could only be unpickled"):
        gp.NumpyDataset(str(tmp_path / "one.npy"))
    with pytest.raises(PlanError, match=r"'trap' in .*of Python objects"):
        gp.NumpyDataset(str(tmp_path / "one.npz"))
    with pytest.raises(RecordError, match=r"neither \.npy nor \.npz"):
        gp.NumpyDataset(str(tmp_path / "pickle.npy"))
    assert elements(skipping(gp.NumpyDataset(str(tmp_path / "one.npy"), spec=spec))) == []
    assert elements(gp.NumpyDataset(str(tmp_path / "one.npz"), "a")) == [0, 1]
    assert not _Trap.sprung


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.zeros((3, 2), order="F"), "in Fortran order"),
        (np.zeros(3, complex), "of complex128"),
        (np.zeros(3, "datetime64[s]"), "of datetime64"),
        (np.zeros(3, [("a", "i4")]), "neither a number nor bytes"),
        (np.array([[b"a"]]), "with more than one axis"),
        (np.zeros((3, 0)), "with rows of 0 bytes"),
    ],
)
def test_arrays_without_items_that_are_leaves_are_refused(array: Any, complaint: str, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", array)

    with pytest.raises(PlanError, match=complaint):
        gp.NumpyDataset(str(tmp_path / "one.npy"))


def test_one_number_has_no_items(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.float32(3))

    with pytest.raises(RecordError, match="no rows"):
        gp.NumpyDataset(str(tmp_path / "one.npy"))
    with pytest.raises(RecordError, match="no rows"):
        gp.HDF5Dataset(hdf5_of(tmp_path / "one", x=3.5))


def test_an_array_that_is_cut_off_is_lost_and_says_so(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.arange(5))
    np.save(tmp_path / "1.npy", np.arange(500))
    data = (tmp_path / "1.npy").read_bytes()
    (tmp_path / "1.npy").write_bytes(data[:-1])
    ds = gp.NumpyDataset([str(tmp_path / "0.npy"), str(tmp_path / "1.npy")])

    with pytest.raises(RecordError, match="an array of 4000 bytes with 3999; it may be cut off"):
        elements(ds)
    assert elements(skipping(ds, lost_files="skip")) == [0, 1, 2, 3, 4]


def test_damage_of_a_compressed_member_makes_all_items_bad(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez_compressed(tmp_path / "one.npz", a=np.arange(200), b=rng.integers(256, size=(200, 50), dtype=np.uint8))
    data = bytearray((tmp_path / "one.npz").read_bytes())
    data[-3000] ^= 0x10
    (tmp_path / "one.npz").write_bytes(data)

    with iter(skipping(gp.NumpyDataset(str(tmp_path / "one.npz")))) as items:
        assert elements(items) == []
        assert items.left_out == 200
        assert "cannot be decoded" in items.errors[0].reason
    assert elements(gp.NumpyDataset(str(tmp_path / "one.npz"), "a")) == list(range(200))


def flipped(path: Path, where: float, by: int = 4) -> None:
    """Flip a bit of a file, so far behind its start."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * where)] ^= by
    path.write_bytes(data)


STORED: dict[str, Any] = {"a": np.arange(100_000).reshape(1000, 100), "b": np.arange(1000, dtype=np.int8)}
"""Arrays of several blocks: the first has nearly all the bytes of a file."""


@pytest.mark.parametrize("where", [0.001, 0.3, 0.8])
@pytest.mark.parametrize(
    "read",
    [
        lambda ds: elements(ds),
        lambda ds: elements(ds.skip(990)),
        lambda ds: [ds[999]],
        lambda ds: elements(ds.shuffle(gp.ALL, seed=1).take(3)),
    ],
    ids=["in order", "from row 990 on", "by index", "shuffled"],
)
def test_a_flipped_bit_of_a_member_that_is_not_compressed_is_an_error(read: Any, where: float, tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", **STORED)
    flipped(tmp_path / "one.npz", where)

    with pytest.raises(
        RecordError, match=r"block \d of \d: the member 'a' of CRC-32 \w+ is needed, as the file says, got one of"
    ):
        read(gp.NumpyDataset(str(tmp_path / "one.npz"), ["b", "a"]))
    assert elements(gp.NumpyDataset(str(tmp_path / "one.npz"), "b").take(3)) == [0, 1, 2]  # the other is sound


def test_all_items_of_a_member_with_a_flipped_bit_are_bad_as_those_of_a_compressed_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", a=np.arange(100_000).reshape(200, 500))
    flipped(tmp_path / "one.npz", 0.9)

    with iter(skipping(gp.NumpyDataset(str(tmp_path / "one.npz")))) as items:
        assert elements(items) == []
        assert items.left_out == 200
        assert "copy the file again" in items.errors[0].reason


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_checksum_is_of_what_follows_an_array_too(compression: int, tmp_path: Path) -> None:
    """So a header that was changed to be that of a shorter array is noticed."""
    out = io.BytesIO()
    np.save(out, np.arange(9000))
    sound, shorter = out.getvalue(), out.getvalue().replace(b"(9000,)", b"(1000,)")
    for name, data in (("sound", sound), ("shorter", shorter)):
        with zipfile.ZipFile(tmp_path / name, "w", compression) as archive:
            archive.writestr("a.npy", data)
    wrong, right = (struct.pack("<I", zlib.crc32(data)) for data in (shorter, sound))
    (tmp_path / "shorter").write_bytes((tmp_path / "shorter").read_bytes().replace(wrong, right))

    assert elements(gp.NumpyDataset(str(tmp_path / "sound"), "a")) == list(range(9000))
    with pytest.raises(RecordError, match="CRC"):
        elements(gp.NumpyDataset(str(tmp_path / "shorter"), "a"))


def test_a_checksum_is_compared_once_for_each_version_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "one.npz", **STORED)
    path, compared, crc32 = str(tmp_path / "one.npz"), [0], zlib.crc32

    def counted(data: Any, value: int = 0) -> int:
        assert len(data) <= 2000
        compared[0] += len(data)
        return crc32(data, value)

    monkeypatch.setattr(zlib, "crc32", counted)
    monkeypatch.setattr(numpy, "_PIECE", 2000)
    ds = gp.NumpyDataset(path)
    assert compared == [0]  # not where the chain is made
    assert len(elements(ds)) == len(elements(ds)) == len(elements(gp.NumpyDataset(path))) == 1000
    assert [row["b"] for row in elements(ds.skip(999))] == [-25]
    once = compared[0]
    assert 801_000 < once < 801_500

    np.savez(tmp_path / "new.npz", **STORED)
    (tmp_path / "new.npz").replace(path)
    flipped(tmp_path / "one.npz", 0.5)
    for _ in range(2):  # what was found is not forgotten
        with pytest.raises(RecordError, match="the member 'a' of CRC-32"):
            ds[0]
    with iter(skipping(gp.NumpyDataset(path, "a"))) as items:
        assert elements(items) == []
    assert compared[0] < 5 * once


def test_a_member_of_one_block_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "one.npz", a=np.arange(10_000))
    ds = gp.NumpyDataset(str(tmp_path / "one.npz"), "a")
    read, taken = LOCAL.read, [0]

    def counted(name: str, offset: int, n: int, tag: str | None = None) -> bytes:
        taken[0] += n
        return read(name, offset, n, tag)

    monkeypatch.setattr(LOCAL, "read", counted)
    assert elements(ds) == list(range(10_000))
    assert 80_000 < taken[0] < 110_000


def test_a_member_that_claims_to_be_enormous_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "one.npz", a=np.zeros(100_000))
    data = bytearray((tmp_path / "one.npz").read_bytes())
    at = data.rindex(b"PK\x01\x02")
    struct.pack_into("<I", data, at + 24, 0xFFFFFFF0)
    (tmp_path / "two.npz").write_bytes(data)

    with pytest.raises(RecordError, match="claims to expand from"):
        gp.NumpyDataset(str(tmp_path / "two.npz"))
    monkeypatch.setattr("gpupipe.extract.tables.numpy.MOST_BYTES", 1000)
    with pytest.raises(RecordError, match="at most 1000 bytes of compressed arrays are needed"):
        elements(gp.NumpyDataset(str(tmp_path / "one.npz")))


@pytest.mark.parametrize("dtype", ["S3", "S4", "<U2", ">U2"])
def test_many_short_texts_take_no_more_memory_than_their_array(dtype: str, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "one.npz", a=np.full(1 << 15, "xy", dtype))
    ds: Any = gp.NumpyDataset(str(tmp_path / "one.npz"), "a")
    if dtype == "S3":
        ds = gp.HDF5Dataset(hdf5_of(tmp_path / "one.h5", a=np.full(1 << 15, "xy", dtype)), "a")
    assert ds[0] == b"xy"  # what is made once is made

    with memory_below(900 << 10):  # the array has up to 256 KB, a piece that is read as much, each object 40 bytes
        assert next(iter(ds)) == b"xy"
    assert sum(text == b"xy" for text in ds) == 1 << 15
    assert ds[(1 << 15) - 1] == b"xy"


@pytest.mark.parametrize("dtype", ["<U1", ">U1"])
def test_a_number_that_is_no_character_is_an_error(dtype: str, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.array(["a", "b"], dtype))
    data = (tmp_path / "one.npy").read_bytes()
    for number, last in ((sys.maxunicode, "\U0010ffff".encode()), (sys.maxunicode + 1, None)):
        (tmp_path / "one.npy").write_bytes(data[:-4] + struct.pack(dtype[0] + "I", number))
        with iter(skipping(gp.NumpyDataset(str(tmp_path / "one.npy")))) as items:
            assert elements(items) == ([b"a", last] if last else [])
            assert all("none of its characters" in error.reason for error in items.errors)


def test_the_directory_of_an_archive_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays: dict[str, Any] = {f"a{i}": np.arange(2) for i in range(50)}
    np.savez_compressed(tmp_path / "one.npz", **arrays)
    ds = gp.NumpyDataset(str(tmp_path / "one.npz"))
    read, taken = LOCAL.read, [0]

    def counted(name: str, offset: int, n: int, tag: str | None = None) -> bytes:
        taken[0] += n
        return read(name, offset, n, tag)

    monkeypatch.setattr(LOCAL, "read", counted)
    assert len(elements(ds)) == 2
    assert taken[0] < 4 * (tmp_path / "one.npz").stat().st_size


def _directory(path: Path) -> tuple[bytearray, int]:
    """The bytes of an archive, and where its directory starts."""
    data = bytearray(path.read_bytes())
    return data, data.index(b"PK\x01\x02")


@pytest.mark.parametrize("bit", [6, 12, 15])
def test_a_directory_that_lacks_members_is_one_error_of_the_file(bit: int, tmp_path: Path) -> None:
    """One entry may take those behind it for its comment; the end of the file says how many there are."""
    np.savez_compressed(tmp_path / "one.npz", a=np.arange(5), b=np.ones((5, 3)))
    data, at = _directory(tmp_path / "one.npz")
    struct.pack_into("<H", data, at + 32, 1 << bit)
    (tmp_path / "one.npz").write_bytes(data)

    with pytest.raises(RecordError, match="a directory of 1 members, of which the end of the file says 2"):
        gp.NumpyDataset(str(tmp_path / "one.npz"))


def test_an_archive_with_comments_is_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "one.npz", a=np.arange(5), b=np.ones(5))
    with zipfile.ZipFile(tmp_path / "one.npz", "a") as archive:
        archive.comment = b"of some kind"
        archive.infolist()[0].comment = b"x" * 500

    assert len(elements(gp.NumpyDataset(str(tmp_path / "one.npz")))) == 5


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_members_that_share_bytes_are_refused(save: Any, tmp_path: Path) -> None:
    """All of them together could be of any size otherwise."""
    save(tmp_path / "one.npz", a=np.arange(5), b=np.arange(5))
    data, _ = _directory(tmp_path / "one.npz")
    other = data.rindex(b"PK\x01\x02")
    (start,) = struct.unpack_from("<I", data, other + 42)
    struct.pack_into("<I", data, other + 42, start - 60)
    (tmp_path / "one.npz").write_bytes(data)

    with pytest.raises(RecordError, match=r"the member 'a.npy', which overlaps 'b.npy'"):
        gp.NumpyDataset(str(tmp_path / "one.npz"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "dtype, shape", [("<f4", (10**13, 0)), ("|O", (10**13,)), ("<f4", (0, 2**70)), ("<f4", (2**70, 0))]
)
def test_an_array_without_bytes_that_claims_to_be_enormous_takes_no_memory(
    dtype: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    with open(tmp_path / "one.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
        file.write(bytes(64))

    with pytest.raises(RecordError, match=r"the shape|an array of \d+ bytes with 64"):
        gp.NumpyDataset(str(tmp_path / "one.npy"))


def test_members_packed_in_ways_that_numpy_does_not_write_are_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    np.save(out, np.arange(3))
    with zipfile.ZipFile(tmp_path / "one.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", out.getvalue())

    with pytest.raises(RecordError, match="encrypted or compressed in another way"):
        gp.NumpyDataset(str(tmp_path / "one.npz"))


def test_a_boolean_is_one_whatever_its_byte_says(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3, bool))
    data = (tmp_path / "one.npy").read_bytes()
    (tmp_path / "one.npy").write_bytes(data[:-3] + b"\x00\x02\xff")

    assert [bool(value) for value in gp.NumpyDataset(str(tmp_path / "one.npy"))] == [False, True, True]
    assert np.concatenate(list(gp.NumpyDataset(str(tmp_path / "one.npy")).batch(3))[:1]).view(np.uint8).max() == 1


def test_items_are_copies_that_do_not_keep_their_block(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros((100, 50)))
    ds = gp.NumpyDataset(str(tmp_path / "one.npy"))

    for row in (*ds.take(2), ds[7]):
        while row.base is not None:
            row = row.base
        assert row.nbytes == 400


# ---- HDF5


def test_strings_and_items_of_varying_length(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with hdf5_file(tmp_path / "one") as file:
        file.create_dataset("text", data=["a", "ü", ""], dtype=h5py.string_dtype())
        file.create_dataset("fixed", data=np.array([b"a", b"bcd", b""]))
        lists = file.create_dataset("lists", (3,), h5py.vlen_dtype(np.int32))
        for i in range(3):
            lists[i] = np.arange(i)
    ds = gp.HDF5Dataset(str(tmp_path / "one"), ["text", "fixed", "lists"])

    assert ds.element_spec == {
        "text": TensorSpec((), bytes),
        "fixed": TensorSpec((), bytes),
        "lists": TensorSpec((None,), "int32"),
    }
    assert elements(ds) == [
        {"text": b"a", "fixed": b"a", "lists": []},
        {"text": "ü".encode(), "fixed": b"bcd", "lists": [0]},
        {"text": b"", "fixed": b"", "lists": [0, 1]},
    ]


def lists_of(path: Path, dtype: Any, *rows: Any) -> str:
    h5py = pytest.importorskip("h5py")
    with hdf5_file(path) as file:
        lists = file.create_dataset("v", (len(rows),), h5py.vlen_dtype(np.dtype(dtype)))
        for i, row in enumerate(rows):
            lists[i] = np.array(row, dtype)
    return str(path)


def test_items_of_varying_length_are_copies_and_a_map_in_place_changes_no_later_epoch(tmp_path: Path) -> None:
    ds = gp.HDF5Dataset(lists_of(tmp_path / "one", np.float64, [1, 2], [3], []), "v")

    def doubled(v: Any) -> Any:
        v *= 2
        return v

    for order in (ds, ds.shuffle(gp.ALL, seed=1)):
        for _ in range(2):
            assert sorted(row.sum() for row in order.map(doubled, traced=False)) == [0, 6, 6]
    ds[0][:] = 9
    assert ds[0].tolist() == [1, 2]


def test_blocks_of_varying_length_count_their_bytes(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = lists_of(tmp_path / "one", np.float64, np.zeros(1000), np.zeros(500))
    with h5py.File(path, "a") as file:
        file.create_dataset("text", data=["", "\N{BLACK STAR}" * 10], dtype=h5py.string_dtype())

    for name, spec, least in (("v", TensorSpec((None,), "float64"), 1500 * 8), ("text", TensorSpec((), bytes), 30)):
        assert least <= Hdf5().open(path).read(0, [name], [spec]).nbytes <= least + 100


@pytest.mark.parametrize(("wide", "narrow"), [("int64", "int32"), ("int16", "uint64"), ("float64", "float32")])
def test_lists_of_another_width_are_converted(wide: str, narrow: str, tmp_path: Path) -> None:
    paths = [lists_of(tmp_path / "a", wide, [1, 2], [3]), lists_of(tmp_path / "b", narrow, [4], [], [5, 6])]
    ds = gp.HDF5Dataset(paths, "v")

    assert ds.element_spec == TensorSpec((None,), wide)
    assert elements(ds) == [[1, 2], [3], [4], [], [5, 6]]
    assert {row.dtype for row in ds} == {np.dtype(wide)}
    assert ds[2].tolist() == [4]


def test_a_list_with_a_value_beyond_the_type_of_the_first_file_is_bad(tmp_path: Path) -> None:
    paths = [lists_of(tmp_path / "a", "int8", [1]), lists_of(tmp_path / "b", "int64", [2], [3, 1000])]
    it = iter(skipping(gp.HDF5Dataset(paths, "v")))

    assert [row.tolist() for row in it] == [[1], [2]]
    assert [(error.offset, error.reason) for error in it.errors] == [
        (1, "column 'v' of int8[?] is needed, got int64[?] with a value beyond it")
    ]


def test_a_boolean_of_a_list_is_one_whatever_its_byte_says(tmp_path: Path) -> None:
    path = lists_of(tmp_path / "one", np.bool_, [True, False] * 50)
    data = (tmp_path / "one").read_bytes()
    at = data.index(b"\1\0" * 50)
    (tmp_path / "one").write_bytes(data[:at] + b"\7" + data[at + 1 :])

    (row,) = gp.HDF5Dataset(path, "v")
    assert row.view(np.uint8).max() == 1


def test_lists_in_the_order_of_another_machine_are_refused(tmp_path: Path) -> None:
    """h5py hands them out with their bytes as they are, and the dtype of this machine."""
    h5py = pytest.importorskip("h5py")
    with hdf5_file(tmp_path / "one") as file:
        file.create_dataset("lists", (2,), h5py.vlen_dtype(np.dtype(np.int32).newbyteorder()))
        file.create_dataset("rows", data=np.arange(2, dtype=np.dtype(np.int32).newbyteorder()))

    with pytest.raises(PlanError, match="whose bytes h5py does not swap"):
        gp.HDF5Dataset(str(tmp_path / "one"), "lists")
    assert elements(gp.HDF5Dataset(str(tmp_path / "one"), "rows")) == [0, 1]


def test_datasets_in_groups_are_named_by_their_path(tmp_path: Path) -> None:
    path = hdf5_of(tmp_path / "one", **{"top": np.arange(3), "train/x": np.arange(4), "train/y": np.arange(4) * 2})

    assert elements(gp.HDF5Dataset(path)) == [{"top": 0}, {"top": 1}, {"top": 2}]
    assert elements(gp.HDF5Dataset(path, ["train/y", "train/x"]))[2] == {"train/y": 4, "train/x": 2}
    with pytest.raises(PlanError, match="needs a column 'train'"):
        gp.HDF5Dataset(path, "train")


def test_datasets_of_different_lengths_are_refused_unless_some_are_chosen(tmp_path: Path) -> None:
    path = hdf5_of(tmp_path / "one", a=np.arange(3), b=np.arange(4))

    with pytest.raises(RecordError, match=r"different lengths, \[3, 4\]; choose some with keys="):
        gp.HDF5Dataset(path)
    assert elements(gp.HDF5Dataset(path, "b")) == [0, 1, 2, 3]


def test_data_in_other_files_are_not_read(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    secret = hdf5_of(tmp_path / "secret", x=np.arange(3))
    (tmp_path / "raw").write_bytes(np.arange(3).tobytes())
    with hdf5_file(tmp_path / "one") as file:
        file["own"] = np.arange(3)
        file["link"] = h5py.ExternalLink(secret, "/x")
        file["soft"] = h5py.SoftLink("/link")
        file.create_dataset("external", (3,), np.int64, external=[(str(tmp_path / "raw"), 0, 24)])
        layout = h5py.VirtualLayout((3,), np.int64)
        layout[:] = h5py.VirtualSource(secret, "x", (3,))
        file.create_virtual_dataset("virtual", layout)
    path = str(tmp_path / "one")

    for name in ("link", "soft"):
        with pytest.raises(PlanError, match=f"needs a column '{name}'"):
            gp.HDF5Dataset(path, name)
    for name in ("external", "virtual"):
        with pytest.raises(PlanError, match=f"'{name}' in .* whose data are in other files"):
            gp.HDF5Dataset(path, name)
    assert elements(gp.HDF5Dataset(path, "own")) == [0, 1, 2]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (np.zeros(3, [("a", "i4"), ("b", "f4")]), "neither numbers nor byte strings"),
        (np.zeros(3, complex), "neither numbers nor byte strings"),
        (np.array([[b"a"]]), "neither numbers nor byte strings"),
        (np.zeros((3, 0)), "with rows of 0 bytes"),
    ],
)
def test_items_that_are_no_leaves_are_refused(values: Any, complaint: str, tmp_path: Path) -> None:
    path = hdf5_of(tmp_path / "one", odd=values)

    with pytest.raises(PlanError, match=complaint):
        gp.HDF5Dataset(path)


def test_a_dataset_without_data_that_claims_to_be_enormous_takes_no_memory(tmp_path: Path) -> None:
    with hdf5_file(tmp_path / "one") as file:
        file.create_dataset("x", (1 << 50,), np.uint8, chunks=(1 << 10,))

    with pytest.raises(RecordError, match="rows, which are more than"):
        gp.HDF5Dataset(str(tmp_path / "one"))


def test_a_block_has_no_more_rows_than_it_may_have_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hdf5_file(tmp_path / "one") as file:
        file.create_dataset("long", data=np.arange(100), chunks=(100,))
        file.create_dataset("wide", data=np.arange(100)[:, None] * np.ones(50), chunks=(1, 50))
    monkeypatch.setattr("gpupipe.extract.tables.hdf5.MOST_BYTES", 1000)

    assert len(elements(gp.HDF5Dataset(str(tmp_path / "one"), "wide"))) == 100
    for i, row in enumerate(gp.HDF5Dataset(str(tmp_path / "one"))):
        assert (row["long"], set(row["wide"].tolist())) == (i, {float(i)})
    assert Hdf5().open(str(tmp_path / "one")).blocks == 50

    monkeypatch.setattr("gpupipe.extract.tables.hdf5.MOST_BYTES", 399)
    with pytest.raises(RecordError, match="one with rows of 400 bytes, which are more than 399"):
        gp.HDF5Dataset(hdf5_of(tmp_path / "two", x=np.zeros((3, 50))))


MANY = 1 << 27


def _longer(path: Path) -> None:
    """Write a dataset of 777 rows in a chunk, and say that there are 134 million."""
    with hdf5_file(path) as file:
        file.create_dataset("x", data=np.arange(777, dtype=np.int16), chunks=(777,))
    path.write_bytes(path.read_bytes().replace(struct.pack("<Q", 777), struct.pack("<Q", MANY)))


def _damaged_chunk(path: Path) -> None:
    """Write a dataset of 16 million rows in a compressed chunk, and damage it."""
    with hdf5_file(path) as file:
        x = file.create_dataset("x", data=np.zeros(1 << 24, np.int8), chunks=(1 << 24,), compression="gzip")
        at = x.id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[at + 2 : at + 200] = bytes(198)
    path.write_bytes(data)


@pytest.mark.parametrize("write", [_longer, _damaged_chunk])
def test_a_file_of_more_rows_than_its_chunks_have_is_one_error(write: Any, tmp_path: Path) -> None:
    write(tmp_path / "one")
    sound = hdf5_of(tmp_path / "two", x=np.arange(3, dtype=np.int16 if write is _longer else np.int8))

    with pytest.raises(RecordError, match="one with more rows than can be read; copy the file again"):
        gp.HDF5Dataset(str(tmp_path / "one"))
    ds = gp.HDF5Dataset([sound, str(tmp_path / "one")], "x")
    for policy in ("skip", "replace"):
        with iter(ds.with_options(gp.Options(on_error=policy))) as items:
            assert [int(next(items)) for _ in range(3)] == [0, 1, 2]
            with pytest.raises(RecordError, match=r"more rows than can be read.*cannot be counted"):
                next(items)
    assert elements(skipping(ds, lost_files="skip")) == [0, 1, 2]


@pytest.mark.parametrize(
    "options",
    [{}, {"chunks": (1 << 20,)}, {"chunks": (1 << 20,), "compression": "gzip"}, {"chunks": (1 << 20,), "fillvalue": 7}],
    ids=str,
)
def test_many_rows_that_were_not_written_have_the_fill_value(options: Any, tmp_path: Path) -> None:
    with hdf5_file(tmp_path / "one") as file:
        x = file.create_dataset("x", (MANY,), np.int16, **options)
        if options:
            x[(5 << 20) + 3] = 9
    ds = gp.HDF5Dataset(str(tmp_path / "one"), "x")

    assert len(ds) == MANY
    fill = options.get("fillvalue", 0)
    assert [int(ds[i]) for i in (0, (5 << 20) + 3, MANY - 1)] == [fill, 9 if options else fill, fill]
    assert elements(ds.take(3)) == [fill] * 3
