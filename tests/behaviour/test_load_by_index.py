"""A loaded dataset by index: the elements that are there in order, nothing else is read, damage costs what it hits."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpupipe as gp
from gpupipe.extract.storage.files import LOCAL
from gpupipe.flow.cache import saved as saved_flow
from gpupipe.flow.cache.saved import in_turn
from gpupipe.serial import elements_index, elements_writer
from gpupipe.serial.elements_index import ELEMENTS
from tests.behaviour.manifests import written
from tests.behaviour.model import interleaved, plain, run
from tests.behaviour.test_save_load import ELEMENTS as KINDS
from tests.reliability.resume import goes_on, taken

D = gp.Dataset


def saved(folder: Path, count: int = 100, shards: int = 1) -> Path:
    """Numbers, each with 100 bytes, in several files; returns the first."""
    dataset = D.range(count).map(lambda x: (x, np.full(100, int(x) % 256, np.uint8)), traced=False)
    dataset.save(folder, shard_func=(lambda x, y: int(x) * int(x) % shards) if shards > 1 else None)
    return sorted(folder.glob("*.elements"))[0]


def records(path: Path) -> list[tuple[int, bytes]]:
    """The offset and the payload of each record."""
    data, at, out = path.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        out.append((at, data[at + 12 : at + 12 + length]))
        at += 16 + length
    return out


def write_records(path: Path, payloads: list[bytes]) -> None:
    """A file of these records, with right checksums."""
    with gp.io.TFRecordWriter(path) as out:
        for payload in payloads:
            out.write(payload)


def places_of(path: Path) -> list[int]:
    """The offsets of the elements."""
    return [at for at, record in records(path) if record[:1] == b"E"]


def spoil(path: Path, numbers: Any) -> None:
    """Damage these elements, and leave the file's size as it is."""
    data, elements = bytearray(path.read_bytes()), places_of(path)
    for number in numbers:
        data[elements[number] + 60] ^= 1
    path.write_bytes(data)


def firsts(items: Any) -> list[int]:
    return [int(x) for x, _ in items]


# ---- the same elements


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_an_element_by_index_is_the_one_in_order(tmp_path: Path, make: Callable[[], D]) -> None:
    make().save(tmp_path / "s")
    loaded = D.load(tmp_path / "s")

    expected = run(loaded)

    assert [plain(loaded[i]) for i in range(len(loaded))] == expected
    assert sorted(map(repr, run(loaded.shuffle(gp.ALL)))) == sorted(map(repr, expected))


@pytest.mark.parametrize("shards", [1, 5, 16])
def test_chains_by_index_are_those_of_the_elements_in_order(tmp_path: Path, shards: int) -> None:
    saved(tmp_path / "s", shards=shards)
    loaded = D.load(tmp_path / "s")
    order = firsts(loaded)

    assert firsts(loaded[i] for i in range(-3, 3)) == [*order[-3:], *order[:3]]
    assert firsts(loaded[5:50:3]) == order[5:50:3]
    assert firsts(loaded.skip(37).take(20)) == order[37:57]
    assert [firsts(loaded.shard(3, i)) for i in range(3)] == [order[i::3] for i in range(3)]
    assert [len(list(loaded.shard(7, i, even="drop"))) for i in range(7)] == [14] * 7
    assert sorted(firsts(loaded.shuffle(gp.ALL, seed=1))) == list(range(100))
    assert sorted(firsts(part) for part in loaded.split([0.5, 0.5]))[0] != order[:50]
    assert firsts(loaded.skip(98).repeat(2)) == order[98:] * 2


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=16))
def test_elements_of_several_files_are_where_reading_in_turn_finds_them(counts: list[int]) -> None:
    files = [[(i, n) for n in range(count)] for i, count in enumerate(counts)]

    numbers, inside = in_turn(tuple(counts))(np.arange(sum(counts)))

    assert list(zip(numbers.tolist(), inside.tolist(), strict=True)) == interleaved(files, 16, 1)


