"""options: how a chain runs, not what it means (except for `seed`, `on_error` and `lost_files`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from enum import Enum
from itertools import count
from typing import Any, Final, Literal

from .brief import brief, digits, fields_in_brief
from .classes import dataclass
from .cpus import cpu_share
from .errors import PlanError, PlanTypeError, shown_name
from .integers import is_integer, plain
from .tuned import Numbers, tuned_numbers
from .urls import is_url

__all__ = ["ALL", "AUTOTUNE", "All", "Options", "set_seed"]

AUTOTUNE = -1
"""Let gpupipe choose the number, of readers, threads, prefetched elements, while the chain runs: `Options.autotune`."""


class All(Enum):
    """The type of `ALL`."""

    ALL = "ALL"

    def __repr__(self) -> str:
        return "gpupipe.ALL"


ALL: Final = All.ALL
"""The whole dataset, where a number of elements is asked for: ``shuffle(gp.ALL)``."""

MAX_PIXELS = 178_956_970
"""Pillow's own limit for one image."""

MAX_RECORD = 2 << 30
"""Bytes of one record: what a `tf.train.Example` can have at most."""

_LONGEST_TIMEOUT = 1_000_000
"""Seconds: eleven days. Locks cannot wait longer than some hundred years."""

_MOST_THREADS = 1 << 16
"""All are created at the start."""

_LARGEST_INTEGER = (1 << 63) - 1
"""The limit of all other integers except seeds: a signed integer of 64 bits."""

_LONGEST_SIDE = 65_535
"""Pixels, as in a JPEG, the only format that a GPU decodes."""

_MOST_PREALLOCATED = ((1 << 31) - 1) // 3
"""Pixels, 3 bytes each, whose bytes a signed integer of 32 bits can count."""

_LONGEST_ORDINAL = 9
"""Digits of a GPU's ordinal: DALI's has 32 bits."""

_SEED: list[int] = [0]

_CALLS: list[Iterator[int]] = []
"""Numbers the calls of random ops outside of chains, once `set_seed` was called."""


def set_seed(seed: int) -> None:
    """Set the seed of every chain whose `Options.seed` is not set. It is 0 until this is called.

    From here on random ops that are called on arrays, outside of a chain and without a seed of their own, draw the same
    numbers in the same order; before, they draw others in each process.

    Args:
        seed: any integer; its low 64 bits are folded into 32.
    """
    number = plain(seed)
    if not is_integer(number):
        raise PlanTypeError(f"set_seed needs an integer, got {brief(seed)}")
    _SEED[0] = number & 0xFFFF_FFFF_FFFF_FFFF
    _CALLS[:] = [count()]


def eager_call() -> tuple[int, int] | None:
    """The seed, and the number of a call of a random op outside of chains since `set_seed`; None before it."""
    return (_SEED[0], next(_CALLS[0])) if _CALLS else None


