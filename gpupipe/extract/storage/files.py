"""files: access to files by name: their size, and ranges of their bytes.

No memory maps: a cold page would stop every Python thread, and a file truncated under a map kills the process. A
range is one `pread`; open descriptors are an LRU, since a data set has more shards than a process may have files.

Only regular files are read: opening a FIFO waits for a writer, perhaps forever, and a device may have no end. Every
request goes through `waiting.bounded`: it is refused once the run is closed, and may time out (`read_timeout`).
Transient failures are retried here (see `retry`), not in the readers.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import NamedTuple, Protocol

from gpupipe.errors import DataError, DirectoryError, MissingFileError, RecordError, shown_line
from gpupipe.extract.storage.forking import renew_lock
from gpupipe.extract.storage.retry import again, asked
from gpupipe.extract.storage.waiting import FILES, LIMITS, bounded
from gpupipe.timing import reading

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

__all__ = ["LOCAL", "REMEMBERED", "LocalStorage", "OpenFile", "Storage", "Version", "changed", "short", "translated"]

REMEMBERED = 65_536  # tags kept of files whose descriptor is closed; bounded, since a folder may hold 10 M images


SAID = 4000
"""Characters of what a server says that are looked at for an error; 200 of them are shown."""


class Version(NamedTuple):
    """The size, time and inode that tell one version of a local file from another: what its tag is made of.

    Not the time of the last change of its inode, which links and permissions change.
    """

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Version:
        """The version that the system tells of."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)

    @classmethod
    def of_tag(cls, tag: str) -> Version:
        """The version of a tag. The time may be negative: before 1970."""
        size, _, rest = tag.partition("-")
        mtime_ns, _, inode = rest.rpartition("-")
        return cls(int(size), int(mtime_ns), int(inode))

    @property
    def tag(self) -> str:
        return f"{self.size}-{self.mtime_ns}-{self.inode}"


class Storage(Protocol):
    """A place for files. Every method may be called from several threads at once."""

    @property
    def random_reads(self) -> bool:
        """Whether a read at a random offset costs about as much as a sequential one."""
        ...

    @property
    def reads_ahead(self) -> bool:
        """Whether it pays to request ranges in other threads before they are needed, see `ranges_ahead`."""
        ...

    def size(self, name: str) -> tuple[int, str]:
        """Return the size in bytes, and a tag that changes when the content does."""
        ...

    def read(self, name: str, offset: int, n: int, tag: str | None = None) -> bytes:
        """Read exactly `n` bytes from `offset`; fewer raise RecordError. With `tag`, the file must still have it."""
        ...

    def readinto(self, name: str, offset: int, out: memoryview, tag: str | None = None) -> None:
        """Fill all of `out` from `offset`: `read` without a new allocation, and with the same errors."""
        ...

    def ahead(self, name: str, offset: int, n: int) -> bool:
        """Begin to read a range that is needed soon, and return at once; what fails, fails when it is read.

        Returns:
            Whether the storage can; one that cannot does nothing.
        """
        ...

    def confirm(self, name: str, tag: str) -> None:
        """Check that a file that was read still has its tag, if that costs no request; else raise RecordError."""
        ...


# A FIFO or a terminal may just have replaced the file: opening it must neither block nor make it our controlling one.
_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


class _Descriptor:
    """An open file, closed when its last user drops it, so never while it is being read."""

    __slots__ = ("fd", "size", "tag")

    def __init__(self, name: str) -> None:
        self.fd = -1
        self.fd = os.open(name, _FLAGS)
        status = os.fstat(self.fd)
        _check_regular(status, name)
        self.size, self.tag = status.st_size, Version.of(status).tag

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:  # `os` is None once Python ends
        if self.fd >= 0:
            _close(self.fd)


class User:
    """What holds files open: they are closed when nothing refers to it any more."""

    __slots__ = ("__weakref__",)


