"""inspect_records: what TFRecord files hold, as text."""

from __future__ import annotations

from collections.abc import Sequence

from gpupipe.errors import shown_name
from gpupipe.load.table import table
from gpupipe.tools.schema import Column, parse_call
from gpupipe.tools.survey import Survey, Surveyed, spread_of
from gpupipe.tools.text import byte_count, counted

__all__ = ["survey_text"]

SHOWN_FILES = 40
"""Files that the table lists; damaged ones are always listed below it."""


SHOWN_DAMAGE = 20
"""Damaged places that are listed, of all files."""


def survey_text(found: Survey) -> str:
    """Lay out a survey for people: files, damage, features, and the dict that parses them."""
    one = len(found.files) == 1
    parts = [_file(found.files[0]) if one else _files(found), _damage(found.files)]
    if found.sample:
        parts += [_content(found), _features(found.columns, found.examples)]
        parts += [_images(column) for column in found.columns if column.images is not None]
        if found.columns:
            parts.append(f"To parse them:\n\n{parse_call(found.columns, found.examples)}")
    return "\n\n".join(part for part in parts if part)


def _file(file: Surveyed) -> str:
    codec = file.compression.lower() or "not compressed"
    lines = [
        f"{shown_name(file.path)}: {counted(len(file.lengths), 'readable record')}, {byte_count(file.size)}, {codec}"
    ]
    sizes = spread_of([file.lengths])
    if sizes is not None:
        lines.append("payloads: " + ", ".join(f"{byte_count(n)} {name}" for name, n in sizes.items()))
    return "\n".join([*lines, f"checksums: {_checksums(file)}"])


def _checksums(file: Surveyed) -> str:
    if not file.lengths and file.whole:
        return "none, the file is empty" if not file.size else "none, there are no records"
    if not file.lengths and file.unread and not file.damaged:
        return "none, it cannot be read"
    payloads = "all payloads match" if not file.wrong_payloads else f"{counted(file.wrong_payloads, 'wrong payload')}"
    others = "all lengths match" if not file.damaged else f"{counted(file.damaged, 'other damaged place')}"
    return f"{others}, {payloads}{', not read to the end' * bool(file.unread)}"


def _files(found: Survey) -> str:
    rows = [_row(shown_name(file.path), [file]) for file in found.files[:SHOWN_FILES]]
    if len(found.files) > SHOWN_FILES:
        rest = found.files[SHOWN_FILES:]
        rows.append(_row(f"{counted(len(rest), 'more file')}", rest))
    rows.append(_row(f"all {len(found.files):,} files", found.files))
    head = ("file", "size", "compressed", "records", "min", "median", "max", "state")
    return table(head, rows, (1, 3, 4, 5, 6))


def _row(name: str, files: Sequence[Surveyed]) -> tuple[str, ...]:
    sizes = spread_of([file.lengths for file in files])
    codecs = sorted({file.compression.lower() or "no" for file in files})
    damaged = sum(file.wrong_payloads + file.damaged for file in files)
    state = f"{damaged:,} damaged" if damaged else "good"
    state = state + ", not read to the end" if any(file.unread for file in files) else state
    spread = [byte_count(n) for n in sizes.values()] if sizes is not None else ["-"] * 3
    records = sum(len(file.lengths) for file in files)
    return (name, byte_count(sum(f.size for f in files)), ", ".join(codecs), f"{records:,}", *spread, state)


def _damage(files: Sequence[Surveyed]) -> str:
    """Where files are damaged, and what is readable nevertheless."""
    lines: list[str] = []
    places = 0
    for file in files:
        if file.whole:
            continue
        before = "" if len(files) == 1 else f"{shown_name(file.path)} "
        shown = file.listed[: max(SHOWN_DAMAGE - places, 0)]
        places += len(shown)
        lines += [f"  {before}at offset {offset}: {reason}" for offset, reason in shown]
        more = file.wrong_payloads + file.damaged - len(shown)
        if more > 0:
            lines.append(f"  {before}and {counted(more, 'more place')}; `gpupipe verify --manifest` lists all")
        if file.unread:
            lines.append(f"  {before}is not read to its end: {file.unread}")
        lines.append(f"  {before}{counted(len(file.lengths), 'record') if file.lengths else 'no record'} can be read")
    return "\n".join(["damaged:", *lines]) if lines else ""


def _content(found: Survey) -> str:
    looked = counted(found.sample, "record") + (" (a sample)" if found.sample < found.records else "")
    if found.examples == found.sample:
        return f"{looked}: each is a tf.train.Example"
    what = f"{found.examples:,} of {looked} are a" if found.examples else f"{looked}: no"
    return f"{what} tf.train.Example; the first other: {found.other}"


def _features(columns: Sequence[Column], examples: int) -> str:
    if not columns:
        return ""
    rows = [
        (shown_name(one.name), one.dtype, one.lengths, f"{100 * one.records / examples:.3g} %", one.example)
        for one in columns
    ]
    return table(("feature", "dtype", "values", "in records", "example"), rows, (2, 3))


def _images(column: Column) -> str:
    assert column.images is not None
    found = column.images
    kinds = ", ".join(f"{count:,} x {kind}" for kind, count in found.kinds.most_common())
    heights, widths = (f"{min(sides)}..{max(sides)}" for sides in (found.heights, found.widths))
    sizes = f"{byte_count(min(found.sizes))}..{byte_count(max(found.sizes))}"
    return f"images in {shown_name(column.name)}: {kinds}\n  height {heights}, width {widths} pixels, {sizes}"