def test_an_element_by_index_has_its_own_random_numbers_and_names(tmp_path: Path) -> None:
    written(tmp_path, [4] * 3)
    files = D.list_files(str(tmp_path / "*.tfrecord"), shuffle=False)
    files.interleave(gp.TFRecordDataset, cycle_length=2).save(tmp_path / "s")

    def drawn(x: Any, rng: np.random.Generator) -> Any:
        if x.endswith(b"3"):
            raise ValueError(f"{x} ends with 3")
        return x, rng.random()

    loaded = D.load(tmp_path / "s").map(drawn, rng=True)
    order = taken(iter(loaded))
    errors = [text for kind, text in order if kind == "error"]
    assert len(errors) == 3 and all(f"{tmp_path}" in text and ".tfrecord" in text for text in errors)
    for i in range(len(order)):
        assert taken(iter(loaded[i : i + 1])) == order[i : i + 1]
        assert taken(map(loaded.__getitem__, [i])) == order[i : i + 1]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    "chain",
    [
        lambda ds: ds,
        lambda ds: ds.skip(7),
        lambda ds: ds.shard(3, 1).batch(2),
        lambda ds: ds.shuffle(gp.ALL, seed=1).batch(3),
        lambda ds: ds.shuffle(5).repeat(2).batch(4),
    ],
)
def test_a_state_goes_on_with_the_next_element(tmp_path: Path, shards: int, chain: Any) -> None:
    saved(tmp_path / "s", 20, shards)

    goes_on(lambda: chain(D.load(tmp_path / "s")))


