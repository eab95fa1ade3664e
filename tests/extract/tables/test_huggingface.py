"""Datasets of Hugging Face's library: the rows it reads itself, images that nobody decodes, states, streams, damage."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import DataError, PlanError, PlanTypeError, RecordError, StateError
from gpupipe.flow.sources.rows import BLOCKS
from gpupipe.ops._shared.samples import encoded
from tests.extract.tables.test_every_format import elements, skipping
from tests.reliability.resume import goes_on

datasets = pytest.importorskip("datasets")
pa = pytest.importorskip("pyarrow")
COUNT = 200


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is kept, shown or decoded."""
    BLOCKS.clear()
    datasets.disable_progress_bars()

    def decoded(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the library decoded an image")

    monkeypatch.setattr(datasets.Image, "decode_example", decoded)
    yield
    BLOCKS.clear()


def png(i: int) -> bytes:
    return encoded(np.full((6, 5, 3), i, np.uint8), "PNG")


def made(count: int = COUNT) -> Any:
    """Images, labels, texts and lists, in memory."""
    kinds = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["even", "odd"]),
        "text": datasets.Value("string"),
        "list": datasets.Sequence(datasets.Value("float32")),
    }
    given = {
        "image": [{"bytes": png(i % 256), "path": None} for i in range(count)],
        "label": [i % 2 for i in range(count)],
        "text": [f"row {i}" for i in range(count)],
        "list": [[float(i)] * (i % 3) for i in range(count)],
    }
    return datasets.Dataset.from_dict(given, features=datasets.Features(kinds))


def on_disk(folder: Path, dataset: Any) -> Any:
    """The same, mapped from files."""
    dataset.save_to_disk(str(folder / "saved"))
    return datasets.load_from_disk(str(folder / "saved"))


def theirs(dataset: Any) -> list[dict[str, Any]]:
    """The rows as the library reads them, images undecoded."""
    rows = dataset.cast_column("image", datasets.Image(decode=False))
    return [{**row, "image": row["image"]["bytes"], "text": row["text"].encode()} for row in rows]


def numbers(ds: Any) -> list[int]:
    return [int(text.split()[1]) for text in ds]


# ---- with an index


@pytest.mark.parametrize("change", ["nothing", "select", "shuffle", "filter", "concatenate"])
@pytest.mark.parametrize("mapped", [False, True], ids=["memory", "disk"])
def test_the_rows_are_those_that_the_library_reads(change: str, mapped: bool, tmp_path: Path) -> None:
    dataset = on_disk(tmp_path, made()) if mapped else made()
    dataset = {
        "nothing": lambda: dataset,
        "select": lambda: dataset.select([7, 7, 3, 199, 0]),
        "shuffle": lambda: dataset.shuffle(seed=1),
        "filter": lambda: dataset.filter(lambda label: label == 1, input_columns="label", keep_in_memory=True),
        "concatenate": lambda: datasets.concatenate_datasets([dataset.shuffle(seed=2), dataset.select(range(9))]),
    }[change]()
    ds = gp.HuggingFaceDataset(dataset)
    expected = theirs(dataset)

    assert len(ds) == len(expected) > 0
    assert elements(ds) == expected
    for place in (len(ds) - 1, 0, len(ds) // 2):
        assert elements([ds[place]]) == [expected[place]]
    assert elements(ds[1:5]) == expected[1:5]
    shuffled = elements(ds.shuffle(gp.ALL, seed=1))
    assert sorted(map(str, shuffled)) == sorted(map(str, expected))
    assert shuffled != expected


@pytest.mark.parametrize("build", ["in order", "by index"])
def test_a_state_goes_on_at_its_row(build: str, tmp_path: Path) -> None:
    dataset = on_disk(tmp_path, made()).shuffle(seed=3)

    def chain() -> Any:
        ds: Any = gp.HuggingFaceDataset(dataset, ["text", "label"])
        return ds if build == "in order" else ds.shuffle(gp.ALL, seed=4).prefetch(3)

    goes_on(chain, (0, 1, 77, COUNT))


def test_a_state_of_another_number_of_rows_is_refused() -> None:
    with iter(gp.HuggingFaceDataset(made(5), "text")) as items:
        next(items)
        state = items.state_dict()

    with iter(gp.HuggingFaceDataset(made(6), "text")) as items, pytest.raises(StateError, match=r"step 1 .*5 rows"):
        items.load_state_dict(state)


def test_two_datasets_of_one_type_are_not_taken_for_each_other() -> None:
    first, second = made(4), made(4).map(lambda row: {"text": "x " + row["text"][4:]})
    a, b = (gp.HuggingFaceDataset(d, "text") for d in (first, second))

    assert a.plan != b.plan
    assert [a[1], b[1]] == [b"row 1", b"x 1"]
    assert list(gp.Dataset.zip((a, b)))[2] == (b"row 2", b"x 2")


# ---- images that are files


@pytest.mark.parametrize("stream", [False, True], ids=["index", "stream"])
def test_images_that_are_files_are_read_when_they_are_needed(stream: bool, tmp_path: Path) -> None:
    for i in range(6):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    (tmp_path / "4.png").unlink()
    images: list[Any] = [{"bytes": None, "path": str(tmp_path / f"{i}.png")} for i in range(6)]
    images[1] = {"bytes": png(1), "path": "somewhere/1.png"}
    images[2] = {"bytes": None, "path": None}
    kinds = datasets.Features({"image": datasets.Image()})
    table = pa.table({"image": pa.array(images, datasets.Image.pa_type)})
    dataset = datasets.Dataset(datasets.table.InMemoryTable(table), datasets.DatasetInfo(features=kinds))
    ds: Any = gp.HuggingFaceDataset(dataset.to_iterable_dataset() if stream else dataset, "image")

    with iter(skipping(ds, lost_files="skip")) as items:
        assert list(items) == [png(i) for i in (0, 1, 3, 5)]
        assert len(items.errors) == 2
        assert items.errors[0].offset == 2
        assert "a value is needed in column 'image', got null" in items.errors[0].reason
        assert str(items.errors[1].file).endswith("4.png")
    filled = gp.HuggingFaceDataset(dataset.select([2, 3]), "image", defaults={"image": b"none"})
    assert list(filled) == [b"none", png(3)]


# ---- bad rows


def _written(path: Path) -> None:
    """A stream of Arrow as the library keeps it, in batches of 1000 rows."""
    table = pa.table({"n": np.arange(3000), "text": [f"row {i}" for i in range(3000)]})
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)


