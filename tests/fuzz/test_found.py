"""What fuzzing has found: each slow input, waste of memory and wrong answer, as a small input that shows it."""

from __future__ import annotations

import gzip
import re
import zlib
from typing import Any

import numpy as np
import pytest

from gpupipe.errors import DataError, ParseError
from gpupipe.extract.examples.example import ExampleParser
from gpupipe.extract.examples.features import FixedLenFeature, VarLenFeature
from gpupipe.extract.examples.wire import encode_varint, varints
from gpupipe.extract.images.jpeg import first_marker_in_scan, with_plain_orientation
from gpupipe.extract.records import framing
from gpupipe.extract.records.tfrecord import RecordReader
from gpupipe.extract.records.walk import Bad, walk_headers
from tests.fuzz import archives
from tests.fuzz.building import entry, field, frame, header_block
from tests.fuzz.files import Memory
from tests.fuzz.replay import peak_of

ONE = field(3, field(1, b"\1"))  # a Feature that holds [1]


def outcome(parser: ExampleParser, record: bytes) -> Any:
    """What parsing a record gives: values, or the text of the error."""
    try:
        return [np.asarray(value).tolist() for value in parser.parse(record)]
    except ParseError as error:
        return str(error)


@pytest.mark.parametrize(
    "second",
    [
        b"\x0a\x0f\x0a\x03zzz\x0a\x01a\x12\x05" + ONE + entry(b"b", ONE),  # two names; protobuf takes the last one
        b"\x0a\x0f\x0a\x03zzz\x12\x7f" + bytes(8) + entry(b"b", ONE),  # the Feature is longer than its entry
        b"\x0a\x0f\x0a\x03zzz\x12",  # the entry is longer than what holds it
    ],
    ids=["two names", "damaged", "cut"],
)
def test_what_a_parser_learned_from_one_record_does_not_show_in_the_next(second: bytes) -> None:
    learned = b"\x0a\x0f\x0a\x03zzz\x12\x08" + field(3, field(1, b"\1" * 4))  # the same first four bytes
    features = {"a": VarLenFeature("int64"), "b": VarLenFeature("int64")}
    parser = ExampleParser(features)
    assert outcome(parser, field(1, learned)) == [[], []]
    assert parser._steps

    again = outcome(parser, field(1, second))

    assert again == outcome(ExampleParser(features), field(1, second))
    assert again == [[], [1]] or "a feature of 15 bytes is longer than the 6 that are left" in again


def test_the_same_entry_counts_alike_in_every_form_of_its_tag() -> None:
    features = {"a": VarLenFeature("int64")}
    body = b"\x0a\x03zzz\x0a\x01a\x12\x05" + ONE
    usual, long = field(1, field(1, body)), field(1, b"\x8a\x00" + bytes((len(body),)) + body)

    assert outcome(ExampleParser(features), usual) == outcome(ExampleParser(features), long) == [[]]


SIZE = 1 << 15


