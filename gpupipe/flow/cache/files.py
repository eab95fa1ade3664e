"""files: the file form of `cache` and of `snapshot`.

A cache file is named after what its elements depend on: the content of the chain, the settings, the data files with
their sizes and times, the version of the random numbers and that of gpupipe. So it never serves elements of another
chain. It is written under a temporary name and renamed, whole, at the end of a full pass: a pass that stops early
leaves nothing, and of several writers, each with a file of its own, the last one wins. A file whose head or end is
damaged is computed again; damage found in the middle, when elements have been delivered already, costs the elements
that it hits, and the next iterator computes the file again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import weakref
import zlib
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial
from typing import Any

from ...classes import dataclass
from ...errors import DataError, GpupipeError, MissingFileError, shown_name
from ...extract.storage.at_once import versions
from ...extract.storage.temporary import TEMPORARY, commit, remove_stale, temporary
from ...log import logger
from ...options import Settings
from ...plan.cache import element_from_json, element_to_json
from ...plan.files import first_files
from ...plan.node import ElementType, Node
from ...plan.portable import Portable, portable
from ...random import LAW
from ...serial.elements_file import ElementsReader
from ...serial.elements_writer import ElementsWriter
from ...serial.structures import Malformed
from ...transform.choose import executor_of
from ...urls import identity
from ..bad.found import as_before, is_written
from ..element import BatchStream, Element
from ..own_bytes import keep
from ..run import Context, Run
from ..state.snapshot import Counted, State, fast_forward, int_part
from ..step import Running
from .memory import cache_key
from .same import read_after
from .saved import Wanted, read_elements

__all__ = ["FileCacheStore", "SavedPass", "write_to"]


_CONTENTS = "elements and which were bad"
"""Changes when files say more of their elements than those of an earlier commit."""


@dataclass(frozen=True, slots=True, eq=False)
class SavedPass:
    """A full pass in a file.

    Attributes:
        store: the store that the file belongs to.
        path: path of the file.
        element: type of the elements.
        name: the key of the contents.
        bad: the elements that were bad when it was filled; None if not all are known.
        fill: identifies the file.
    """

    store: FileCacheStore
    path: str
    element: ElementType
    name: str
    bad: list[Any] | None
    fill: int = 0

    @property
    def label(self) -> str:
        """The cache, for messages."""
        return self.store.label

    def kept(self, at: Context) -> Iterator[Element]:
        """Iterate over the elements with the keys that they have in the cache."""
        return self.read(at, partial(self.store.spoil, self.path))

    def open(self, at: Context, state: State) -> Running:
        """Iterate over the elements, or over those after a state, with the keys of the context `at`."""
        read_after(self, at, state)
        return as_before(at, None, _Reading(self, at, state))

    def read(self, at: Context, spoil: Callable[[], None]) -> Iterator[Element]:
        """Iterate over the elements with the keys of a context; `spoil` is called where they are damaged."""
        return read_elements(self.path, self.store.compression, at, Wanted(self.element), spoil, self.store.method)


class _Reading(Counted):
    def __init__(self, kept: SavedPass, at: Context, state: State) -> None:
        def spoil() -> None:
            at.run.bad.found.damaged((at.drawing.key, kept.name), kept.fill)
            kept.store.spoil(kept.path)

        super().__init__(kept.read(at, spoil))
        if state is not None:
            fast_forward(iter(self), int_part(state, "n"), at)

    def snapshot(self) -> State:
        """Count the elements given."""
        return {**super().snapshot(), "source": None}


@dataclass(eq=False)
class FileCacheStore:
    """The files of a `cache` with a file name, one for each combination of settings and data.

    Attributes:
        path: the user's path, absolute.
        plan: the input of the cache as the user wrote it.
        version: version of gpupipe.
        method: the method that made the store, for messages.
        folder: each file lies in a folder of its own (`snapshot`).
        compression: "" or "GZIP".
        unkept: of passes that were resumed and so kept nothing: the elements that were bad, as in `SavedPass`.
    """

    path: str
    plan: Node
    version: str
    method: str = "cache"
    folder: bool = False
    compression: str = ""
    unkept: dict[Any, list[Any]] = field(default_factory=dict)

    _portable: Portable | None = None
    _signing: tuple[str, ...] = ()
    _last: tuple[Settings, str] | None = None
    _bad: set[tuple[str, int, int, int]] = field(default_factory=set)
    _logged: set[str] = field(default_factory=set)
    _private: dict[str, str] = field(default_factory=dict)
    _warned: bool = False

    @property
    def label(self) -> str:
        """What it is, for messages."""
        return f"{self.method} in {shown_name(self.path)}"

    def key(self, settings: Settings) -> str:
        """Hash what the elements depend on; computed once for each iterator, which has its own Settings object."""
        last = self._last
        if last is None or last[0] is not settings:
            self._last = last = settings, self._key(settings)
        return last[1]

    pass_name = key

    def is_outdated(self, settings: Settings) -> bool:
        """Whether the data files are others by now than those that `key` looked at."""
        return self._key(settings) != self.key(settings)

    def _key(self, settings: Settings) -> str:
        signing = settings.signing_parameters
        if self._portable is None or self._signing != signing:
            self._signing, self._portable = signing, portable(self.plan, signing=signing)
        chain = self._portable
        parts = [
            self.version,
            _CONTENTS,
            str(LAW),
            chain.digest.hex(),
            repr(cache_key(settings)),
            executor_of(self.plan, settings, opaque=True),
        ]
        of_size_alone: list[str] = []
        for path, found in zip(chain.files, versions(chain.files), strict=True):
            if isinstance(found, GpupipeError):  # a missing file becomes an element's error; or the text names no file
                parts.append(f"{identity(path, signing)} {type(found).__name__}")
            else:
                parts.append(f"{identity(path, signing)} {found[0]} {found[1]}")
                if found[1] == str(found[0]):
                    of_size_alone.append(path)
        if of_size_alone and not self._warned:
            self._warned = True
            logger.warning(
                "%s(%r): the server of %s%s tells neither an ETag nor a time: a change of content that keeps the size "
                "cannot be seen, and the elements from before it would be given; remove the files here after one",
                self.method,
                self.path,
                shown_name(of_size_alone[0]),
                " and others" if len(of_size_alone) > 1 else "",
            )
        if first_files(self.plan):  # the elements are the names themselves: signatures that expired must not be kept
            parts += [path for path in chain.files if identity(path, signing) != path]
        return hashlib.blake2b("\n".join(parts).encode(errors="surrogateescape"), digest_size=8).hexdigest()

    def file(self, settings: Settings) -> str:
        """Return the path of the file for these settings."""
        key = self.key(settings)
        if self._portable is not None and self._portable.private is not None:
            if key not in self._private:
                path = self._private.setdefault(key, temporary(self._named(key), "private"))
                weakref.finalize(self, _remove, path, os.getpid())
            return self._private[key]
        return self._named(key)

    def _named(self, key: str) -> str:
        end = ".gz" if self.compression else ""
        return os.path.join(self.path, key, f"elements{end}") if self.folder else f"{self.path}-{key}.elements{end}"

    def find(self, settings: Settings) -> SavedPass | None:
        """Return the file for these settings, or None if there is no complete one."""
        path = self.file(settings)
        try:
            status = os.stat(path)
        except OSError:
            return None
        if _file_of(path, status) in self._bad:
            return None
        try:
            reader = ElementsReader(path, self.compression)
            try:
                bad, key = reader.check_end(), self.key(settings)
                if reader.head.get("key") != key:
                    raise Malformed("the file belongs to another chain")
                if bad is not None and not is_written(bad):
                    raise Malformed("it does not say which elements were bad")
                return SavedPass(
                    self, path, element_from_json(reader.head.get("element")), key, bad, _number_of(path, status)
                )
            finally:
                reader.close()
        except (DataError, Malformed) as error:
            logger.warning("%s: %s is computed again: %s", self.method, shown_name(path), error)
            self.spoil(path)
            return None

    def damaged(self, path: str, element: ElementType, settings: Settings) -> SavedPass:
        """A file that was found damaged, for another pass of the same iterator: most of its elements can be read."""
        return SavedPass(self, path, element, self.key(settings), None, _number_of(path, os.stat(path)))

    def spoil(self, path: str) -> None:
        """Remember that a file is damaged, until another one replaces it."""
        with contextlib.suppress(OSError):
            status = os.stat(path)
            self._bad.add(_file_of(path, status))

    def keeper(self, run: Run, fills: bool) -> Callable[[Element], Element]:
        """What is done to each element of a pass before it is kept and passed on."""
        return keep

    def start(self, run: Run, element: ElementType) -> _File:
        """Start a pass that writes the file."""
        return _File(self, run, element)

    def writer(self, settings: Settings, element: ElementType) -> ElementsWriter:
        """The writer of a new temporary file for these settings.

        Raises:
            MissingFileError: the folder does not exist.
            OSError: the file cannot be written.
        """
        path = self.file(settings)
        folder, base = os.path.split(self.path)
        if self.folder:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        elif not os.path.isdir(folder):
            raise MissingFileError(
                f"{self.method} needs a folder to write to; create it", file=folder, stage=self.method
            )
        else:
            remove_stale(folder, base)
        if self.folder:
            remove_stale(os.path.dirname(path), "elements")
        self._log_once(path, folder, base)
        head = {"key": self.key(settings), "element": element_to_json(element)}
        return ElementsWriter(temporary(path), head, self.compression, told=True)

    def _log_once(self, path: str, folder: str, base: str) -> None:
        """Log what a user may not expect of this file."""
        if path in self._logged:
            return
        self._logged.add(path)
        if self._portable is not None and self._portable.private is not None:
            logger.warning(
                "%s(%r): only this process can use the file, because the chain holds %s, which other processes cannot "
                "compare; use functions and plain data instead",
                self.method,
                self.path,
                self._portable.private,
            )
        if self.folder:
            others = [name for name in os.listdir(self.path) if name != os.path.basename(os.path.dirname(path))]
        else:
            here = os.path.basename(path)
            others = [n for n in os.listdir(folder) if n.startswith(f"{base}-") and ".elements" in n and n != here]
        if [name for name in others if not TEMPORARY.search(name)]:
            logger.info(
                "%s(%r): the files there hold elements of another chain, other settings or older data; this chain gets "
                "a file of its own, %s",
                self.method,
                self.path,
                path,
            )


def _file_of(path: str, status: os.stat_result) -> tuple[str, int, int, int]:
    """Identify a file, so that one which replaces it within the same tick of the clock differs."""
    return path, status.st_ino, status.st_size, status.st_mtime_ns


def _number_of(path: str, status: os.stat_result) -> int:
    """A number for what `_file_of` returns; not 0."""
    return 1 + zlib.crc32(repr(_file_of(path, status)).encode())


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            os.remove(path)


def write_to(writer: ElementsWriter, element: Element) -> None:
    """Write one element with its identity and, for a batch, those of its rows.

    Raises:
        PlanTypeError: files cannot hold one of the leaves.
        OSError: the file cannot be written.
    """
    value, stream, position = element
    rows = stream.rows if isinstance(stream, BatchStream) else None
    writer.write(value.error if type(value) is not tuple else value, stream, position, rows)


class _File:
    """The file that a pass writes; only a pass that reaches the end puts it in place."""

    def __init__(self, store: FileCacheStore, run: Run, element: ElementType) -> None:
        self._store, self._who = store, store.method
        self._path = store.file(run.settings)
        self._run = run
        self._writer: ElementsWriter | None = None
        run.on_close(self.close)  # before there is a file, so that an interrupt leaves none
        try:
            self._writer = store.writer(run.settings, element)
            self._writer.begin()
        except OSError as error:
            if isinstance(error, DataError):
                raise
            self._give_up(error)

    def add(self, element: Element) -> None:
        """Write an element, unless the file was given up."""
        writer = self._writer
        if writer is None:
            return
        try:
            write_to(writer, element)
        except OSError as error:
            if self._writer is writer:  # otherwise another thread has closed this pass and removed the file
                self._give_up(error)
        except GpupipeError:
            self.discard()
            raise

    def finish(self, bad: list[Any] | None) -> None:
        """Put the file in place; `bad` as in `SavedPass`."""
        if self._writer is not None:
            try:
                if self._store.is_outdated(self._run.settings):
                    logger.warning(
                        "%s: the data files changed during the pass, %s is not kept; the next pass starts again",
                        self._who,
                        shown_name(self._path),
                    )
                    self.discard()
                    return
                self._writer.finish(bad)
                commit(self._writer.path, self._path)
                self._writer = None
            except OSError as error:
                self._give_up(error)
        self._run.forget(self.close)

    def _give_up(self, error: OSError) -> None:
        """Continue the pass without the file: a full disk must not end a training run."""
        logger.warning(
            "%s: %s cannot be written, this pass continues without it: %s", self._who, shown_name(self._path), error
        )
        self.discard()

    def discard(self) -> None:
        """Remove the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.discard()
        self._run.forget(self.close)

    def close(self, wait: bool = True) -> None:
        """Remove the file of a partial pass, and log it."""
        if self._writer is not None:
            logger.info(
                "%s: a pass stopped before its end, %s is not kept; the next pass starts again",
                self._who,
                shown_name(self._path),
            )
        self.discard()
