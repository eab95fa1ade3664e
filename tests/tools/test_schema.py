"""What a sample of records has in common, and a dict that really parses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import ParseError
from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.examples.listing import feature_types
from gpupipe.extract.finder import find
from gpupipe.tools.sample import Sample
from gpupipe.tools.schema import parse_call, schema_of, values_of
from gpupipe.tools.survey import survey
from tests.chains.damage import jpeg
from tests.fuzz.building import entry, field
from tests.tools.damage import write

ROWS: list[dict[str, Any]] = [
    {
        "image": jpeg(n, 24 + 8 * (n % 2), 32),
        "label": n,
        "box": np.arange(4 * (n % 3), dtype=np.float32),
        "corners": np.arange(4, dtype=np.float32),
        'odd "name"': b"\xff\xfe\x00",
        **({"text": b"some words"} if n % 2 else {}),
        **({"weights": np.ones(2, np.float32)} if n % 5 else {}),
        "both": n if n % 2 else b"x",
    }
    for n in range(10)
]


def test_features_are_described_by_what_all_records_have() -> None:
    columns = {column.name: column for column in schema_of(values_of(encode_example(row)) for row in ROWS)}

    assert list(columns) == sorted(ROWS[1])
    found = {name: (column.dtype, column.lengths, column.records) for name, column in columns.items()}
    assert found == {
        "both": ("bytes or int64", "1", 10),
        "box": ("float32", "0..8", 10),
        "corners": ("float32", "4", 10),
        "image": ("bytes", "1", 10),
        "label": ("int64", "1", 10),
        'odd "name"': ("bytes", "1", 10),
        "text": ("bytes", "1", 5),
        "weights": ("float32", "2", 8),
    }
    shown = [columns[name].example for name in ("text", 'odd "name"', "corners", "image")]
    assert shown == ['"some words"', "ff fe 00 (3 bytes)", "0, 1, 2, 3", "JPEG baseline 4:2:0, 24x32"]
    images = columns["image"].json()["images"]
    assert images["kinds"] == {"JPEG baseline 4:2:0": 10}
    assert (images["height"], images["width"]) == ([24, 32], [32, 32])


def test_the_dict_that_is_printed_parses_every_record() -> None:
    records = [encode_example(row) for row in ROWS]

    text = parse_call(schema_of(map(values_of, records)), len(records))

    scope: dict[str, Any] = {"gp": gp}
    exec(text, scope)
    features = scope["features"]
    assert "# both: bytes in 5, int64 in 5 records" in text.replace('"', "") and "missing in 5 of 10 records" in text
    fixed, of_any_length = gp.io.FixedLenFeature, gp.io.VarLenFeature("float32")
    assert (features["image"], features["corners"]) == (fixed((), bytes), fixed((4,), "float32"))
    assert features["box"] == features["weights"] == of_any_length
    assert features["text"] == fixed((), bytes, default_value=b"")
    for row, record in zip(ROWS, records, strict=True):
        parsed = gp.io.parse_single_example(record, features)
        assert parsed["label"] == row["label"]
        assert parsed["text"] == row.get("text", b"")
        np.testing.assert_array_equal(parsed["box"], row["box"])


def test_types_are_listed_by_the_rules_of_the_parser() -> None:
    ints, floats = field(3, field(1, b"\x05")), field(2, field(1, bytes(4)))
    features = entry(b"a", ints) + entry(b"b", b"") + entry(b"c", ints + floats) + entry(b"a", floats)
    record = field(1, features + entry(b"\xff", ints)) + field(2, b"of a SequenceExample")

    assert feature_types(record) == {"a": "float32", "b": None, "c": "float32", "\\xff": "int64"}
    known = {name: values.dtype for name, values in values_of(field(1, features)).items()}
    assert known == {"a": "float32", "c": "float32"}
    for other in (b"", b"no example", field(1, b""), field(3, b"x"), record[:-1], b"\xff" * 50):
        with pytest.raises(ParseError, match=r"a tf\.train\.Example is needed, got \d+ bytes"):
            feature_types(other)


@pytest.mark.parametrize("count", [0, 1, 10, 11, 1000])
@pytest.mark.parametrize("most", [1, 7, 10])
@pytest.mark.parametrize("block", [4, 2000])
def test_a_sample_is_evenly_spread_over_any_number(count: int, most: int, block: int) -> None:
    sample = Sample(most, int)
    for start in range(0, count, block):
        sample.add(range(start, min(start + block, count)))

    steps = set(np.diff(sample.kept).tolist())
    assert min(count, (most + 1) // 2) <= len(sample.kept) <= most
    assert sample.kept[:1] == [0][:count]
    assert len(steps) <= 1
    assert not count or count - sample.kept[-1] <= max(steps | {2 * count // most + 1})


def test_a_survey_finds_sizes_and_damage_and_looks_into_a_sample(tmp_path: Path) -> None:
    records = [encode_example(row) for row in ROWS]
    data = bytearray(write(tmp_path / "a", records))
    data[12 + 50] ^= 1  # the payload of the first record
    data[len(records[0]) + 16] ^= 1  # the length of the second one
    (tmp_path / "a").write_bytes(data[:-3])
    write(tmp_path / "b", [b"no example"])

    found = survey(find([str(tmp_path / "a"), str(tmp_path / "b")], "test").files, None, 100, 5)

    a, b = found.files
    assert [len(a.lengths), a.wrong_payloads, a.damaged] == [7, 1, 2]
    assert [offset for offset, _ in a.listed] == [0, len(records[0]) + 16, len(data) - len(records[-1]) - 16]
    assert list(a.lengths) == list(map(len, records[2:9]))
    assert (a.whole, b.whole, found.whole) == (False, True, False)
    assert (found.sample, found.examples, len(found.images)) == (8, 7, 4)
    assert "a tf.train.Example is needed, got 10 bytes" in found.other
    sizes = [10, *map(len, records[2:9])]
    assert found.json()["payload_bytes"] == {"min": 10, "median": int(np.median(sizes)), "max": max(sizes)}
