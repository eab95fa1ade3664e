"""run: the whole of `pack`."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from gpupipe.cpus import cpu_count
from gpupipe.errors import DataError, DecodeError, MissingDependencyError, PlanError, io_reason, shown_name, text_of
from gpupipe.extract.examples.encode import encode_example
from gpupipe.flow.order.permutation import Permutation
from gpupipe.integers import is_integer, plain
from gpupipe.random import LAW, hash64, mix64
from gpupipe.tools.pack.find import find_inputs
from gpupipe.tools.pack.image import as_stored
from gpupipe.tools.pack.inputs import Inputs, Progress
from gpupipe.tools.pack.journal import Finished, Journal, Skipped, opened
from gpupipe.tools.pack.shard import records_in, write_shard

from ...classes import dataclass

__all__ = ["Packed", "Skipped", "pack"]

_FORMAT = 1
"""Version of what is written; a folder that another version began is refused."""

_TOGETHER = 4
"""Images that a thread prepares at a time: handing one over costs 50 us, of the 3 ms that shrinking takes."""

_SCRATCH = ".images"


@dataclass(frozen=True, slots=True)
class Packed:
    """What `pack` wrote.

    Attributes:
        files: the shards, in order.
        records: in all of them.
        bytes: of all of them.
        skipped: the images that cannot be decoded and were left out.
        classes: the number of classes; 0 for images without labels.
        class_names: by label, where the source has names.
        ignored: files of the source that are not images.
        found: how many of the shards were finished by an earlier run.
    """

    files: tuple[Path, ...]
    records: int
    bytes: int
    skipped: tuple[Skipped, ...]
    classes: int
    class_names: tuple[str, ...]
    ignored: int
    found: int


def pack(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    shards: int,
    *,
    resize_shorter: int | None = None,
    quality: int | None = None,
    decoded: bool = False,
    seed: int = 0,
    name: str = "train",
    on_error: str = "raise",
    workers: int | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Write images as shuffled TFRecord shards of tf.train.Example, with the features of TensorFlow's ImageNet scripts.

    Features: ``image/encoded``, ``image/format`` ("JPEG", "PNG", ...), ``image/filename`` (the path below the source),
    ``image/height`` and ``image/width`` (pixels of the stored image); of images with a class also
    ``image/class/label`` (from 0) and, where classes have names, ``image/class/text``.

    The shards are a function of the images and the options, byte for byte; the number of workers does not matter. A
    call that was interrupted, or killed, continues when it is repeated.

    Args:
        source: a folder of class directories or of images; tar archives; Parquet files. See `find_inputs`.
        out: a folder, new or empty, or one that an equal call began.
        shards: number of files, 1 to the number of images; their numbers of images differ by at most one.
        resize_shorter: pixels of the shorter side to which larger images are shrunk; None stores all as they are.
        quality: of the JPEGs that are encoded then, 1..100; None for 90.
        decoded: store every image decoded and upright, as a BMP of 24 bits, or of 8 bits if it is gray: no later epoch
            decodes. Transparency is dropped, and the lower bits of 16.
        seed: decides the order, 0..2**64-1.
        name: of the files, ``train-00000-of-00008.tfrecord``.
        on_error: "raise" ends at an image that cannot be decoded, "skip" leaves it out.
        workers: threads that prepare images; None for as many as there are CPUs.
        image_column: of Parquet files, see `find_parquet`.
        label_column: of Parquet files.
        progress: called as (task, done, total); a total of 0 is not known.

    Raises:
        PlanError: an argument, the source or the folder is wrong; nothing was written.
        DecodeError: an image cannot be decoded. Finished shards stay.
        MissingDependencyError: Parquet needs pyarrow, which is not installed.
        OSError: a file cannot be read or written. Finished shards stay.

    Example:
        >>> from PIL import Image
        >>> for number in range(4):
        ...     folder = Path("photos", f"class{number % 2}")
        ...     folder.mkdir(parents=True, exist_ok=True)
        ...     Image.new("RGB", (640, 480)).save(folder / f"{number}.jpg")
        >>> pack("photos", "packed", 2, resize_shorter=256).records
        4
    """
    shards, seed, quality, resize_shorter, workers = map(plain, (shards, seed, quality, resize_shorter, workers))
    _check_arguments(shards, resize_shorter, quality, decoded, seed, name, on_error, workers)
    quality = None if decoded else 90 if quality is None else quality
    source, out, told = os.fspath(source), _folder(source, out), progress or (lambda task, done, total: None)
    _check_apart(source, out)
    inputs = find_inputs(source, image_column, label_column, told)
    if shards > len(inputs):
        most = f"1 to {len(inputs)} shards for {len(inputs)} images" if len(inputs) > 1 else "1 shard for 1 image"
        raise PlanError(f"pack needs {most}, got {shards}")
    paths = tuple(out / f"{name}-{shard:05d}-of-{shards:05d}.tfrecord" for shard in range(shards))
    options = {"--shards": shards, "--seed": seed, "--name": name, "--resize-shorter": resize_shorter}
    if decoded or resize_shorter is not None:
        options |= {"--decoded": True} if decoded else {"--quality": quality}
    with opened(out, _plan(source, inputs, options)) as journal:
        found = _still_there(journal, paths, on_error)
        work = _Work(inputs, shards, seed, resize_shorter, quality, on_error == "skip")
        with _said_when_full(out, journal, shards):
            _write(work, journal, paths, found, workers or cpu_count(), told)
        done = [journal.finished[shard] for shard in range(shards)]
    return Packed(
        paths,
        sum(shard.records for shard in done),
        sum(shard.bytes for shard in done),
        tuple(one for shard in done for one in shard.skipped),
        len(inputs.classes) or len(set(inputs.labels or ())),
        tuple(inputs.classes),
        inputs.ignored,
        len(found),
    )


