"""prepared: images shrunk once, so that later epochs cut crops out of them: the forms that are read, made once.

A folder of forms has the shards as they are (`whole`), what `gpupipe pack --resize-shorter 256` makes of them
(`small`), what it makes of them with `--decoded` (`decoded`) and with a `--budget` for half of them (`half`), and the
images in a tar archive with their labels, for contestants that make forms of their own.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.tfrecord import entries

__all__ = ["IMAGES", "LABELS", "SHORTER", "forms", "sizes", "warmup"]

SHORTER = 256
"""The shorter side of a prepared image, in pixels."""
IMAGES, LABELS = "images.tar", "labels.txt"


def forms(files: Sequence[str], folder: Path) -> str:
    """Make every form of the images of some shards; return the folder that holds them."""
    from gpupipe.tools.pack import pack

    whole = folder / "whole"
    whole.mkdir(parents=True)
    for number, file in enumerate(files):
        os.symlink(os.path.abspath(file), whole / f"{number:05}.tfrecord")
    _write_tar(files, folder)
    small, decoded = (
        pack(folder / IMAGES, folder / name, len(files), resize_shorter=SHORTER, decoded=name == "decoded").bytes
        for name in ("small", "decoded")
    )
    budget = (small + decoded) // 2
    pack(folder / IMAGES, folder / "half", len(files), resize_shorter=SHORTER, decoded=True, budget=budget)
    return str(folder)


def sizes(folder: str) -> dict[str, int]:
    """Bytes of each form on the disk, those of contestants included."""
    return {
        path.name: sum(file.stat().st_size for file in (path.glob("*.tfrecord") if path.is_dir() else (path,)))
        for path in sorted(Path(folder).iterdir())
        if path.name not in (IMAGES, LABELS)
    }


def warmup(records: int, batch: int, least: int) -> int:
    """Batches before the window: more than an epoch, in which what is kept for later ones is made."""
    return max(least, records // batch + 3)


def _write_tar(files: Sequence[str], folder: Path) -> None:
    """Write the images as ``00000.jpg``, ``00001.jpg`` ... with ``00000.cls`` ..., and their labels as a list, too."""
    labels: list[int] = []
    with tarfile.open(folder / IMAGES, "w", format=tarfile.USTAR_FORMAT) as tar:
        for file in files:
            with open(file, "rb") as source:
                for entry in entries(file):
                    source.seek(entry.offset)
                    key = f"{len(labels):05}"
                    for name, data in ((f"{key}.jpg", source.read(entry.length)), (f"{key}.cls", b"%d" % entry.label)):
                        member = tarfile.TarInfo(name)
                        member.size = len(data)
                        tar.addfile(member, io.BytesIO(data))
                    labels.append(entry.label)
    (folder / LABELS).write_text("\n".join(map(str, labels)))
