"""run: the whole of `pack`."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from gpupipe.cpus import cpu_count
from gpupipe.errors import DecodeError, MissingDependencyError, PlanError, io_reason, text_of
from gpupipe.integers import is_integer, plain
from gpupipe.random import LAW
from gpupipe.threads import DaemonPool
from gpupipe.tools.pack.budget import SAMPLE, decoded_within
from gpupipe.tools.pack.find import find_inputs
from gpupipe.tools.pack.inputs import Inputs, Progress
from gpupipe.tools.pack.journal import SCRATCH, Finished, Journal, Skipped, opened
from gpupipe.tools.pack.shard import records_in, write_shard
from gpupipe.tools.pack.work import Record, Work, refusal

from ...classes import dataclass

__all__ = ["Packed", "Skipped", "pack"]

_FORMAT = 1
"""Version of what is written; a folder that another version began is refused."""

_TOGETHER = 4
"""Images that a thread prepares at a time: handing one over costs 50 us, of the 3 ms that shrinking takes."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Packed:
    """What `pack` wrote.

    Attributes:
        files: the shards, in order.
        records: in all of them.
        bytes: of all of them.
        decoded: how many of the records hold a decoded image.
        skipped: the images that cannot be decoded and were left out.
        classes: the number of classes; 0 for images without labels.
        class_names: by label, where the source has names.
        left_out: how many other files and folders the source has, by what they are.
        found: how many of the shards were finished by an earlier run.
    """

    files: tuple[Path, ...]
    records: int
    bytes: int
    decoded: int
    skipped: tuple[Skipped, ...]
    classes: int
    class_names: tuple[str, ...]
    left_out: Mapping[str, int]
    found: int