def _changed(path: Path, kind: str) -> None:
    """Damage the rows from 1024 on: the second block."""
    data = bytearray(path.read_bytes())
    whole = pa.py_buffer(bytes(data))
    _, offsets, values = list(pa.ipc.open_stream(whole))[1].column(1).buffers()
    if kind == "offset":
        data[offsets.address - whole.address + 4 * 500 + 3] = 0x7F
    else:  # text that is no UTF-8
        data[values.address - whole.address + 500] = 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["offset", "text"])
def test_a_damaged_block_makes_each_of_its_rows_bad_and_no_other(kind: str, tmp_path: Path) -> None:
    _written(tmp_path / "one.arrow")
    _changed(tmp_path / "one.arrow", kind)
    ds = gp.HuggingFaceDataset(datasets.Dataset.from_file(str(tmp_path / "one.arrow")), ["n", "text"])

    with iter(skipping(ds)) as items:
        good = [row["n"] for row in elements(items)]
        bad = [(record.offset, record.stage) for record in items.errors]
    assert good == [*range(1024), *range(2048, 3000)]
    assert bad == [(i, "read") for i in range(1024, 2048)]
    with pytest.raises(RecordError, match="at row 1500: read: block 1 of 3: cannot be decoded: ArrowInvalid"):
        ds[1500]


def test_an_index_that_leads_outside_of_the_table_makes_its_block_bad() -> None:
    dataset = made(40).select([*range(20), 3, *range(20)][::-1])
    table = dataset._indices.table.to_pydict()["indices"]
    table[20] = 1 << 40
    dataset._indices = datasets.table.InMemoryTable.from_pydict({"indices": pa.array(table, pa.uint64())})

    with iter(skipping(gp.HuggingFaceDataset(dataset, "text"))) as items:
        assert numbers(items) == [*range(19, 3, -1), *range(8, -1, -1)]
        assert [record.offset for record in items.errors] == list(range(16, 32))


# ---- streams


@pytest.mark.parametrize("kind", ["shards", "generator", "mapped", "shuffled", "batched"])
def test_a_stream_gives_the_rows_that_the_library_gives_and_goes_on_after_any_of_them(kind: str) -> None:
    dataset = _stream(kind)
    expected = [row["text"].encode() for row in dataset]

    def chain() -> Any:
        return gp.HuggingFaceDataset(dataset, "text").prefetch(2)

    assert list(chain()) == expected
    assert len(expected) == COUNT
    assert (kind in ("shuffled", "batched")) == ("read again from its start" in chain().explain())
    goes_on(chain, (1, 63, 65, COUNT))


def _stream(kind: str) -> Any:
    base = made().select_columns(["text", "label"]).to_iterable_dataset(num_shards=3)
    return {
        "shards": lambda: base,
        "generator": lambda: datasets.IterableDataset.from_generator(_texts),
        "mapped": lambda: base.map(lambda row: {"text": row["text"] + "!"}),
        "shuffled": lambda: base.shuffle(seed=5, buffer_size=50),
        "batched": lambda: base.map(lambda rows: rows, batched=True, batch_size=7),
    }[kind]()