def _check_arguments(
    shards: Any, shorter: Any, quality: Any, decoded: bool, seed: Any, name: str, on_error: str, workers: Any
) -> None:
    if decoded and quality is not None:
        raise PlanError(f"pack needs --quality or --decoded, got both: a BMP has no quality, got {quality!r}")
    for option, value, least, most in (
        ("--shards", shards, 1, 99_999),
        ("--resize-shorter", 1 if shorter is None else shorter, 1, 65_500),
        ("--quality", 1 if quality is None else quality, 1, 100),
        ("--seed", seed, 0, 2**64 - 1),
        ("--workers", 1 if workers is None else workers, 1, 1024),
    ):
        if not is_integer(value) or not least <= value <= most:
            raise PlanError(f"pack needs {option} to be an integer of {least}..{most}, got {value!r}")
    if not name or name.startswith(".") or set(name) & set('/\\:*?[]"<>|') or not name.isprintable():
        raise PlanError(f"pack needs --name to be the beginning of a file name, got {name!r}")
    if on_error not in ("raise", "skip"):
        raise PlanError(f'pack needs --on-error to be "raise" or "skip", got {on_error!r}')


def _folder(source: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """The folder for the shards; an empty path, which `Path` takes for the working directory, is refused."""
    for what, given in (("a source", source), ("a folder for its shards", out)):
        if not os.fspath(given):
            raise PlanError(f"pack needs {what}, got ''")
    return Path(out).expanduser()


def _check_apart(source: str, out: Path) -> None:
    """Refuse a folder inside the source: the next run would take it for a class."""
    root = Path(source).expanduser().resolve()
    if root.is_dir() and root in (out.resolve(), *out.resolve().parents):
        raise PlanError(f"pack needs a folder outside of its source, got {str(out)!r} in {source!r}")


def _plan(source: str, inputs: Inputs, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """All that decides the bytes of the shards."""
    versions: dict[str, int | str] = {"format": _FORMAT, "random numbers": LAW}
    if options["--resize-shorter"] is not None or "--decoded" in options:
        import PIL

        try:
            import simplejpeg
        except ImportError as error:
            raise MissingDependencyError(
                f"pack needs simplejpeg to shrink or decode images, and importing it fails with {text_of(error)}; "
                "`pip install simplejpeg`, which has wheels for every CPython but the free-threaded ones"
            ) from error

        versions |= {"pillow": PIL.__version__, "simplejpeg": simplejpeg.__version__}
    return {
        "gpupipe": "pack",
        "source": source,
        "images": len(inputs),
        "digest": inputs.digest,
        "classes": list(inputs.classes),
        "options": options,
        "made with": versions,
    }


def _still_there(journal: Journal, paths: Sequence[Path], on_error: str) -> frozenset[int]:
    """The shards that an earlier run finished, and that are still as it left them."""
    found = set()
    for shard, path in enumerate(paths):
        had = journal.finished.get(shard)
        if had is None or not path.is_file() or path.stat().st_size != had.bytes or records_in(path) != had.records:
            continue
        if had.skipped and on_error == "raise":
            one = had.skipped[0]
            raise _refusal(DecodeError(f"an earlier run left it out: {one.reason}", file=one.image))
        found.add(shard)
    return frozenset(found)


@contextmanager
def _said_when_full(out: Path, journal: Journal, shards: int) -> Iterator[None]:
    """Say of a full disk or file, whose error names none, what is there and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        large = error.errno == errno.EFBIG
        what = f"make more than {shards} shards, in another folder" if large else "make room, and repeat"
        text = f"{io_reason(error)}; {len(journal.finished)} of {shards} shards are finished: {what}"
        raise OSError(error.errno, text, str(out)) from error


def _refusal(error: DataError) -> DataError:
    text = f"{error.reason}; mend or remove the image, or leave such images out with --on-error skip"
    return type(error)(text, file=error.file)


class _Work:
    """Which image goes where, and what becomes of it."""

    def __init__(
        self, inputs: Inputs, shards: int, seed: int, shorter: int | None, quality: int | None, skip: bool
    ) -> None:
        self.inputs = inputs
        self._order = Permutation(len(inputs), mix64(hash64("pack"), seed))(np.arange(len(inputs)))
        self._bounds = [shard * len(inputs) // shards for shard in range(shards + 1)]
        self._shorter, self._quality, self._skip = shorter, quality, skip

    def images_of(self, shard: int) -> list[int]:
        """The images of a shard, in order."""
        return [int(i) for i in self._order[self._bounds[shard] : self._bounds[shard + 1]]]

    def prepared(self, read: Callable[[int], bytes], images: Sequence[int]) -> list[bytes | Skipped]:
        """Make the records of some images."""
        return [self._record(read, i) for i in images]

    def _record(self, read: Callable[[int], bytes], i: int) -> bytes | Skipped:
        inputs = self.inputs
        try:
            stored = as_stored(read(i), self._shorter, self._quality)
        except DataError as error:
            error.at(file=inputs.where(i))
            if not self._skip:
                raise _refusal(error) from error
            return Skipped(shown_name(inputs.where(i)), error.reason)
        features: dict[str, bytes | int] = {
            "image/encoded": stored.encoded,
            "image/format": stored.format.encode(),
            "image/filename": _text(inputs.names[i]),
            "image/height": stored.height,
            "image/width": stored.width,
        }
        if inputs.labels is not None:
            label = features["image/class/label"] = inputs.labels[i]
            if 0 <= label < len(inputs.classes):
                features["image/class/text"] = _text(inputs.classes[label])
        return encode_example(features)


def _text(name: str) -> bytes:
    return name.encode(errors="surrogateescape")


def _write(
    work: _Work, journal: Journal, paths: Sequence[Path], found: frozenset[int], workers: int, progress: Progress
) -> None:
    """Write the shards that are not there, one after another, while threads prepare the images that come next."""
    scratch = paths[0].parent / _SCRATCH
    missing = [shard for shard in range(len(paths)) if shard not in found]
    if missing:
        read = work.inputs.reader(scratch, progress)
        left, total = {shard: len(work.images_of(shard)) for shard in missing}, len(work.inputs)
        done = total - sum(left.values())
        chunks = (
            images[i : i + _TOGETHER]
            for images in map(work.images_of, missing)
            for i in range(0, len(images), _TOGETHER)
        )
        with closing(_in_order(partial(work.prepared, read), chunks, workers)) as prepared:
            for shard in missing:
                skipped: list[Skipped] = []
                tell = partial(_tell, progress, done, total)
                records = _good(islice(prepared, left[shard]), skipped, tell)
                count, size = write_shard(paths[shard], records)
                journal.add(Finished(shard, count, size, tuple(skipped)))
                done += left[shard]
    scratch.unlink(missing_ok=True)


def _tell(progress: Progress, before: int, total: int, count: int) -> None:
    progress("packing", before + count, total)


def _good(prepared: Iterable[bytes | Skipped], skipped: list[Skipped], tell: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the records, and append what is none to `skipped`; `tell` is called with the number of both."""
    for count, one in enumerate(prepared, 1):
        tell(count)
        if isinstance(one, Skipped):
            skipped.append(one)
        else:
            yield one


def _in_order(
    prepare: Callable[[list[int]], list[bytes | Skipped]], chunks: Iterator[list[int]], workers: int
) -> Generator[bytes | Skipped, None, None]:
    """Prepare chunks of images in threads, a bounded number ahead, and yield the results in order."""
    pool = ThreadPoolExecutor(workers, "gpupipe-pack")
    running: deque[Future[list[bytes | Skipped]]] = deque()
    try:
        for chunk in chunks:
            running.append(pool.submit(prepare, chunk))
            if len(running) > 2 * workers:
                yield from running.popleft().result()
        while running:
            yield from running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