def _most_open() -> int:
    """How many descriptors to keep open: up to 256, and a quarter of those that the process may have."""
    if resource is None:
        return 256
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 256 if soft == resource.RLIM_INFINITY else max(min(256, soft // 4), 1)


class LocalStorage:
    """Files of this machine, read with `pread`.

    Args:
        limit: how many descriptors are kept open, by default what `_most_open` says. An evicted one that is in use is
            closed by its last user.
    """

    random_reads = True
    reads_ahead = False

    def __init__(self, limit: int | None = None) -> None:
        self._limit = _most_open() if limit is None else limit
        self._lock = threading.Lock()
        self._user: weakref.ref[User] | None = None
        self._open: OrderedDict[str, _Descriptor] = OrderedDict()
        self._tags: OrderedDict[str, str] = OrderedDict()
        renew_lock(self)

    def size(self, name: str) -> tuple[int, str]:
        """Return the size in bytes and a tag made of size, modification time and inode.

        The file is looked at afresh: an open descriptor of an earlier version is dropped.

        Raises:
            MissingFileError, DirectoryError: the path is not a file.
            RecordError: it cannot be read, or is not a regular file.
        """
        status = asked(translated, name, None, os.stat, name)
        _check_regular(status, name)
        tag = Version.of(status).tag
        with self._lock:
            known = self._open.get(name)
            if known is not None and known.tag != tag:
                del self._open[name]
            self._tags.pop(name, None)
        found = self._descriptor(name)
        return found.size, found.tag

    def read(self, name: str, offset: int, n: int, tag: str | None = None) -> bytes:
        """Read exactly `n` bytes from `offset`. If `tag` is given, the file must still have it.

        Raises:
            RecordError: the file is too short, cannot be read, or was replaced since it was opened.
            MissingFileError, DirectoryError: the path is not a file.
        """
        if n <= 0:
            return b""
        found = self._descriptor(name, tag)
        if offset + n > found.size:  # before allocating: a wrong length must not cost its bytes
            raise short(name, offset, n, max(found.size - offset, 0))
        try:
            data = bounded(name, _read, found, n, offset)
        except Exception as error:
            data = again(error, translated, name, offset, self._reread, name, tag, n, offset)
        if len(data) < n:
            raise short(name, offset, n, len(data))
        return data

    def readinto(self, name: str, offset: int, out: memoryview, tag: str | None = None) -> None:
        """Fill all of `out` from `offset`: `read` without a new allocation, and with the same errors."""
        limits = LIMITS.get()
        if limits is not None and limits.seconds is not None:  # a read that timed out must not write to `out` later
            out[:] = self.read(name, offset, len(out), tag)
            return
        found = self._descriptor(name, tag)
        if limits is not None:
            limits.check(name)
        done, n, started, clock = 0, len(out), perf_counter(), reading()
        try:
            while done < n:
                got = _pread_into(found.fd, out[done:] if done else out, offset + done)
                if not got:
                    raise short(name, offset, n, done)
                done += got
            if limits is not None:
                limits.reads.add(started, n)
        except OSError as error:
            data = again(error, translated, name, offset, self._reread, name, tag, n, offset)
            if len(data) < n:
                raise short(name, offset, n, len(data)) from None
            out[:] = data
        finally:
            if clock is not None:
                clock.leave()

    def ahead(self, name: str, offset: int, n: int) -> bool:
        """Have the system read a range from the disk now, because it is needed soon; whatever fails, fails later."""
        if _advise is None:
            return False
        with suppress(DataError, OSError, ValueError):
            _advise(self._to_ask(name).fd, offset, n, os.POSIX_FADV_WILLNEED)
        return True

    def in_memory(self, name: str, offset: int, n: int) -> bool | None:
        """Whether reading the middle of a range waits for no disk; None if the system or its file system cannot tell.

        Its ends may be in memory because of what was read beside it. The system answers (``RWF_NOWAIT``), not a clock:
        how long a read takes says more of how busy the CPU is. A file that cannot be read waits for no disk: reading it
        says why at once.
        """
        if _NOWAIT is None:
            return None
        try:
            os.preadv(self._to_ask(name).fd, [bytearray(1)], offset + n // 2, _NOWAIT)
        except BlockingIOError:
            return False
        except (DataError, ValueError):
            return True
        except OSError as error:
            return None if error.errno in _CANNOT_TELL else True
        return True

    def _reread(self, name: str, tag: str | None, n: int, offset: int) -> bytes:
        """Read again, through a new descriptor if the old one has lost its file, as happens on NFS."""
        found = self._descriptor(name, tag)
        try:
            os.fstat(found.fd)
        except OSError:
            with self._lock:
                if self._open.get(name) is found:
                    del self._open[name]
                    self._tags[name] = found.tag
            found = self._descriptor(name, tag)
        return _read(found, n, offset)

    def confirm(self, name: str, tag: str, replaced: bool = False) -> None:
        """Check that a file that was read still has its tag: the system is asked about the open descriptor.

        One that was removed meanwhile, or replaced by another, was read to its end as it was. If its descriptor had to
        be closed, the path is looked at; `replaced`: another file there is none of its versions.

        Raises:
            RecordError: it was written to, or cannot be examined.
        """
        with self._lock:
            found = self._open.get(name)
        try:
            now = Version.of(asked(translated, name, None, _status, name, found)).tag
        except MissingFileError:
            return
        if now != tag and not (replaced and Version.of_tag(now).inode != Version.of_tag(tag).inode):
            raise changed(name, tag, now)

    def tag_of(self, name: str) -> str:
        """The tag of a file as it is open, or is opened now.

        Raises:
            RecordError: the file cannot be read, or was replaced since it was opened.
            MissingFileError, DirectoryError: the path is not a file.
        """
        return self._descriptor(name).tag

    def check(self, name: str, offset: int, n: int, tag: str | None = None) -> None:
        """Check that a file has `n` bytes from `offset`, before memory is allocated for them.

        Raises:
            RecordError: the file is too short, or does not have the tag.
            MissingFileError, DirectoryError: the path is not a file.
        """
        found = self._descriptor(name, tag)
        if offset + n > found.size:
            raise short(name, offset, n, max(found.size - offset, 0))

    def close(self, wait: bool = True) -> None:
        """Drop every descriptor; those in use are closed by their last user.

        Args:
            wait: for the lock; else nothing is dropped while another call has it.
        """
        if self._lock.acquire(blocking=wait):
            try:
                dropped, self._open = self._open, OrderedDict()
            finally:
                self._lock.release()
            dropped.clear()  # without the lock: a network file system may take its time to close a file

    def user(self) -> User:
        """What a dataset keeps; files are closed when the last one that read has gone."""
        with self._lock:
            found = None if self._user is None else self._user()
            if found is None:
                found = User()
                self._user = weakref.ref(found)
                weakref.finalize(found, _close_unused, weakref.ref(self)).atexit = False
            return found

    def _fresh(self, name: str) -> _Descriptor:
        """Open a file; where the process may have no more descriptors, those that are idle are closed first."""
        try:
            return _Descriptor(name)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        with self._lock:
            self._limit = max(min(self._limit, len(self._open) // 2), 1)  # the rest of the process needs some, too
            while self._open:
                self._evict()
        return _Descriptor(name)

    def _evict(self) -> None:
        """Drop the oldest descriptor and remember its tag. The lock is held."""
        old, dropped = self._open.popitem(last=False)
        self._tags[old] = dropped.tag
        if len(self._tags) > REMEMBERED:
            self._tags.popitem(last=False)

    def _descriptor(self, name: str, tag: str | None = None) -> _Descriptor:
        with self._lock:
            found = self._open.get(name)
            if found is not None:
                self._open.move_to_end(name)
        if found is None:
            found = self._opened(name)
        if tag is not None and tag != found.tag:
            raise changed(name, tag, found.tag)
        return found

    def _to_ask(self, name: str) -> _Descriptor:
        """A descriptor to ask the system with, opened without retries. Whether the file was replaced, a read says.

        Raises:
            DataError, OSError, ValueError: the file cannot be opened.
        """
        with self._lock:
            found = self._open.get(name)
        if found is None:
            found = bounded(name, self._fresh, name)
            with self._lock:
                if self._tags.get(name, found.tag) == found.tag:
                    found = self._kept(name, found)
        return found

    def _kept(self, name: str, fresh: _Descriptor) -> _Descriptor:
        """The descriptor that stays open for a file: this one, or another thread's. The lock is held."""
        self._tags.pop(name, None)
        found = self._open.setdefault(name, fresh)
        while len(self._open) > self._limit:
            self._evict()
        return found

    def _opened(self, name: str) -> _Descriptor:
        fresh = asked(translated, name, None, self._fresh, name)  # outside the lock: it may wait for a network
        with self._lock:
            known = self._tags.get(name, fresh.tag)
            if known == fresh.tag:
                return self._kept(name, fresh)
        raise changed(name, known, fresh.tag)  # also for the next read, until `size` looks at the file afresh


def _close_unused(storage: weakref.ref[LocalStorage]) -> None:
    if (found := storage()) is not None:
        found.close(wait=False)  # the garbage collector may call this in a thread that holds the lock


def _read(found: _Descriptor, n: int, offset: int) -> bytes:
    """Read `n` bytes, fewer only at the end of the file. Holding `found` keeps its descriptor open."""
    data = _pread(found.fd, n, offset)
    while len(data) < n:  # a signal or a network file system may cut a read
        more = _pread(found.fd, n - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def _status(name: str, found: _Descriptor | None) -> os.stat_result:
    """What the system tells of an open file; of its path, if it is not open or has lost its file, as happens on NFS."""
    if found is not None:
        with suppress(OSError):
            return os.fstat(found.fd)
    return os.stat(name)


def _check_regular(status: os.stat_result, name: str) -> None:
    """Check that a path is a regular file.

    Raises:
        DirectoryError, RecordError: it is a directory, or something else.
    """
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise DirectoryError("a file is needed, got a directory; name the files in it", file=name, stage="read")
    kind = next((kind for test, kind in _KINDS if test(mode)), "something else")
    raise RecordError(f"a regular file is needed, got {kind}; copy its data to a file", file=name, stage="read")


_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


def changed(name: str, expected: str, found: str, url: str = "") -> RecordError:
    """Make the error for a file whose tag is no longer the expected one; `url` is what was asked for it."""
    was, now = (shown_line(tag[:SAID], url or name)[:200] for tag in (expected, found))
    limits = LIMITS.get()
    if limits is not None:
        limits.changed.add((name, expected))
    return RecordError(
        f"the file changed while it was read: its version (size, and time, ETag or checksum) was {was}, and is {now}; "
        "start a new iterator, and write new files beside the old ones",
        file=name,
        stage="read",
    )


def short(name: str, offset: int, n: int, got: int) -> RecordError:
    """Make the error for a file of which only `got` of `n` bytes can be read."""
    reason = f"{n} bytes are needed, the file ends {n - got} bytes too early"
    return RecordError(reason, file=name, offset=offset, stage="read")


def translated(error: BaseException, name: str, offset: int | None = None) -> DataError:
    """Make the DataError for an exception of the system."""
    if isinstance(error, ValueError):  # a NUL, or a character that file names cannot encode
        return MissingFileError(f"no file can have this name ({error})", file=ascii(name)[1:-1], stage="read")
    if isinstance(error, FileNotFoundError):
        return MissingFileError(f"no such file{_hint(name)}", file=name, stage="read")
    if isinstance(error, IsADirectoryError):
        return DirectoryError("a file is needed, got a directory; name the files in it", file=name, stage="read")
    reason = getattr(error, "strerror", None) or error
    reason = "there is not enough memory" if isinstance(error, MemoryError) else reason
    return RecordError(f"cannot be read: {reason}", file=name, offset=offset, stage="read")


def _hint(name: str) -> str:
    """What to write instead of a name in the notation of another library."""
    if name.startswith("pipe:"):
        return "; commands are not run: read what they print with from_generator"
    if "::" in name:
        return "; several files are a list of names"
    if "{" in name and "}" in name:
        return "; list_files(pattern) expands braces, {000..127} and {a,b}"
    return ""


_seek = threading.Lock()


def _seek_read(fd: int, n: int, offset: int) -> bytes:
    with _seek:  # Windows has no pread, and all threads share a descriptor's position
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, n)


def _seek_read_into(fd: int, out: memoryview, offset: int) -> int:
    data = _seek_read(fd, len(out), offset)
    out[: len(data)] = data
    return len(data)


def _preadv(fd: int, out: memoryview, offset: int) -> int:
    return os.preadv(fd, [out], offset)


_advise = getattr(os, "posix_fadvise", None)


_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)  # of Linux


# EPERM: a sandbox that knows no preadv2.
_CANNOT_TELL = frozenset((errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM))


_pread = os.pread if hasattr(os, "pread") else _seek_read


_pread_into = _preadv if hasattr(os, "preadv") else _seek_read_into


LOCAL = LocalStorage()


_PAGE = 4096


def _remember(path: str, size: int, tag: str) -> None:
    """Note which version of a file a run reads: its states are over that one."""
    limits = LIMITS.get()
    if limits is not None and len(limits.opened) < FILES:
        limits.opened.setdefault(path, (size, tag))


class OpenFile:
    """One version of a file: a read fails once another one is found.

    Attributes:
        path: its name in the storage.
        storage: the storage.
        size: in bytes.

    Raises:
        DataError: the file is missing, or cannot be read.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self.path, self.storage = path, storage
        self.size, self.tag = storage.size(path)
        _remember(path, self.size, self.tag)

    @classmethod
    def of(cls, path: str, version: Version) -> OpenFile:
        """A version of a local file that was looked at before: nothing is asked of the system now."""
        self = cls.__new__(cls)
        self.path, self.storage = path, LOCAL
        self.size, self.tag = version.size, version.tag
        _remember(path, self.size, self.tag)
        return self

    def confirm(self) -> None:
        """Check that what was read is this version, if that costs no request.

        Raises:
            DataError: the file was changed meanwhile.
        """
        self.storage.confirm(self.path, self.tag)

    def read(self, offset: int, n: int) -> bytes:
        """Read exactly `n` bytes from `offset`."""
        return self.storage.read(self.path, offset, n, self.tag)

    def readinto(self, offset: int, out: memoryview) -> None:
        """Fill all of `out` from `offset`."""
        self.storage.readinto(self.path, offset, out, self.tag)

    def reread(self, offset: int, out: memoryview) -> None:
        """Fill all of `out` from `offset` with a new request."""
        self.readinto(offset, out)

    def read_up_to(self, offset: int, n: int) -> bytes:
        """Read `n` bytes from `offset`, or those before the first disk page that cannot be read.

        So what is lost after that page does not depend on where reading started.

        Raises:
            DataError: not even the first byte can be read; the error is `lost`.
        """
        pieces: list[bytes] = []
        end = offset + n
        try:
            try:
                return self.read(offset, n)
            except DataError as error:
                if not error.passing or not self.storage.random_reads or n <= _PAGE - offset % _PAGE:
                    raise
            while offset < end:
                pieces.append(self.read(offset, min(_PAGE - offset % _PAGE, end - offset)))
                offset += len(pieces[-1])
        except DataError as error:
            if not pieces:
                error.hiding()
                raise
        return b"".join(pieces)
