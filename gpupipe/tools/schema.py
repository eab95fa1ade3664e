"""schema: what the features of a sample of records have in common, and how to parse them."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache
from typing import Any

from gpupipe.brief import cut
from gpupipe.errors import DecodeError, ParseError
from gpupipe.extract.examples.example import ExampleParser
from gpupipe.extract.examples.features import DType, VarLenFeature
from gpupipe.extract.examples.listing import feature_types
from gpupipe.extract.images.describe import describe

from ..classes import dataclass

__all__ = ["Column", "Images", "Values", "image_of", "parse_call", "schema_of", "values_of"]

_MOST_FEATURES = 256  # that are reported; a record may have a million


_DEFAULTS = {"bytes": 'b""', "int64": "-1", "float32": "0.0"}


_SHOWN = 4  # values of an example


@dataclass(frozen=True, slots=True)
class Values:
    """One feature of one record.

    Attributes:
        dtype: "bytes", "int64" or "float32".
        count: how many values it has.
        example: the first values as text.
        size: of bytes, the bytes of the first value.
        kind: of an image, its class, such as "JPEG baseline 4:2:0"; else "".
        height: of an image, in pixels as stored.
        width: of an image, in pixels as stored.
    """

    dtype: DType
    count: int
    example: str
    size: int = 0
    kind: str = ""
    height: int = 0
    width: int = 0


@dataclass(slots=True)
class Images:
    """The images of a feature.

    Attributes:
        kinds: how many there are of each class.
        heights: in pixels, of every one.
        widths: in pixels, of every one.
        sizes: in bytes, of every one.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    heights: list[int] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Column:
    """A feature in all records of the sample.

    Attributes:
        name: of the feature.
        dtypes: in how many records its values have which type.
        fewest: values of one record that has the feature.
        most: values of one record.
        records: how many records have it.
        example: the values of the first record that has it.
        images: what is known of them, where its values are images.
    """

    name: str
    dtypes: Counter[DType]
    fewest: int
    most: int
    records: int
    example: str
    images: Images | None = None

    @property
    def lengths(self) -> str:
        """How many values a record has: "1", "4" or "0..12"."""
        return str(self.most) if self.fewest == self.most else f"{self.fewest}..{self.most}"

    @property
    def dtype(self) -> str:
        """The type of its values; several where the records disagree."""
        return " or ".join(self.dtypes)

    def json(self) -> dict[str, Any]:
        """Make the entry of `gpupipe inspect --json`."""
        images = None
        if self.images is not None:
            heights, widths = self.images.heights, self.images.widths
            images = {
                "kinds": dict(self.images.kinds.most_common()),
                "height": [min(heights), max(heights)],
                "width": [min(widths), max(widths)],
                "bytes": [min(self.images.sizes), max(self.images.sizes)],
            }
        known = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {**known, "dtypes": dict(self.dtypes), "images": images}


def values_of(record: bytes | memoryview) -> dict[str, Values]:
    """Summarise the features of a record. One without a list is left out, as parsers treat it as missing.

    Raises:
        ParseError: the record is not an Example, or a feature is damaged.
    """
    types: dict[str, DType] = {name: dtype for name, dtype in feature_types(record).items() if dtype is not None}
    asked: tuple[tuple[str, DType], ...] = tuple(types.items())[:_MOST_FEATURES]
    return {name: _summary(dtype, found) for (name, dtype), found in zip(asked, _parsed(record, asked), strict=True)}


def image_of(record: bytes | memoryview, feature: str) -> bytes:
    """The first value of a feature of bytes; b"" if the record has none."""
    try:
        (found,) = _parsed(record, ((feature, "bytes"),))
    except ParseError:
        return b""
    return bytes(found[0]) if len(found) else b""


def _parsed(record: bytes | memoryview, asked: tuple[tuple[str, DType], ...]) -> tuple[Any, ...]:
    return _parser(asked).parse(record) if asked else ()


@lru_cache(64)
def _parser(asked: tuple[tuple[str, DType], ...]) -> ExampleParser:
    return ExampleParser({name: VarLenFeature(dtype) for name, dtype in asked})


def _summary(dtype: DType, found: Any) -> Values:
    count = len(found)
    if dtype != "bytes":
        text = ", ".join(f"{value:.4g}" if dtype == "float32" else str(value) for value in found[:_SHOWN].tolist())
        return Values(dtype, count, text + ", ..." * (count > _SHOWN))
    if not count:
        return Values(dtype, 0, "")
    first: bytes = found[0]
    more = f" and {count - 1} more" if count > 1 else ""
    try:
        image = describe(first)
    except DecodeError:
        return Values(dtype, count, _text(first) + more, len(first))
    height, width = image.header.height, image.header.width
    text = f"{image.kind}, {height}x{width}"
    return Values(dtype, count, text + more, len(first), image.kind, height, width)


def _text(value: bytes) -> str:
    """Bytes for people: as text if they are, else the first of them in hexadecimal."""
    try:
        text = value[:200].decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or (value and not text):
        return f"{value[:8].hex(' ')}{' ...' * (len(value) > 8)} ({len(value)} bytes)"
    return json.dumps(cut(text, 40), ensure_ascii=False)


def schema_of(sample: Iterable[dict[str, Values]]) -> list[Column]:
    """Gather the features of a sample of records, sorted by name."""
    columns: dict[str, Column] = {}
    for record in sample:
        for name, values in record.items():
            column = columns.get(name)
            if column is None:
                if len(columns) == _MOST_FEATURES:
                    continue
                column = columns[name] = Column(name, Counter(), values.count, 0, 0, values.example)
            column.dtypes[values.dtype] += 1
            column.fewest, column.most = min(column.fewest, values.count), max(column.most, values.count)
            column.records += 1
            if values.kind:
                _add_image(column, values)
    return [columns[name] for name in sorted(columns)]


def _add_image(column: Column, values: Values) -> None:
    images = column.images = column.images or Images()
    images.kinds[values.kind] += 1
    images.heights.append(values.height)
    images.widths.append(values.width)
    images.sizes.append(values.size)


def parse_call(columns: Iterable[Column], records: int) -> str:
    """Write the dict of features for `parse_single_example`, as Python to paste.

    Args:
        columns: the features.
        records: how many records of the sample are Examples.
    """
    lines = ["features = {"]
    for column in columns:
        name, some = json.dumps(column.name, ensure_ascii=False), column.records < records
        if len(column.dtypes) > 1:
            found = ", ".join(f"{dtype} in {count}" for dtype, count in column.dtypes.items())
            lines.append(f"    # {name}: {found} records; one description cannot parse both")
            continue
        (dtype,) = column.dtypes
        what = "bytes" if dtype == "bytes" else f'"{dtype}"'
        note = ""
        if column.fewest < column.most or not column.most:
            call = f"VarLenFeature({what})"
        elif not some:
            call = f"FixedLenFeature({_shape(column.most)}, {what})"
        elif column.most == 1:
            call = f"FixedLenFeature((), {what}, default_value={_DEFAULTS[dtype]})"
            note = f"  # missing in {records - column.records} of {records} records"
        else:
            call = f"VarLenFeature({what})"
        lines.append(f"    {name}: gp.io.{call},{note}")
    return "\n".join([*lines, "}"])


def _shape(count: int) -> str:
    return "()" if count == 1 else f"({count},)"