def pack(  # noqa: PLR0913 : those of the command
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    shards: int,
    *,
    resize_shorter: int | None = None,
    quality: int | None = None,
    decoded: bool = False,
    budget: int | None = None,
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
        source: images, alone, in a folder or in class directories; tar archives; Parquet files. See `find_inputs`.
        out: a folder, new or empty, or one that an equal call began.
        shards: number of files, 1 to the number of images; their numbers of images differ by at most one.
        resize_shorter: pixels of the shorter side to which larger images are shrunk; None stores all as they are.
        quality: of the JPEGs that are encoded then, 1..100; None for 90.
        decoded: store every image decoded and upright, as a BMP of 24 bits, or of 8 bits if it is gray: no later epoch
            decodes. Transparency is dropped, and the lower bits of 16.
        budget: bytes that all shards may take. As many images are decoded as fit, the same part of each shard, and the
            others are JPEGs, as without `decoded`. How many that are is computed from both forms of a sample of 256
            images, with a margin of two standard errors: about one data set in 40 takes a little more. It needs
            `resize_shorter`, as images of both forms have to be upright.
        seed: decides the order, 0..2**64-1.
        name: of the files, ``train-00000-of-00008.tfrecord``.
        on_error: "raise" ends at an image that cannot be decoded, "skip" leaves it out.
        workers: threads that prepare images; None for as many as there are CPUs.
        image_column: of Parquet files, see `find_parquet`.
        label_column: of Parquet files.
        progress: called as (task, done, total); a total of 0 is not known.

    Raises:
        PlanError: an argument, the source or the folder is wrong, or the images do not fit into the budget; no shard
            was written.
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
    shards, seed, quality, resize_shorter, workers, budget = map(
        plain, (shards, seed, quality, resize_shorter, workers, budget)
    )
    _check_form(resize_shorter, quality, decoded, budget)
    _check_arguments(shards, resize_shorter, quality, budget, seed, name, on_error, workers)
    quality = None if decoded and budget is None else 90 if quality is None else quality
    source, out, told = os.fspath(source), _folder(source, out), progress or (lambda task, done, total: None)
    _check_apart(source, out)
    inputs = find_inputs(source, image_column, label_column, told)
    if shards > len(inputs):
        most = f"1 to {len(inputs)} shards for {len(inputs)} images" if len(inputs) > 1 else "1 shard for 1 image"
        raise PlanError(f"pack needs {most}, got {shards}")
    paths = tuple(out / f"{name}-{shard:05d}-of-{shards:05d}.tfrecord" for shard in range(shards))
    options = {"--shards": shards, "--seed": seed, "--name": name, "--resize-shorter": resize_shorter}
    options |= _form(resize_shorter, quality, decoded, budget)
    with opened(out, _plan(source, inputs, options)) as journal:
        found = _still_there(journal, paths, on_error)
        work = Work(inputs, shards, seed, resize_shorter, quality, on_error == "skip", decoded)
        try:
            with _said_when_full(out, journal, shards):
                _write(work, journal, paths, found, workers or cpu_count(), told, budget)
        finally:
            (out / SCRATCH).unlink(missing_ok=True)
        done = [journal.finished[shard] for shard in range(shards)]
    return _packed(paths, done, inputs, len(found), quality is None)


def _packed(paths: tuple[Path, ...], done: Sequence[Finished], inputs: Inputs, found: int, all_decoded: bool) -> Packed:
    return Packed(
        paths,
        sum(shard.records for shard in done),
        sum(shard.bytes for shard in done),
        sum(shard.records if all_decoded else shard.decoded for shard in done),
        tuple(one for shard in done for one in shard.skipped),
        len(inputs.classes) or len(set(inputs.labels or ())),
        tuple(inputs.classes),
        inputs.left_out,
        found,
    )


def _form(shorter: int | None, quality: int | None, decoded: bool, budget: int | None) -> dict[str, Any]:
    """The options that say how images are stored, those that were given or matter."""
    given = {
        "--decoded": decoded or None,
        "--quality": None if shorter is None else quality,
        "--budget": budget,
    }
    return {option: value for option, value in given.items() if value is not None}


def _check_form(shorter: Any, quality: Any, decoded: bool, budget: Any) -> None:
    if decoded and quality is not None and budget is None:
        raise PlanError(f"pack needs --quality or --decoded, got both: a BMP has no quality, got {quality!r}")
    if budget is not None and not decoded:
        raise PlanError(f"pack needs --decoded for --budget, which limits how many images are, got {budget!r} alone")
    if budget is not None and shorter is None:
        raise PlanError(
            "pack needs --resize-shorter for --budget: images stored as they are would differ in orientation from "
            "decoded ones"
        )


def _check_arguments(
    shards: Any, shorter: Any, quality: Any, budget: Any, seed: Any, name: str, on_error: str, workers: Any
) -> None:
    for option, value, least, most in (
        ("--shards", shards, 1, 99_999),
        ("--resize-shorter", 1 if shorter is None else shorter, 1, 65_500),
        ("--quality", 1 if quality is None else quality, 1, 100),
        ("--budget", 1 if budget is None else budget, 1, 2**63 - 1),
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
            raise refusal(DecodeError(f"an earlier run left it out: {one.reason}", file=one.image))
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


def _write(
    work: Work,
    journal: Journal,
    paths: Sequence[Path],
    found: frozenset[int],
    workers: int,
    progress: Progress,
    budget: int | None,
) -> None:
    """Write the shards that are not there, one after another, while threads prepare the images that come next."""
    missing = [shard for shard in range(len(paths)) if shard not in found]
    if missing:
        read = work.inputs.reader(paths[0].parent / SCRATCH, progress)
        if budget is not None:
            if journal.decoded is None:
                journal.note(_fitting(work, read, workers, progress, budget))
            work.decoded = journal.decoded or 0
        left, total = {shard: len(work.places_of(shard)) for shard in missing}, len(work.inputs)
        done = total - sum(left.values())
        chunks = _chunked(map(work.places_of, missing))
        with closing(_in_order(partial(work.prepared, read), chunks, workers)) as prepared:
            for shard in missing:
                skipped: list[Skipped] = []
                tell = partial(_tell, progress, done, total)
                forms: list[bool] = []
                good = _good(islice(prepared, left[shard]), skipped, tell)
                count, size = write_shard(paths[shard], _noted(good, forms))
                journal.add(Finished(shard, count, size, tuple(skipped), sum(forms)))
                done += left[shard]


def _fitting(work: Work, read: Callable[[int], bytes], workers: int, progress: Progress, budget: int) -> int:
    """How many images are decoded so that all take no more than the budget, by the first ones in their order.

    Raises:
        PlanError: encoded, all images may take more already.
    """
    count = len(work.inputs)
    places = range(min(SAMPLE, count))
    sizes: list[tuple[int, int]] = []
    with closing(_in_order(partial(work.measured, read), _chunked([places]), workers)) as measured:
        for one in measured:
            sizes.append(one)
            progress("measuring", len(sizes), len(places))
    return decoded_within(budget, sizes, count)


def _chunked(parts: Iterable[range]) -> Iterator[range]:
    return (places[i : i + _TOGETHER] for places in parts for i in range(0, len(places), _TOGETHER))


def _tell(progress: Progress, before: int, total: int, count: int) -> None:
    progress("packing", before + count, total)


def _good(prepared: Iterable[T | Skipped], skipped: list[Skipped], tell: Callable[[int], None]) -> Iterator[T]:
    """Yield what is no `Skipped`, and append what is one; `tell` is called with the number of both."""
    for count, one in enumerate(prepared, 1):
        tell(count)
        if isinstance(one, Skipped):
            skipped.append(one)
        else:
            yield one


def _noted(records: Iterable[Record], forms: list[bool]) -> Iterator[bytes]:
    """Yield the bytes of records, and note in `forms` whether each image is decoded."""
    for data, decoded in records:
        forms.append(decoded)
        yield data


def _in_order(prepare: Callable[[range], list[T]], chunks: Iterator[range], workers: int) -> Generator[T, None, None]:
    """Prepare chunks of images in threads, a bounded number ahead, and yield the results in order."""
    pool = DaemonPool(workers, "gpupipe-pack")
    running: deque[Future[list[T]]] = deque()
    try:
        for chunk in chunks:
            running.append(pool.submit(prepare, chunk))
            if len(running) > 2 * workers:
                yield from running.popleft().result()
        while running:
            yield from running.popleft().result()
    finally:
        pool.close(wait=True)  # not for long: a thread may wait for a disk that does not answer