@pytest.mark.parametrize(
    ("values", "most"),
    [
        (field(3, field(1, b"\1" * SIZE)), 24),  # 57 bytes of memory for each of the record, 9 now
        (field(3, b"\x08\1" * (SIZE // 2)), 24),  # 137, 6 now
        (field(2, b"\x0d\0\0\0\0" * (SIZE // 5)), 8),  # 55, 2 now
        (field(3, b"") * (SIZE // 2), 8),  # 64, nothing now
    ],
    ids=["packed", "one by one", "floats one by one", "empty lists"],
)
def test_lists_of_numbers_take_little_more_memory_than_their_numbers(
    monkeypatch: pytest.MonkeyPatch, values: bytes, most: int
) -> None:
    monkeypatch.setattr("gpupipe.extract.examples.wire._PIECE", 1024)
    parser = ExampleParser({"a": VarLenFeature("int64" if values[0] == 0x1A else "float32")})
    record = field(1, entry(b"a", values))
    parser.parse(record)

    assert (
        peak_of(lambda: parser.parse(record)) < most * len(record) + 100_000
    )  # and what the numbers of one piece take on the way


@pytest.mark.parametrize(
    ("inside", "place"), [(b"\0" * 8, None), (b"\xff\0\xff\xff\xc0...", 2), (b"\xff\xd9......", None)]
)
def test_a_marker_in_a_scan_is_found_behind_any_number_of_fill_bytes(inside: bytes, place: int | None) -> None:
    begin = b"\xff\xd8\xff\xda\0\x0c\3" + bytes(9)

    assert first_marker_in_scan(begin + inside, 3) == (None if place is None else len(begin) + place)
    # 1 MB of fill bytes took hours: each of them was looked at again from all before it.
    run = b"\xff" * 1_000_000
    assert first_marker_in_scan(begin + run + b"\0", 3) is None
    assert first_marker_in_scan(begin + b"\0" + run + b"\xc0", 3) == len(begin) + 1


MANY = 2000
ALTERNATING = (frame(b"") + b"\1") * MANY


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each look for a header is at."""
    sizes: list[int] = []
    search = framing._candidates

    def counted(view: memoryview) -> list[int]:
        sizes.append(len(view))
        return search(view)

    monkeypatch.setattr(framing, "_candidates", counted)
    return sizes


def test_damage_in_turns_with_records_does_not_cost_a_large_look_each_time(looked_at: list[int]) -> None:
    # A look at 64 KB for each of them took 7 s for a file of 136 KB, or for 370 bytes of gzip.
    items = list(RecordReader("a", storage=Memory(ALTERNATING)))

    assert [isinstance(item, DataError) for _, item in items] == [False, True] * MANY
    assert sum(looked_at) < 16 * len(ALTERNATING)

    looked_at.clear()
    walked = list(walk_headers("a", storage=Memory(ALTERNATING)))
    assert len(walked) == 2 * MANY
    assert sum(looked_at) < 16 * len(ALTERNATING)


def test_a_block_of_much_damage_is_given_out_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpupipe.extract.records.tfrecord._MOST", 100)

    blocks = list(RecordReader("a", storage=Memory(ALTERNATING)).blocks())

    assert sum(map(len, blocks)) == 2 * MANY
    assert max(map(len, blocks)) <= 102


@pytest.mark.parametrize("compression", ["", "ZLIB"])
def test_an_error_that_is_kept_holds_no_buffer(compression: str) -> None:
    # Its traceback held the block that was being read: a shuffle buffer of such errors, a megabyte for each.
    data = frame(bytes(1000)) * 20
    storage = Memory(zlib.compress(data, 0) if compression else data, broken=5000)
    items = [item for _, item in RecordReader("a", compression=compression, storage=storage)]
    walked = [part.error for part in walk_headers("a", storage=storage) if isinstance(part, Bad)]
    missing = [item for _, item in RecordReader("no such file")]

    errors = [item for item in items + walked + missing if isinstance(item, DataError)]

    assert [(error.__traceback__, error.__context__) for error in errors] == [(None, None)] * 3
    assert isinstance(errors[-1].__cause__, FileNotFoundError)
    assert errors[-1].__cause__.__traceback__ is None


def test_an_error_to_read_the_rest_of_a_record_has_the_place_of_that_record() -> None:
    # It had that of the first record of the block, which had been given out already.
    storage = Memory(b"".join(frame(bytes([k]) * 100) for k in range(20)), broken=400)

    items = list(RecordReader("a", block=512, storage=storage))

    assert [at for at, _ in items] == [0, 116, 232, 348]
    error = items[-1][1]
    assert isinstance(error, DataError)
    assert error.offset == 348


def test_fill_bytes_in_front_of_exif_make_no_marker_of_what_follows() -> None:
    # With the block cut out they made one: a segment that reached over what came next.
    exif = b"\xff" * 9 + b"\xff\xe1\0\x08Exif\0\0"
    image = b"\xff\xd8\xff\xc0\0\x11\x08\0\x08\0\x06\3" + bytes(9) + exif + b"FI\2" + exif + b"\xd8\1"

    plain = with_plain_orientation(image)

    assert plain is not None
    assert plain.endswith(b"FI\2" + b"\xff" * 9 + b"\xff\xe1\0\x08" + bytes(6) + b"\xd8\1")
    assert with_plain_orientation(plain) is None


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_an_archive_that_ends_in_the_list_of_a_sparse_file_is_truncated(compression: Any) -> None:
    header = archives.archive_of(header_block(b"other", b"S", 0, (482, b"\1")), 0)
    assert len(header) == 512
    packed = gzip.compress(header) if compression else header

    ((offset, reason),) = archives.items(packed, 1024, None, compression)

    assert offset == 0
    assert re.search("has at most 0 after its header|512 bytes of the last member and its padding are missing", reason)


def test_a_number_does_not_go_on_in_the_next_piece_of_a_list() -> None:
    record = field(1, entry(b"a", field(3, field(1, b"\x80") + field(1, b"\1"))))

    with pytest.raises(ParseError, match="a number is truncated"):
        ExampleParser({"a": FixedLenFeature((), "int64")}).parse(record)


def test_pieces_of_a_list_that_are_whole_are_one_list() -> None:
    record = field(1, entry(b"a", field(3, field(1, b"\x80\1\2") + b"\x08\7" + field(1, b"") + field(1, b"\3"))))

    assert outcome(ExampleParser({"a": VarLenFeature("int64")}), record) == [[128, 2, 7, 3]]


@pytest.mark.parametrize("piece", [10, 11, 16, 1000])
def test_numbers_that_are_decoded_in_pieces_are_the_same_numbers(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    numbers = [(1 << k) - 1 for k in range(64)] * 3
    packed = b"".join(map(encode_varint, numbers))
    monkeypatch.setattr("gpupipe.extract.examples.wire._PIECE", piece)

    assert list(varints(memoryview(packed))) == [n - (1 << 64) if n >> 63 else n for n in numbers]


def test_a_feature_in_several_parts_is_damaged_if_one_of_them_is() -> None:
    # Each is a message: a number that is cut at the end of the first does not go on in the second.
    feature = field(3, b"\x0a\0\xfa") + field(3, b"\x0a\1\1")

    with pytest.raises(ParseError, match="a number is truncated"):
        ExampleParser({"a": VarLenFeature("int64")}).parse(field(1, entry(b"a", feature)))
