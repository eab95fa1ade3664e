"""image_files: many image files, read in threads, and what they have in common."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from statistics import median_low
from typing import Any

from gpupipe.cpus import cpu_count
from gpupipe.errors import PlanError, shown_name
from gpupipe.extract.finder import DataFile
from gpupipe.load.table import table
from gpupipe.progress import Progress
from gpupipe.threads import DaemonPool
from gpupipe.tools.inspect_image import ImageFile, image_file
from gpupipe.tools.pack.inputs import Inputs
from gpupipe.tools.text import byte_count, counted
from gpupipe.urls import without_secrets

__all__ = ["LISTED", "check_no_manifest", "checked_json", "checked_text", "image_files", "images_text"]

LISTED = 40
"""Image files that are described one by one; of more there is a summary."""

SHOWN = 20
"""Classes and bad images of a summary."""


def image_files(
    images: Sequence[DataFile] | Inputs, *, decode: bool = True, keep: int = 0, workers: int | None = None
) -> list[ImageFile]:
    """Read image files, or the images in archives, in their order; progress goes to stderr.

    Args:
        images: the files, or the images.
        decode: decode each image; else header and end are checked.
        keep: of how many the bytes are kept, evenly spread over all.
        workers: threads; None for one for each CPU.
    """
    total = len(images)
    count = min(keep, total)
    kept = {number * total // count for number in range(count)}
    workers = workers or cpu_count()
    pool = DaemonPool(workers, "gpupipe-images")
    seen: list[ImageFile] = []
    try:
        with Progress() as progress:
            progress.start(f"reading {counted(total, 'image')}")
            made = (
                pool.submit(partial(image_file, name, decode, number in kept, read))
                for number, (name, read) in enumerate(_named(images))
            )
            waiting = deque(islice(made, 4 * workers))  # rows of Parquet files are in memory while they wait
            while waiting:
                seen.append(waiting.popleft().result())
                waiting.extend(islice(made, 1))
                progress.update(len(seen), total, "images")
    finally:
        pool.close()
    return seen


def _named(images: Sequence[DataFile] | Inputs) -> Iterator[tuple[str, Callable[[], bytes] | None]]:
    """The name of each image, and what reads it; None for a file that is read by its name."""
    if not isinstance(images, Inputs):
        return ((file.path, None) for file in images)
    return ((images.where(i), read) for i, read in enumerate(images.in_turn()))


def images_text(seen: Sequence[ImageFile]) -> str:
    """Lay out image files for people, one by one if they are few."""
    if len(seen) <= LISTED:
        return "\n\n".join(one.text() for one in seen)
    known = [one.described for one in seen if one.described is not None]
    lines = [_counts(seen)]
    for name, values in (("heights", [d.header.height for d in known]), ("widths", [d.header.width for d in known])):
        if values:
            lines.append(f"{name}: {min(values):,} min, {median_low(values):,} median, {max(values):,} max, in pixels")
    sizes = [one.size for one in seen]
    lines.append(
        f"files: {byte_count(min(sizes))} min, {byte_count(median_low(sizes))} median, {byte_count(max(sizes))} max"
    )
    turned = sum(one.header.orientation != 1 for one in known)
    lines.append(f"orientation: {counted(turned, 'image')} to be turned or mirrored, as EXIF says")
    others = sum(not one.ordinary and not one.failure for one in seen)
    lines.append(f"decoding: {counted(others, 'good image')} on the host by every executor, the others by DALI")
    kinds = Counter(one.kind for one in known).most_common()
    folders = Counter(os.path.dirname(one.path) for one in seen)
    parts = ["\n".join(lines), table(("kind", "images"), [(name, f"{n:,}") for name, n in kinds], (1,))]
    if len(folders) > 1:
        rows = [(shown_name(name), f"{n:,}") for name, n in sorted(folders.items())[:SHOWN]]
        if len(folders) > SHOWN:
            rows.append(
                (f"{counted(len(folders) - SHOWN, 'more folder')}", f"{sum(folders.values()) - _listed(folders):,}")
            )
        parts.append(table(("folder", "images"), rows, (1,)))
    return "\n\n".join([*parts, *_bad(seen)])


def checked_text(seen: Sequence[ImageFile], decoded: bool) -> str:
    """Say for people which image files are bad."""
    how = (
        "headers and ends are complete, all images are decoded"
        if decoded
        else "headers and ends are complete; --decode checks the pixels"
    )
    bad = sum(bool(one.failure) for one in seen)
    return f"{_counts(seen)}: all good ({how})" if not bad else "\n\n".join([*_bad(seen), _counts(seen)])


def checked_json(seen: Sequence[ImageFile], decoded: bool) -> dict[str, Any]:
    """Make the object that `gpupipe verify --json` prints of image files."""
    bad = [one for one in seen if one.failure]
    return {
        "good": not bad,
        "images": len(seen),
        "bad": len(bad),
        "decoded": decoded,
        "bad_images": [{"path": without_secrets(one.path), "bytes": one.size, "reason": one.failure} for one in bad],
    }


def _counts(seen: Sequence[ImageFile]) -> str:
    bad = sum(bool(one.failure) for one in seen)
    text = f"{counted(len(seen), 'image')}, {byte_count(sum(one.size for one in seen))}"
    return f"{text}: {bad:,} bad" if bad else text


def _bad(seen: Sequence[ImageFile]) -> list[str]:
    bad = [one for one in seen if one.failure]
    lines = [f"{shown_name(one.path)}: {one.failure}" for one in bad[:SHOWN]]
    if len(bad) > SHOWN:
        lines.append(f"... and {counted(len(bad) - SHOWN, 'more bad image')}; --json lists all")
    return ["\n".join(lines)] if lines else []


def _listed(folders: Counter[str]) -> int:
    return sum(folders[name] for name in sorted(folders)[:SHOWN])


def check_no_manifest(manifest: str | None) -> None:
    """Refuse a manifest of image files.

    Raises:
        PlanError: one is asked for.
    """
    if manifest is not None:
        raise PlanError(
            "--manifest needs TFRecord files: a chain knows records by their place in a file, and images by the whole "
            'list of files; for image files --json lists the bad ones, and Options(on_error="skip") leaves them out'
        )