def global_seed() -> int:
    """The seed of chains without `Options.seed`."""
    return _SEED[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of a chain; None means "not set here". `Dataset.with_options` merges them; the last value wins.

    Attributes:
        device: ``"auto"``, ``"cpu"``, ``"gpu"`` or ``"gpu:1"``. "auto" is the GPU if there is one and DALI can be
            imported, else the CPU. "gpu" without a number is that of this rank, as torchrun, srun, Open MPI, Intel MPI
            or MPICH set it (`LOCAL_RANK` first), else torch's current device, else 0.
        backend: ``"auto"``, ``"dali"``, ``"numpy"`` or ``"fast"``, which is "numpy" with the libraries of the extra
            `fast`: OpenCV and cykooz-resizer. "auto" is DALI on a GPU; on the CPU it is "fast" where that is installed
            and `threads` is at most 6 or DALI is not installed, else DALI where a stage decodes images, else NumPy.
        threads: CPU threads that decode and transform, 1 to 65,536; default: the CPUs this process may use, of which it
            takes its share where a launcher started several ranks on this machine, a cgroup has a quota, or Ray gave it
            a number; `explain()` says which. By default DALI on the CPU gets one more, as its threads wait for one
            another at the end of each op; on a GPU each stage gets at most 16.
            While a chain runs on "fast", OpenCV starts none of its own in this process (`cv2.setNumThreads`).
            `AUTOTUNE` starts with as many; if this is set, the threads of all such steps together never exceed it (one
            for each step apart), else each step may have 64 (or a thread for each CPU, if there are more), as threads
            that wait need no CPU.
        seed: seeds every shuffle and every random op of the chain (64 bits, folded into 32); default: the seed of
            `set_seed`, else 0.
        deterministic: False lets `interleave` and parallel Python maps yield what is ready first; default True. A chain
            whose steps hold such elements has no `state_dict`, except for records in a shuffle buffer.
        on_error: what happens to a bad element: ``"raise"`` (default) raises once and continues like "skip",
            ``"skip"`` leaves it out and fills the batch from what follows, ``"replace"`` repeats the last good element
            in its place. Errors are raised when they are found: in one batch those found on the host come before those
            that only a decoder finds, whatever their order in the file. If elements do not stack, each of them is good:
            their batch as a whole is the bad element, listed by the first row that differs.
        lost_files: what happens to a file that cannot be read to its end, where the number of elements that this hides
            is unknown: it is missing, or reading fails in all of six tries (see `read_timeout`), and there is no index
            of it. ``"raise"`` (default) raises whatever `on_error` says, and the next `next` continues with what
            follows the file. ``"skip"`` leaves the rest of the file out: counted once, listed and logged like a bad
            element, but not replaced; counts change then, also under "replace". A cache keeps no pass that lost a file.
            Where an index, a header or a fixed length locates the records, each of them is a bad element.
        resume_without: what a resume does where a step needs the value of an element that was good when the state was
            taken and fails now that it is made again, as a key, a condition or a sum. False (default) raises a
            `StateError` that names it; True goes on without it, and counts, lists and logs it: then what follows may
            differ from what would have followed.
        strict_states: False goes on from a state that is refused otherwise, as after other steps, files or options, or
            one of another version: in its epoch, after as many elements of this chain, and a warning lists what
            differs. For trainers that load states themselves; `load_state_dict(strict=)` says it for one. Default True.
        error_manifest: a file to which every bad element is appended as a line of JSON, when it is left out, replaced
            or raised: file, offset, unit, key, stage, reason, action, epoch (see `BadRecord`). Its folder must exist.
        bad_records: such a file, whose records are bad from the start: they are neither read nor decoded, and no batch
            is repaired for them. Records of a file are identified by path and offset, files that are one element by
            path and key; elements of arrays and generators are tried again, since others may have their indices. It may
            be the same file as `error_manifest`, to which new records are then added.
        max_bad: how many bad elements may be left out or replaced; one more ends the iterator with `TooManyBadError`.
            An integer >= 0 counts all of them; a float from 0.0 to 1.0 is their share of the last 10,000 elements, of
            which 100 are always allowed. Default: any number.
        max_pixels: images with more pixels (height * width) are bad elements, found before they are decoded; default
            178,956,970, Pillow's own limit.
        max_record: bytes that one record may have, a member of a sample, or a file that `read_file` reads; a longer one
            is a bad element, found before memory is taken for it. Default 2 GiB, the most that a `tf.train.Example` can
            have.
        host_memory: bytes that queues of finished and waiting batches may hold on the host; default 1 GiB. Nor does
            `AUTOTUNE` choose numbers whose elements, as measured, hold more.
        device_memory: bytes of decoded images that one run of the graph may hold on its device; a batch that needs
            more runs in parts; default 4 GiB. A ``cache(device="gpu")`` may take as much, unless it says how much.
        verify: of the images that DALI decodes, one in this many is decoded again on the host and compared: in each
            tile of 8x8 pixels the mean difference may be 8 of 255 (16 with ``jpeg_fancy_upsampling=False``), which
            other inverse transforms and roundings stay below and wrong images do not. Which images depends on seed,
            epoch and identity: the same in every run, also after resuming, and others in the next epoch. 1 compares
            all, 0 (default) none; at most 2**64 - 1. The output of the decoder is compared, before any crop (or the
            decoded region alone). Each costs the host one decoding (with 1000 some microseconds an image). On a GPU
            every row is checked whatever this is, in some microseconds: its size, the mean of the first 8x8 pixels of
            a JPEG, and whether all or part of it is black. The host decodes suspicious rows, which few photographs
            are; if many are suspicious and prove right, at most 1 for every 256 rows, about a millisecond, and the log
            says so once a run; see `gpupipe.transform.dali.proof`.
        wrong_pixels: what happens to an image whose pixels differ from the host's: ``"raise"`` (default) ends the run
            with a `PixelError` that names the image, the card and the versions, whatever `on_error` says, as the data
            is good; ``"warn"`` logs the same and delivers the image as it is.
        hw_decoder_load: the share of a batch's JPEGs (0.0 to 1.0) that a GPU's hardware decoder gets, if it has one;
            CUDA decodes the others. Default 1.0: then no bit of an image depends on its index in the batch; of 0.65 an
            H200 moved by 3 of 255. Which share is fastest depends on the card (0.75 on an A100; on an H200 1.0 is
            within 7 % of the best, with the least CPU time). Without a GPU this and the next two do nothing.
        jpeg_fancy_upsampling: False lets a GPU repeat the colours of a JPEG with subsampled chroma, without libjpeg's
            interpolation; that is faster, and differs along edges of colours by tens of 255. Default True.
        approximate_decode: True decodes a JPEG at 1/2, 1/4 or 1/8 of its size if it, or a window of it, is then resized
            to much less, and nothing else uses the image: row by row, the smallest that has 1.25 pixels a side for each
            one of the result, or exactly if there is none. Then the host decodes, also for a GPU. Windows, sizes, and
            which images are bad stay the same. Pixels do not, see the guide to performance: photographs of 3 megapixels
            at 224x224 differ by 0.6 of 255 in the mean, by 4.0 without antialias. "nearest" and "area" are left alone.
            Default False.
        strict_images: True makes JPEGs bad elements whose compressed data is damaged: libjpeg fills what it cannot read
            with gray or with noise, and goes on with a warning. The host decodes the gray of each JPEG once more for
            that. Default False: such images are delivered; ``gpupipe verify --decode`` lists them.
        preallocate: (height, width) in pixels of the largest images expected: GPU decoders allocate buffers of that
            size at the start instead of growing them. Each is at most 65,535, as in a JPEG, and their product at most
            715,827,882: DALI's sizes have 32 bits. Changes no result. Default: buffers grow.
        read_timeout: seconds > 0 that one request to a file's storage may take (to open it, or to read one block or
            record); then `close()` does not wait for reads either. Each request costs a hand-over to another thread
            and back, and a copy. Default: no limit, as a file system reports failures itself, unless it is mounted to
            wait forever. A request that takes too long, or fails temporarily (a server answers 429 or 5xx, a
            connection breaks, a disk reports EIO), is tried up to six times, after 0.1, 0.2, ... 1.6 s, or as long as
            the server asks for, up to 30 s; a missing or forbidden file fails at once.
        persistent_workers: whether the processes of ``map(workers="process")`` wait for the next iterator and end with
            the dataset; False starts new ones in each iterator. Default True: a process that imports PyTorch takes
            seconds to start. Waiting processes use no CPU; `release_memory` ends them.
        compare_files: what states say of files, and `load_state_dict` compares. Names and their order always; "names"
            asks nothing of any file. "read", the default: the sizes of files that a step reads, each looked at once for
            a chain. Texts that no step reads (captions, paths for a function of yours) are names only, and so are
            those that such a function or a server has, until gpupipe has read them in this epoch, in this process.
            "sizes": of every text that may name a file. "contents": with digests of them, so that a file of the same
            name and size with other contents is refused; each process reads all files once for that.
        signing_parameters: names of parameters that sign the URLs of this chain or let them expire, beside those of
            Amazon, Google, Azure and CloudFront and ``token``: ``("auth", "x-ours-*")``, in upper or lower case, ``*``
            for any end. A file whose URL differs in them alone is the same file for random numbers, states, caches and
            `bad_records`; any other parameter tells files apart. Default: no others.
        autotune: whether the numbers that `AUTOTUNE` stands for change while the chain runs, by what is measured: the
            threads of Python maps, `from_indexable` and `interleave`, and the elements of a `prefetch` on the host.
            No element, order or state depends on them. `iterator.stats()` has the numbers, and why. Default True.
        tuned: numbers to start with, by step: ``{"map(load) [Python]": 8}``, as in ``iterator.stats().tuned``; see
            `from_tuned`. A step that stands on several lines is named with its line: ``"map(load) [Python] at
            train.py:12"``. Names of no step are logged.
        disabled_rules: names of optimizer rules to disable, see `explain()`. Without "deferral" every traced map is
            computed in its place: an element whose image is bad fails even if a filter would drop it unseen.
            "deferral" and "map_and_batch" stay on under ``on_error="replace"``, as replacements get draws of their own.
    """

    device: str | None = None
    backend: Literal["auto", "dali", "fast", "numpy"] | None = None
    threads: int | None = None
    seed: int | None = None
    deterministic: bool | None = None
    on_error: Literal["raise", "skip", "replace"] | None = None
    lost_files: Literal["raise", "skip"] | None = None
    resume_without: bool | None = None
    strict_states: bool | None = None
    error_manifest: str | os.PathLike[str] | None = None
    bad_records: str | os.PathLike[str] | None = None
    max_bad: float | None = None
    max_pixels: int | None = None
    max_record: int | None = None
    host_memory: int | None = None
    device_memory: int | None = None
    verify: int | None = None
    wrong_pixels: Literal["raise", "warn"] | None = None
    hw_decoder_load: float | None = None
    jpeg_fancy_upsampling: bool | None = None
    approximate_decode: bool | None = None
    strict_images: bool | None = None
    preallocate: tuple[int, int] | None = None
    read_timeout: float | None = None
    persistent_workers: bool | None = None
    compare_files: Literal["names", "read", "sizes", "contents"] | None = None
    signing_parameters: tuple[str, ...] | None = None
    autotune: bool | None = None
    tuned: Mapping[str, int] | Numbers | None = None
    disabled_rules: tuple[str, ...] | None = None

    __repr__ = fields_in_brief

    def __post_init__(self) -> None:
        for name, checked in _CHECKS.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, checked(f"Options.{name}", value))

    @classmethod
    def from_tuned(cls, found: Any) -> Options:
        """Options that use the numbers which `AUTOTUNE` found in another run, and keep them.

        With ``Options(tuned=found)`` they are only the start.

        Args:
            found: an iterator, what its `stats()` returned, or ``stats().tuned``: a dict, also from JSON.

        Raises:
            PlanTypeError: something else.
        """
        stats = found.stats() if callable(getattr(found, "stats", None)) else found
        return cls(tuned=tuned_numbers("Options.tuned", getattr(stats, "tuned", stats)), autotune=False)

    def merge(self, other: Options) -> Options:
        """These options, overridden by whatever `other` sets."""
        given = {f.name: getattr(other, f.name) for f in fields(other) if getattr(other, f.name) is not None}
        return replace(self, **given)

    def resolve(self) -> Settings:
        """Fill in every default."""
        cpus = cpu_share()[0]
        return Settings(
            device=self.device or "auto",
            backend=self.backend or "auto",
            threads=self.threads or cpus,
            dali_threads=self.threads or cpus + 1,
            gpu_threads=self.threads,
            seed=(global_seed() if self.seed is None else self.seed) & 0xFFFF_FFFF_FFFF_FFFF,
            deterministic=self.deterministic is not False,
            on_error=self.on_error or "raise",
            lost_files=self.lost_files or "raise",
            resume_without=self.resume_without is True,
            strict_states=self.strict_states is not False,
            error_manifest=None if self.error_manifest is None else os.path.abspath(self.error_manifest),
            bad_records=None if self.bad_records is None else os.path.abspath(self.bad_records),
            max_bad=self.max_bad,
            max_pixels=self.max_pixels or MAX_PIXELS,
            max_record=self.max_record or MAX_RECORD,
            host_memory=self.host_memory or 1 << 30,
            device_memory=self.device_memory or 4 << 30,
            verify=self.verify or 0,
            wrong_pixels=self.wrong_pixels or "raise",
            decoding=DecoderOptions(
                hw_decoder_load=1.0 if self.hw_decoder_load is None else float(self.hw_decoder_load),
                jpeg_fancy_upsampling=self.jpeg_fancy_upsampling is not False,
                preallocate=self.preallocate,
                approximate_decode=self.approximate_decode is True,
                strict_images=self.strict_images is True,
            ),
            read_timeout=self.read_timeout,
            persistent_workers=self.persistent_workers is not False,
            compare_files=self.compare_files or "read",
            signing_parameters=self.signing_parameters or (),
            autotune=self.autotune is not False,
            tuned=tuned_numbers("Options.tuned", self.tuned or ()),
            tuned_threads=self.threads,
            disabled_rules=self.disabled_rules or (),
        )


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """Settings of decoders, see `Options`."""

    hw_decoder_load: float = 1.0
    jpeg_fancy_upsampling: bool = True
    preallocate: tuple[int, int] | None = None
    approximate_decode: bool = False
    strict_images: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Options with every default filled in, as a run reads them.

    If `gpu_threads` is None the ranks share the CPUs, and are counted only where there is a GPU; if `tuned_threads` is,
    nothing limits the threads of all steps with AUTOTUNE together.
    """

    device: str
    backend: str
    threads: int
    dali_threads: int
    gpu_threads: int | None
    seed: int
    deterministic: bool
    on_error: str
    lost_files: str
    resume_without: bool
    strict_states: bool
    error_manifest: str | None
    bad_records: str | None
    max_bad: float | None
    max_pixels: int
    max_record: int
    host_memory: int
    device_memory: int
    verify: int
    wrong_pixels: str
    decoding: DecoderOptions
    read_timeout: float | None
    persistent_workers: bool
    compare_files: str
    signing_parameters: tuple[str, ...]
    autotune: bool
    tuned: Numbers
    tuned_threads: int | None
    disabled_rules: tuple[str, ...]


