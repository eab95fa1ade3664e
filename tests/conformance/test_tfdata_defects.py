"""What goes wrong in tf.data, and what gpupipe does instead: a test for each defect that was measured on 2.21."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, Options, TensorSpec, TFRecordDataset, ops
from gpupipe.extract.records.crc import masked_crc32c
from tests.behaviour.model import outcomes, run

FEATURES = {"label": gp.io.FixedLenFeature((), "int64")}


def _write(path: Path, count: int = 5, compression: str = "") -> Path:
    with gp.io.TFRecordWriter(path, compression) as out:
        for i in range(count):
            out.write(b"%d" % i)
    return path


def _damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(bytes(data))


RECORD = 16 + 1  # bytes of a record of one byte


# ---- row 1: damaged files pass for whole ones


def test_a_header_that_is_cut_is_an_error_and_no_end_of_file(tmp_path: Path) -> None:
    path = _write(tmp_path / "x")
    path.write_bytes(path.read_bytes()[: 2 * RECORD + 5])

    assert outcomes(TFRecordDataset(path)) == [b"0", b"1", "error"]


def test_a_length_of_2_to_the_40_with_a_valid_checksum_is_an_error_that_names_file_and_offset(tmp_path: Path) -> None:
    path = _write(tmp_path / "x", 1)
    length = struct.pack("<Q", 1 << 40)
    with path.open("ab") as file:
        file.write(length + struct.pack("<I", masked_crc32c(length)) + b"abc")
    items = iter(TFRecordDataset(path))

    assert next(items) == b"0"
    with pytest.raises(gp.DataError, match=str(RECORD)) as caught:
        next(items)
    assert caught.value.file == str(path)


@pytest.mark.parametrize("name", ["LZ4", "gzip", "GZip"])
def test_an_unknown_compression_is_refused_on_the_users_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="GZIP"):
        TFRecordDataset(_write(tmp_path / "x"), name)


def test_a_gzip_file_without_its_trailer_is_an_error_after_the_last_record(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.gz", compression="GZIP")
    path.write_bytes(path.read_bytes()[:-6])

    assert outcomes(TFRecordDataset(path, "GZIP")) == [b"0", b"1", b"2", b"3", b"4", "error"]


# ---- row 2: ignore_errors


def _direct(paths: list[str]) -> Dataset:
    return TFRecordDataset(paths)


def _flat_map(paths: list[str]) -> Dataset:
    return Dataset.from_tensor_slices(paths).flat_map(TFRecordDataset)


def _interleave(paths: list[str]) -> Dataset:
    return Dataset.from_tensor_slices(paths).interleave(TFRecordDataset, cycle_length=2)


def _inner(paths: list[str]) -> Dataset:
    return Dataset.from_tensor_slices(paths).flat_map(lambda path: TFRecordDataset(path).ignore_errors())


@pytest.mark.parametrize("make", [_direct, _flat_map, _interleave, _inner])
def test_ignore_errors_over_a_missing_file_ends(tmp_path: Path, make: Callable[[list[str]], Dataset]) -> None:
    paths = [str(_write(tmp_path / "a", 2)), str(tmp_path / "none"), str(_write(tmp_path / "b", 3))]

    assert sorted(run(make(paths).ignore_errors())) == sorted([b"0", b"1", b"0", b"1", b"2"])


@pytest.mark.parametrize(("at", "left"), [(RECORD + 12, "0 2 3 4"), (RECORD + 2, "0 2 3 4"), (RECORD + 9, "0 2 3 4")])
def test_the_rest_of_a_file_behind_a_bad_record_is_read(tmp_path: Path, at: int, left: str) -> None:
    path = _write(tmp_path / "x")
    _damage(path, at)

    assert run(TFRecordDataset(path).ignore_errors()) == [word.encode() for word in left.split()]


# ---- row 3: numbers that make no sense


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dataset.range(6).batch(2).rebatch(0),
        lambda: Dataset.range(6).batch(2).rebatch(-3),
        lambda: Dataset.range(6).batch(2).rebatch([2, 0]),
        lambda: Dataset.range(6).shard(-1, 0),
    ],
)
def test_a_size_that_makes_no_sense_is_an_error_on_the_users_line(make: Callable[[], Dataset]) -> None:
    with pytest.raises(ValueError, match=r"rebatch|shard"):
        make()


# ---- row 4: order and randomness depend on what they should not


def _order_with(cpus: int, files: list[str]) -> str:
    """The order in a process that may use that many CPUs."""
    code = (
        "import os, sys; os.sched_setaffinity(0, set(list(os.sched_getaffinity(0))[:int(sys.argv[1])]));"
        "import gpupipe as gp; paths = sys.argv[2:];"
        "ds = gp.Dataset.from_tensor_slices(paths).interleave(gp.TFRecordDataset, num_parallel_calls=gp.AUTOTUNE);"
        "print(list(ds), list(gp.TFRecordDataset(paths, num_parallel_reads=gp.AUTOTUNE)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(cpus), *files], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux to take CPUs away")
def test_the_order_does_not_depend_on_the_number_of_cpus(tmp_path: Path) -> None:
    files = [str(_write(tmp_path / f"{i:02}", 3)) for i in range(20)]

    assert _order_with(1, files) == _order_with(len(os.sched_getaffinity(0)), files)


def _flips(seed: int | None = 7) -> Dataset:
    images = np.arange(2 * 8 * 3, dtype=np.uint8).reshape(1, 2, 8, 3).repeat(40, 0)
    return Dataset.from_tensor_slices(images).map(lambda x: ops.random_flip_left_right(x, seed=seed))


def _pattern(items: Any) -> list[bool]:
    return [bool(image[0, 0, 0] == 0) for image in items]


def test_a_seeded_augmentation_is_new_in_each_epoch_and_equal_for_equal_epochs() -> None:
    ds = _flips()
    first, second = _pattern(ds), _pattern(ds)

    assert first != second
    assert (_pattern(ds.iterator(epoch=0)), _pattern(ds.iterator(epoch=1))) == (first, second)


def test_an_iterator_that_is_not_used_moves_no_epoch() -> None:
    used, unused = Dataset.range(30).shuffle(30, seed=1), Dataset.range(30).shuffle(30, seed=1)
    first = run(used)
    unused.iterator().close()

    assert run(unused) == first


def test_a_shuffle_inside_flat_map_permutes_every_file_in_its_own_way() -> None:
    ds = Dataset.range(4).flat_map(lambda x: Dataset.range(20).shuffle(20, seed=1))
    orders = np.reshape(run(ds), (4, 20)).tolist()

    assert len({tuple(order) for order in orders}) == 4
    assert all(sorted(order) == list(range(20)) for order in orders)


# ---- row 5: checkpoints


def _goes_on(ds: Dataset, count: int) -> tuple[list[Any], int]:
    """What follows behind `count` elements by a state that was taken there, and the letters of that state."""
    with iter(ds) as items:
        for _ in range(count):
            next(items)
        text = json.dumps(items.state_dict())
    with iter(ds) as items:
        items.load_state_dict(json.loads(text))
        return [np.asarray(x).tolist() for x in items], len(text)


def _numbers() -> Iterator[Any]:
    yield from map(np.int64, range(20))


def _python(x: Any) -> Any:
    return np.asarray(x) * 3


@pytest.mark.parametrize(
    "ds",
    [
        Dataset.from_tensor_slices(np.zeros((20, 2, 2, 3), np.float32)).map(lambda x: ops.random_brightness(x, 0.5)),
        Dataset.range(20).map(_python, traced=False),
        Dataset.from_generator(_numbers, output_signature=TensorSpec((), "int64")),
        Dataset.range(20).shuffle(7).map(_python, traced=False).repeat(2).batch(3).prefetch(2),
    ],
    ids=["random op", "Python function", "generator", "all of it"],
)
def test_a_chain_with_random_ops_python_or_a_generator_has_a_state(ds: Dataset) -> None:
    with ds.iterator(epoch=0) as items:
        whole = [np.asarray(x).tolist() for x in items]
    with ds.iterator(epoch=0) as items:
        for _ in range(4):
            next(items)
        state = json.loads(json.dumps(items.state_dict()))
    with ds.iterator(epoch=0) as items:
        items.load_state_dict(state)
        assert [np.asarray(x).tolist() for x in items] == whole[4:]


def test_a_state_does_not_grow_with_what_a_shuffle_buffer_holds() -> None:
    kilobytes = Dataset.range(3000).map(lambda x: np.full(1024, int(x) % 256, np.uint8), traced=False)
    follows, size = _goes_on(kilobytes.shuffle(1000), 50)

    assert len(follows) == 2950
    assert size <= 10_000 + 16 * 1000  # tf.data needs 238 kB for a buffer of as many


# ---- row 6: caches


def test_a_cache_after_a_partial_pass_is_filled_by_the_next_full_one() -> None:
    calls: list[int] = []

    def slow(x: Any) -> Any:
        calls.append(int(x))
        return x

    ds = Dataset.range(5).map(slow).cache()
    run(ds.take(2))
    del calls[:]
    assert (run(ds), calls) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    del calls[:]
    assert (run(ds), calls) == ([0, 1, 2, 3, 4], [])


def test_a_file_cache_never_serves_another_chains_data(tmp_path: Path) -> None:
    path = str(tmp_path / "cache")

    assert run(Dataset.range(3).map(lambda x: x + 1).cache(path)) == [1, 2, 3]
    assert run(Dataset.range(3).map(lambda x: x * 10).cache(path)) == [0, 10, 20]
    assert run(Dataset.range(3).map(lambda x: x + 1).cache(path)) == [1, 2, 3]


def test_a_complete_pass_over_a_cache_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for ds in (Dataset.range(3).cache(), Dataset.range(3).cache(str(tmp_path / "cache"))):
        with caplog.at_level(logging.WARNING):
            run(ds)
            run(ds)

    assert not caplog.records


# ---- row 7: errors that say nothing


def test_a_batch_that_does_not_stack_names_the_leaf_and_both_shapes_behind_a_map_too() -> None:
    ds = Dataset.range(1, 4).map(lambda n: {"a": n, "b": ops.py_function(_ones, (n,), TensorSpec((None,), "float32"))})

    with pytest.raises(gp.DataError, match=r"'b'.*(1.*2|2.*1)"):
        run(ds.batch(2))


def _ones(n: Any) -> Any:
    return np.ones(n, np.float32)


def test_an_exception_of_the_user_keeps_its_type() -> None:
    class OfTheUser(Exception):
        pass

    def fail(x: Any) -> Any:
        raise OfTheUser(f"about {x}")

    with pytest.raises(gp.DataError, match="OfTheUser: about 0") as caught:
        run(Dataset.range(2).map(fail))
    assert isinstance(caught.value.__cause__, OfTheUser)


def test_a_data_error_names_file_and_offset(tmp_path: Path) -> None:
    path = _write(tmp_path / "x")
    _damage(path, 2 * RECORD + 12)

    with pytest.raises(gp.DataError) as caught:
        run(TFRecordDataset(path))
    assert (caught.value.file, caught.value.offset) == (str(path), 2 * RECORD)
    assert str(path) in str(caught.value)


# ---- row 8: values that are cut, texts that are no texts, decoders that do not end


def test_a_generator_is_never_cut_to_its_signature() -> None:
    ds = Dataset.from_generator(lambda: iter([1, 1.5]), output_signature=TensorSpec((), "int32"))

    assert outcomes(ds) == [1, "error"]


@pytest.mark.parametrize("record", [b"\xff\xfe\x00\x01", b"\x0a\xff", np.random.default_rng(1).bytes(64)])
def test_a_record_that_is_no_example_is_a_data_error(record: bytes) -> None:
    ds = Dataset.from_tensors(record).map(lambda r: gp.io.parse_single_example(r, FEATURES))

    with pytest.raises(gp.DataError):
        run(ds)


def _truncated_jpegs() -> Iterator[bytes]:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)).save(
        file, "JPEG", progressive=True
    )
    data = file.getvalue()
    for cut in range(2, len(data), 97):
        yield data[:cut]


def test_every_truncated_jpeg_is_a_data_error_in_bounded_time() -> None:
    jpegs = list(_truncated_jpegs())
    ds = Dataset.from_tensor_slices(np.array(jpegs, object)).map(lambda x: ops.decode_jpeg(x, channels=3))

    found = outcomes(ds.with_options(Options(device="cpu", backend="numpy")))

    assert found == ["error"] * len(jpegs)


# ---- row 9: chains that spin without a word


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dataset.range(3).repeat().filter(_never).take(1),
        lambda: Dataset.range(3).repeat().interleave(lambda x: Dataset.range(0), cycle_length=2),
    ],
    ids=["filter", "interleave"],
)
def test_a_chain_that_gives_nothing_says_so_and_can_be_stopped(
    make: Callable[[], Dataset], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import threading

    from gpupipe.flow import stall as watch

    monkeypatch.setattr(watch, "SECONDS", 0.05)
    items = make().iterator()
    timer = threading.Timer(1.0, items.close)
    timer.start()
    with caplog.at_level(logging.WARNING), pytest.raises((StopIteration, gp.ClosedError)):
        next(items)
    timer.join()

    assert any("filter" in record.message or "interleave" in record.message for record in caplog.records)


def _never(x: Any) -> bool:
    return bool(int(x) > 5)


# ---- a gzip file of several members, which tf.data reads and a careless reader does not


def test_a_gzip_file_of_several_members_is_read_to_its_end(tmp_path: Path) -> None:
    plain = _write(tmp_path / "plain").read_bytes()
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(plain[: 2 * RECORD]) + gzip.compress(plain[2 * RECORD :]))

    assert run(TFRecordDataset(path, "GZIP")) == [b"0", b"1", b"2", b"3", b"4"]