def _texts() -> Iterator[dict[str, Any]]:
    for i in range(COUNT):
        yield {"text": f"row {i}", "label": i}


def test_a_stream_cannot_be_indexed_and_two_loops_over_it_do_not_meet() -> None:
    ds = gp.HuggingFaceDataset(_stream("shards"), "text")
    a, b = iter(ds), iter(ds)

    assert [next(x) for x in (a, a, b, a, b)] == [b"row 0", b"row 1", b"row 0", b"row 2", b"row 1"]
    assert numbers(itertools.islice(b, 128)) == list(range(2, 130))
    assert numbers(itertools.islice(a, 147)) == list(range(3, 150))
    state = a.state_dict()
    with iter(ds) as again:
        again.load_state_dict(state)
        assert numbers(again) == list(range(150, COUNT))
    assert len(list(a)) == COUNT - 150
    for items in (a, b):
        items.close()
    with pytest.raises((TypeError, PlanError), match="HuggingFaceDataset"):
        ds[0]


def test_the_epoch_that_is_set_before_an_iterator_is_made_counts() -> None:
    dataset = _stream("shuffled")
    ds = gp.HuggingFaceDataset(dataset, "text")
    first = list(ds)
    dataset.set_epoch(1)

    assert list(ds) != first
    assert sorted(ds) == sorted(first)
    assert list(ds) == [row["text"].encode() for row in dataset]


def test_an_error_of_a_stream_is_one_bad_element_and_its_rest_is_lost() -> None:
    def broken() -> Iterator[dict[str, Any]]:
        for i in range(100):
            yield {"n": i}
        raise OSError("the network is gone")

    features = datasets.Features({"n": datasets.Value("int64")})
    ds: Any = gp.HuggingFaceDataset(datasets.IterableDataset.from_generator(broken, features=features), "n")

    with iter(skipping(ds, lost_files="skip")) as items:
        assert [int(n) for n in items] == list(range(64))
        (record,) = items.errors
    assert (record.offset, record.unit, record.stage) == (64, "file", "read")
    assert "OSError: the network is gone" in record.reason
    with pytest.raises(DataError, match="the network is gone"):
        list(skipping(ds))


def test_rows_of_another_type_than_the_first_are_bad() -> None:
    def mixed() -> Iterator[dict[str, Any]]:
        for i in range(128):
            yield {"n": i if i < 64 else f"{i}"}

    ds = gp.HuggingFaceDataset(datasets.IterableDataset.from_generator(mixed), "n")

    with iter(skipping(ds)) as items:
        assert [int(n) for n in items] == list(range(64))
        assert [record.offset for record in items.errors] == list(range(64, 128))
        assert "column 'n' of int64 is needed, got bytes" in items.errors[0].reason


# ---- what is refused


def test_a_stream_whose_first_rows_differ_in_their_columns_is_named() -> None:
    def mixed() -> Iterator[dict[str, Any]]:
        yield from ({"n": n, "text": "x"} if n != 3 else {"n": n} for n in range(9))

    stream = datasets.IterableDataset.from_generator(mixed, split="test")

    with pytest.raises(
        RecordError, match=r"^HuggingFaceDataset\(test\) at row 0: read: the first 64 rows .*index 3 was"
    ):
        gp.HuggingFaceDataset(stream)


def test_what_is_no_dataset_of_one_split_without_a_transform_is_refused() -> None:
    dataset = made(3)

    with pytest.raises(PlanTypeError, match="needs one split, got train, test; hand in one"):
        gp.HuggingFaceDataset(datasets.DatasetDict({"train": dataset, "test": dataset}))
    with pytest.raises(PlanTypeError, match="of the library datasets, got list"):
        gp.HuggingFaceDataset([1, 2])
    with pytest.raises(PlanError, match="runs no transform, got a dataset with one; take it off"):
        gp.HuggingFaceDataset(dataset.with_transform(lambda rows: rows))
    with pytest.raises(PlanError, match="needs a column 'none', and HuggingFaceDataset has none"):
        gp.HuggingFaceDataset(dataset, ["text", "none"])
    with pytest.raises(PlanError, match="needs a column 'none', and HuggingFaceDataset"):
        gp.HuggingFaceDataset(_stream("shards"), ["none"])
    nested = datasets.Dataset.from_dict({"a": [[[1], [2, 3]]], "b": [1]})
    with pytest.raises(PlanError, match="got 'a' in HuggingFaceDataset of type list"):
        gp.HuggingFaceDataset(nested)
    assert list(gp.HuggingFaceDataset(nested, "b")) == [1]
    assert list(gp.HuggingFaceDataset(dataset.select([]), "label")) == []