def _one_of(*legal: str) -> Callable[[str, Any], str]:
    def checked(who: str, value: Any) -> str:
        wrong = PlanError if isinstance(value, str) else PlanTypeError  # an array is not compared
        if wrong is PlanTypeError or value not in legal:
            raise wrong(f"{who} needs one of {', '.join(map(repr, legal))}, got {brief(value)}")
        return str(value)

    return checked


def _integer(
    least: int | None = 1, largest: int | None = _LARGEST_INTEGER, hint: str = ""
) -> Callable[[str, Any], int]:
    def checked(who: str, value: Any) -> int:
        number = plain(value)
        if not is_integer(number):
            raise PlanTypeError(f"{who} needs an integer, got {brief(number)}")
        if least is not None and number < least:
            raise PlanError(f"{who} needs an integer >= {least}, got {digits(number)}")
        if largest is not None and number > largest:
            raise PlanError(f"{who} needs an integer <= {largest}, got {digits(number)}{hint}")
        return int(number)

    return checked


def _number(needs: str, kind: str, legal: Callable[[float], bool]) -> Callable[[str, Any], float]:
    def checked(who: str, value: Any) -> float:
        number = plain(value)
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise PlanTypeError(f"{who} needs {kind}, got {brief(number)}")
        if not legal(number):
            raise PlanError(f"{who} needs {needs}, got {brief(number)}")
        return number

    return checked