# ---- nothing else is read


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Where each read of a file begins and ends; reading in order fails."""
    found: list[tuple[int, int]] = []

    def read(name: str, offset: int, n: int, tag: str | None = None) -> bytes:
        found.append((offset, offset + n))
        return LOCAL.read(name, offset, n, tag)

    monkeypatch.setattr(elements_index, "LOCAL", SimpleNamespace(size=LOCAL.size, read=read))
    monkeypatch.setattr(saved_flow, "ElementsReader", lambda *_, **__: pytest.fail("the file is read in order"))
    return found


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        (lambda ds: ds.shard(4, 0).skip(15), range(60, 100, 4)),
        (lambda ds: ds.shard(10, 3, even="drop"), range(3, 100, 10)),
        (lambda ds: ds[7:30:11], [7, 18, 29]),
        (lambda ds: [ds[64], ds[-4]], [64, 96]),
    ],
)
def test_what_is_left_out_is_not_read(tmp_path: Path, reads: list[Any], chain: Any, expected: Any) -> None:
    places = places_of(saved(tmp_path / "s"))

    assert firsts(chain(D.load(tmp_path / "s"))) == [*expected]
    assert sorted(i for i, at in enumerate(places) for start, end in reads if start <= at < end) == [*expected]


def test_a_resume_behind_damage_counts_what_was_lost(tmp_path: Path) -> None:
    path = saved(tmp_path / "s")
    spoil(path, [3, 4, 5])

    assert len(goes_on(lambda: D.load(tmp_path / "s").with_options(gp.Options(on_error="skip")), [50])) == 97


def test_an_index_is_in_memory_once_and_follows_the_file(tmp_path: Path) -> None:
    ELEMENTS.clear()
    saved(tmp_path / "s", 1000)
    first = D.load(tmp_path / "s")
    assert firsts([first[7], first[8]]) == [7, 8]
    assert 8 * 1000 < ELEMENTS.nbytes < 8 * 1100

    saved(tmp_path / "s", 10)

    assert firsts([D.load(tmp_path / "s")[7]]) == [7]
    with pytest.raises(gp.DataError, match=r"[Nn]o such file|missing"):
        first[7]


# ---- damage


def test_a_damaged_element_costs_no_other(tmp_path: Path) -> None:
    path = saved(tmp_path / "s")
    spoil(path, [10])
    loaded = D.load(tmp_path / "s")

    with pytest.raises(gp.DataError, match=r"elements at offset \d+: read: a file of elements is needed.*CRC"):
        loaded[10]
    skipping = loaded.shuffle(gp.ALL, seed=1).with_options(gp.Options(on_error="skip"))
    assert sorted(firsts(skipping)) == [*range(10), *range(11, 100)]


def test_a_damaged_index_costs_access_by_index_only(tmp_path: Path) -> None:
    path = saved(tmp_path / "s", 12)
    whole, parts = path.read_bytes(), records(path)
    start = next(at for at, record in parts if record[:1] == b"I")
    for place in range(start, len(whole), 3):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        path.write_bytes(data)
        ELEMENTS.clear()
        loaded = D.load(tmp_path / "s")
        with pytest.raises(gp.DataError, match=r"index of the elements is needed.*read it in order"):
            loaded[3]
        if place < parts[-1][0]:
            assert firsts(loaded) == list(range(12))


@pytest.mark.parametrize("cut", [1, 20, 30, 100, 1000])
def test_a_file_that_is_cut_has_no_index(tmp_path: Path, cut: int) -> None:
    path = saved(tmp_path / "s", 12)
    path.write_bytes(path.read_bytes()[:-cut] if cut < 1000 else b"")

    with pytest.raises(gp.DataError, match="index of the elements is needed"):
        D.load(tmp_path / "s")[3]


def test_numbers_of_an_index_with_right_checksums_are_not_believed(tmp_path: Path) -> None:
    path = saved(tmp_path / "s", 12)
    payloads = [record for _, record in records(path)]
    for i in range(len(payloads) - 3, len(payloads)):  # offsets, streams, the end
        assert payloads[i][:1] in (b"I", b"Z")
        for place in range(5 + (payloads[i][:1] == b"I"), len(payloads[i]) - 7, 8):
            for number in (0, 1, 63, 2**31, 2**63, 2**64 - 1):
                record = payloads[i]
                forged = record[:place] + struct.pack("<Q", number) + record[place + 8 :]
                write_records(path, [*payloads[:i], forged, *payloads[i + 1 :]])
                ELEMENTS.clear()
                loaded = D.load(tmp_path / "s").with_options(gp.Options(on_error="skip"))
                try:
                    found = firsts(loaded.shuffle(gp.ALL))
                except gp.DataError:
                    continue
                assert set(found) <= set(range(12))


@pytest.mark.parametrize(
    ("folder", "number", "text"),
    [("b", 4, "the record belongs to another file"), ("a", 6, "element 4 was expected, this is number 6")],
)
def test_a_record_in_the_place_of_another_is_not_taken(tmp_path: Path, folder: str, number: int, text: str) -> None:
    paths = {name: saved(tmp_path / name, 12) for name in ("a", "b")}
    data, other = bytearray(paths["a"].read_bytes()), paths[folder].read_bytes()
    at = places_of(paths["a"])
    data[at[4] : at[5]] = other[at[number] : at[number + 1]]
    paths["a"].write_bytes(data)

    with pytest.raises(gp.DataError, match=text):
        D.load(tmp_path / "a")[4]


def test_another_number_of_elements_than_the_manifest_says_is_an_error(tmp_path: Path) -> None:
    manifest = saved(tmp_path / "s", 12).with_name("saved.json")
    manifest.write_text(manifest.read_text().replace('"count": 12', '"count": 13'))

    with pytest.raises(gp.DataError, match="needs the 13 elements that were saved, got a file of 12"):
        D.load(tmp_path / "s")[0]


# ---- without an index


def test_a_file_without_an_index_is_read_in_order(tmp_path: Path) -> None:
    path = saved(tmp_path / "s", 12)
    payloads = [record for _, record in records(path) if record[:1] != b"I"]
    head, end = bytearray(payloads[0]), payloads[-1]
    head[17:21] = struct.pack("<I", 2)
    write_records(path, [bytes(head), *payloads[1:-1], end[:-8]])  # what `save` wrote before there was an index
    manifest = json.loads(path.with_name("saved.json").read_text())
    del manifest["indexed"]
    path.with_name("saved.json").write_text(json.dumps(manifest))
    loaded = D.load(tmp_path / "s")

    assert len(goes_on(lambda: D.load(tmp_path / "s"), [5])) == len(loaded) == 12
    assert firsts(loaded.skip(9)) == [9, 10, 11]
    with pytest.raises(gp.PlanError, match=r"load\(.* cannot be indexed: that needs at most 16 files, not compressed"):
        loaded.shuffle(gp.ALL)


def test_compressed_files_and_more_than_16_are_read_in_order(tmp_path: Path) -> None:
    D.range(40).save(tmp_path / "a", "GZIP")
    D.range(40).save(tmp_path / "b", shard_func=lambda x: x % 17)

    for folder in ("a", "b"):
        loaded = D.load(tmp_path / folder)
        order = run(loaded)
        assert sorted(order) == list(range(40))
        assert run(loaded.skip(38)) == order[38:]
        assert run(loaded.shard(2, 1)) == order[1::2]
        with pytest.raises(gp.PlanError, match="cannot be indexed: that needs at most 16 files, not compressed"):
            loaded[3:5]


def test_an_index_of_many_parts_and_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (elements_writer, elements_index):
        monkeypatch.setattr(module, "PART", 4)
    monkeypatch.setattr(elements_index, "NAMES", 3)
    ELEMENTS.clear()
    dataset = D.range(5).flat_map(lambda x: D.range(int(np.asarray(x)) + 1).map(lambda y: y + 0))
    dataset.save(tmp_path / "s")
    loaded = D.load(tmp_path / "s")

    assert sum(record[:1] == b"I" for _, record in records(next((tmp_path / "s").glob("*.elements")))) >= 5
    assert [int(loaded[i]) for i in range(15)] == run(dataset)
    ELEMENTS.clear()