def _flag(who: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise PlanTypeError(f"{who} needs True or False, got {brief(value)}")
    return value


def _path(who: str, value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise PlanTypeError(f"{who} needs a path, got {brief(value)}")
    path = os.fspath(value)
    if not path or "\0" in path:
        raise PlanError(f"{who} needs the path of a file, got {brief(path)}")
    if is_url(path):
        raise PlanError(f"{who} needs a local path, got {shown_name(path)!r}")
    return path


def _device(who: str, value: Any) -> Any:
    parse_device(value)
    return value


def _names(of: str) -> Callable[[str, Any], tuple[str, ...]]:
    def checked(who: str, value: Any) -> tuple[str, ...]:
        given = isinstance(value, Iterable) and not isinstance(value, str) and getattr(value, "ndim", 1) == 1
        names: tuple[Any, ...] = tuple(value) if given else ()
        if not given or not all(isinstance(name, str) for name in names):
            raise PlanTypeError(f"{who} needs a tuple of {of}, got {brief(names if given else value)}")
        return names

    return checked


def _height_and_width(who: str, given: Any) -> tuple[int, int]:
    pair = tuple(map(plain, given)) if isinstance(given, (tuple, list)) or getattr(given, "ndim", 0) == 1 else ()
    if len(pair) != 2 or not all(is_integer(n) for n in pair):
        raise PlanTypeError(f"{who} needs (height, width) in pixels, got {brief(given)}")
    if min(pair) < 1:
        raise PlanError(f"{who} needs a height and a width >= 1, got {brief(pair)}")
    if max(pair) > _LONGEST_SIDE or pair[0] * pair[1] > _MOST_PREALLOCATED:
        raise PlanError(
            f"{who} needs a height and a width <= {_LONGEST_SIDE} of at most {_MOST_PREALLOCATED} pixels "
            f"together, got {brief(pair)}"
        )
    return pair[0], pair[1]


_SHARE = _number("a share from 0.0 to 1.0", "a share from 0.0 to 1.0", lambda n: 0 <= n <= 1)
_SECONDS = _number(
    f"seconds > 0 and <= {_LONGEST_TIMEOUT}, or None", "a number of seconds", lambda n: 0 < n <= _LONGEST_TIMEOUT
)
_MOST_BAD = _number(
    f"an integer from 0 to {_LARGEST_INTEGER}, or a share from 0.0 to 1.0",
    "a number",
    lambda n: 0 <= n <= (1 if isinstance(n, float) else _LARGEST_INTEGER),
)

_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "device": _device,
    "backend": _one_of("auto", "dali", "fast", "numpy"),
    "threads": _integer(largest=_MOST_THREADS),
    "seed": _integer(None, None),
    "deterministic": _flag,
    "on_error": _one_of("raise", "skip", "replace"),
    "lost_files": _one_of("raise", "skip"),
    "resume_without": _flag,
    "strict_states": _flag,
    "error_manifest": _path,
    "bad_records": _path,
    "max_bad": _MOST_BAD,
    "max_pixels": _integer(),
    "max_record": _integer(),
    "host_memory": _integer(),
    "device_memory": _integer(),
    "verify": _integer(0, (1 << 64) - 1, "; 0 verifies none"),
    "wrong_pixels": _one_of("raise", "warn"),
    "hw_decoder_load": _SHARE,
    "jpeg_fancy_upsampling": _flag,
    "approximate_decode": _flag,
    "strict_images": _flag,
    "preallocate": _height_and_width,
    "read_timeout": _SECONDS,
    "persistent_workers": _flag,
    "compare_files": _one_of("names", "read", "sizes", "contents"),
    "signing_parameters": _names("names of parameters"),
    "autotune": _flag,
    "tuned": tuned_numbers,
    "disabled_rules": _names("rule names"),
}
"""The check of each option."""


def parse_device(device: Any) -> tuple[str, int | None]:
    """Split a device name into its kind and ordinal: ``"gpu:1"`` -> ("gpu", 1).

    Raises:
        PlanError: for any other spelling.
    """
    if not isinstance(device, str):
        raise PlanTypeError(f'Options.device needs "auto", "cpu", "gpu" or "gpu:N", got {brief(device)}')
    kind, colon, number = device.partition(":")
    if kind in ("auto", "cpu", "gpu") and not colon:
        return kind, None
    # Superscripts are digits for Python, but not integers.
    if kind == "gpu" and number.isascii() and number.isdigit() and len(number) <= _LONGEST_ORDINAL:
        return kind, int(number)
    instead = f'; write "gpu{colon}{number}"' if kind == "cuda" else ""
    raise PlanError(f'Options.device needs "auto", "cpu", "gpu" or "gpu:N", got {brief(device)}{instead}')
