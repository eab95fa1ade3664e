"""save: running a dataset and writing it to a folder, and reading the manifest of such a folder.

The folder holds files of elements (see `serial.elements_file`), whose names hold the run that wrote them, and
``saved.json``, which names them. The manifest is made first, under a temporary name with the run in it, and renamed
last: that is the commit, so a folder always holds a complete dataset, the new one or the one before. Files of a run
that is neither the manifest's nor has a temporary manifest belong to nobody, and are removed after the next commit.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import DataError, FunctionError, MissingFileError, RecordError
from ..extract.images.decode import MOST_PIXELS
from ..extract.records.inflate import MOST
from ..extract.storage.files import LocalStorage
from ..extract.storage.temporary import TEMPORARY, commit, create, remove_stale, temporary
from ..extract.storage.waiting import LIMITS
from ..flow.cache.files import write_to
from ..flow.check import failed
from ..flow.element import Element, Hole, Raised
from ..flow.run import Context, Run
from ..flow.step import close
from ..graph.trace import call_with
from ..log import logger
from ..optimize.lower.compile import lower_in
from ..options import Settings
from ..plan.cache import Saved, element_from_json, element_to_json
from ..plan.node import ElementType, Node
from ..serial.elements_file import LEAST, ElementsReader
from ..serial.elements_writer import ElementsWriter
from ..serial.structures import Malformed, class_of_program, json_object
from ..spec import LEAF, Compound, Structure, TensorSpec, describe, spec_of
from .converted import on_host

__all__ = ["read_saved", "save"]

MANIFEST = "saved.json"
_VERSION = 2
_MANY = 1 << 20  # elements of a file from which on its size is looked at: `list` makes room for all of them first
_MOST = 64 << 20  # bytes of a manifest: a file name and two numbers for each of a million files


def save(
    plan: Node, settings: Settings, epoch: int, folder: str, compression: str, shard_func: Callable[..., Any] | None
) -> None:
    """Run a chain and write its elements to a folder, whose path is absolute.

    Raises:
        DataError: an element is bad, under ``on_error="raise"``, or `shard_func` failed; the folder is unchanged.
        OSError: the folder cannot be written.
    """
    # In a context of its own, so that the caller's context variables are unchanged, wherever Ctrl-C interrupts.
    copy_context().run(_save, plan, settings, epoch, folder, compression, shard_func)


def _save(
    plan: Node, settings: Settings, epoch: int, folder: str, compression: str, shard_func: Callable[..., Any] | None
) -> None:
    os.makedirs(folder, exist_ok=True)
    remove_stale(folder, "")
    run = Run(settings, epoch=epoch)
    run.bad.start()
    shards = _Shards(folder, compression)
    items: Any = None
    try:
        shards.begin()
        MOST_PIXELS.set(settings.max_pixels)
        LIMITS.set(run.limits)
        at = Context(run, epoch)
        lowered = lower_in(plan, settings, at)
        element_to_json(lowered.element)  # raises before anything runs if elements cannot be written
        seen = _Seen(lowered.element, plan.element)
        items = lowered.flow.open(at)
        structure = lowered.element.structure or Structure()
        policy = run.policy()
        for value, stream, position in items:
            if type(value) is tuple:
                value = tuple([on_host(leaf) for leaf in value])
                reason = seen.add(value)
                if reason is not None:
                    value = Hole(DataError(reason, stage="save").at(stream.name, position, unit=stream.unit))
            element: Element = (value, stream, position)
            if type(value) is not tuple:
                error = run.settle(element)
                if error is not None:
                    raise error
                if type(value) is Raised:  # the rest of a file that is left out
                    continue
            for one in policy.good(element) if type(value) is tuple else policy.bad(element):
                shards.add(_shard_of(shard_func, structure, one), one)
        shards.finish(seen.element(), plan.random_calls)
    finally:
        close(items)
        run.close()
        shards.discard()


def _shard_of(shard_func: Callable[..., Any] | None, structure: Structure, element: Element) -> int:
    """Return the number of the file that an element is written to."""
    if shard_func is None:
        return 0
    value, stream, position = element
    leaves = [bytes(leaf) if isinstance(leaf, memoryview) else leaf for leaf in value]
    try:
        given = call_with(shard_func, structure.unflatten(leaves))
    except Exception as error:
        raise failed("save", error, stream, position) from error
    number = np.asarray(given)
    if number.shape or number.dtype.kind not in "iu" or number < 0:
        reason = f"save needs a shard_func that returns an integer >= 0, got {given!r}"
        raise FunctionError(reason, file=stream.name, offset=position, stage="save", unit=stream.unit)
    return int(number)


class _Seen:
    """The type of the elements written so far: the declared one, widened for elements that do not match it.

    Args:
        lowered: the type of the chain as it runs; parts that were not declared are those of the first element.
        declared: the type that the chain has before it runs.
    """

    _MOST = 1 << 12

    def __init__(self, lowered: ElementType, declared: ElementType) -> None:
        self._of = lowered
        self._specs: list[TensorSpec | None] = [None] * len(lowered.specs)
        if declared.structure == lowered.structure:
            self._specs = [
                None if spec.dtype is None or spec.shape is None else own
                for spec, own in zip(declared.specs, lowered.specs, strict=True)
            ]
        self._dtypes = [None if spec is None else spec.dtype for spec in self._specs]
        self._known: set[tuple[Any, ...]] = set()

    def add(self, leaves: Sequence[Any]) -> str | None:
        """Widen the type for an element; return why the element cannot be saved with those before, or None."""
        kinds = tuple([(type(leaf), getattr(leaf, "dtype", 0), getattr(leaf, "shape", ())) for leaf in leaves])
        if kinds in self._known and not any(isinstance(leaf, Compound) for leaf in leaves):
            return None
        found = [spec_of(leaf) for leaf in leaves]
        if len(found) != len(self._specs):
            return f"save needs elements of one structure, got {len(found)} leaves after {len(self._specs)}"
        names = (self._of.structure or LEAF).leaf_names()
        for name, dtype, spec in zip(names, self._dtypes, found, strict=True):
            if dtype is not None and dtype != spec.dtype:
                before = TensorSpec((), dtype)
                return f"save needs one dtype for {name or 'all elements'}, got {spec} after {before}; cast in a map"
        for i, spec in enumerate(found):
            self._dtypes[i] = spec.dtype
            known = self._specs[i]
            if known is None:
                self._specs[i] = spec
            elif not known.accepts(spec):
                self._specs[i] = known.relax(spec)
        if len(self._known) < self._MOST:
            self._known.add(kinds)
        return None

    def element(self) -> ElementType:
        """Return the type of all elements."""
        specs = []
        for spec, lowered in zip(self._specs, self._of.specs, strict=True):
            if spec is None:
                spec = lowered
            elif type(spec) is TensorSpec and lowered.layout and spec.rank == len(lowered.layout):
                spec = replace(spec, layout=lowered.layout)
            specs.append(spec)
        return ElementType(self._of.structure, tuple(specs), self._of.batched)


class _Shards:
    """The files that are being written, by number."""

    def __init__(self, folder: str, compression: str) -> None:
        self._folder = folder
        self._compression = compression
        self._run = secrets.token_hex(8)
        self._open: dict[int, ElementsWriter] = {}
        self._manifest = temporary(os.path.join(folder, f".{MANIFEST}-{self._run}"))
        self._renaming = False

    def begin(self) -> None:
        """Make the temporary manifest, which says that this run is going on."""
        create(self._manifest).close()

    def add(self, number: int, element: Element) -> None:
        write_to(self._writer(number), element)

    def _writer(self, number: int) -> ElementsWriter:
        found = self._open.get(number)
        if found is None:
            found = ElementsWriter(self._path(number), {"run": self._run}, self._compression, indexed=True)
            self._open[number] = found  # before there is a file, so that an interrupt leaves none
            found.begin()
        return found

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{number:05}-{self._run}.elements{'.gz' if self._compression else ''}")

    def finish(self, element: ElementType, sites: Sequence[tuple[str, int]]) -> None:
        """Complete all files, put the manifest in place, and remove the files of earlier runs."""
        self._writer(min(self._open, default=0))  # a dataset without elements is one file
        shards = []
        for number, writer in sorted(self._open.items()):
            writer.finish()
            shards.append({"file": os.path.basename(self._path(number)), "count": writer.count})
        manifest = {
            "gpupipe": "saved elements",
            "version": _VERSION,
            "run": self._run,
            "compression": self._compression,
            "indexed": not self._compression,
            "element": element_to_json(element),
            "sites": dict(sites),
            "shards": shards,
        }
        with open(self._manifest, "r+", encoding="utf-8") as out:
            json.dump(manifest, out)
            out.flush()
            os.fsync(out.fileno())
        self._renaming = True
        commit(self._manifest, os.path.join(self._folder, MANIFEST))
        self._remove_old()

    def _remove_old(self) -> None:
        """Remove the files of runs that are over, if the manifest is still that of this run.

        What was listed before the manifest is looked at, and has no temporary manifest, was committed before it, or
        never: other processes may save here at the same time.
        """
        names = os.listdir(self._folder)
        running = {found[1] for name in names if (found := _RUNNING.match(name)) and TEMPORARY.search(name)}
        kept = {*running, self._run}
        over = [name for name in names if (found := _ELEMENTS.fullmatch(name)) and found[1] not in kept]
        if over and self._is_committed():
            for path in [os.path.join(self._folder, name) for name in over]:
                if _has_run(path):
                    with contextlib.suppress(OSError):  # another process reads it, or has removed it
                        os.remove(path)

    def _is_committed(self) -> bool:
        """Whether the manifest that is in place is that of this run."""
        try:
            return _read_manifest(self._folder)[0].run == self._run
        except DataError:
            return False

    def discard(self) -> None:
        """Remove the files of a `save` that did not finish; nothing if it did, or if that cannot be said."""
        if self._renaming and (self._is_committed() or not os.path.exists(self._manifest)):
            return
        for writer in self._open.values():
            with contextlib.suppress(OSError):
                writer.discard()
        with contextlib.suppress(OSError):
            os.remove(self._manifest)


_ELEMENTS = re.compile(r"\d{5,}-([0-9a-f]{16})\.elements(?:\.gz)?")


_RUNNING = re.compile(rf"\.{re.escape(MANIFEST)}-([0-9a-f]{{16}})\.")


def _has_run(path: str) -> bool:
    """Whether a file was written by `save`: one of `cache` may have such a name, and is complete."""
    try:
        reader = ElementsReader(path, "GZIP" if path.endswith(".gz") else "")
    except DataError:  # it was not finished
        return True
    try:
        return "run" in reader.head
    finally:
        reader.close()


def _read_manifest(folder: str) -> tuple[Saved, ...]:
    """Make the plans that read a folder: all of it, then each of its files.

    Raises:
        MissingFileError: nothing was saved there.
        RecordError: the manifest is damaged.
    """
    path = os.path.join(folder, MANIFEST)
    try:
        storage = LocalStorage(limit=1)  # refuses what is not a regular file, which may be of any size
        size, tag = storage.size(path)
        data = storage.read(path, 0, min(size, _MOST + 1), tag)
    except DataError as error:
        if isinstance(error, FileNotFoundError) or isinstance(error.__cause__, NotADirectoryError):
            raise MissingFileError(
                "load needs a folder that save has written, nothing was saved there", file=folder, stage="load"
            ) from error
        error.stage = "load"
        raise
    try:
        return _plans(folder, json_object(data) if len(data) <= _MOST else {})
    except Malformed as error:
        reason = f"load needs a manifest that save has written, got a damaged one: {error}"
        raise RecordError(reason, file=path, stage="load") from error


def _plans(folder: str, given: dict[str, Any]) -> tuple[Saved, ...]:
    match given:
        case {
            "gpupipe": "saved elements",
            "compression": "" | "GZIP" as compression,
            "run": str(run),
            "sites": dict(sites),
            "shards": [_, *_] as shards,
        } if given.get("version") == _VERSION and all(map(_is_natural, sites.values())):
            each = [(os.path.join(folder, name), count) for name, count in map(_shard, shards)]
        case _:
            raise Malformed(f"it does not have version {_VERSION}, or is incomplete")
    paths, counts = zip(*each, strict=True)
    if len(set(paths)) < len(paths):
        raise Malformed("it names a file twice")
    for path, count in each:
        if count > _MANY and not _may_hold(path, count, compression):
            raise Malformed(f"{os.path.basename(path)} is missing, or too small for {count} elements")
    element, random = element_from_json(given.get("element"), class_of_program), tuple(sorted(sites.items()))
    indexed = given.get("indexed") is True and not compression
    return tuple(
        Saved(folder, files, element, numbers, compression, run, random, indexed)
        for files, numbers in [(paths, counts), *(((path,), (count,)) for path, count in each)]
    )


def _may_hold(path: str, count: int, compression: str) -> bool:
    size = os.path.getsize(path) if os.path.isfile(path) else 0
    return count * LEAST <= size * (MOST if compression else 1)


def _shard(given: Any) -> tuple[str, int]:
    match given:
        case {"file": str(name), "count": count} if os.path.basename(name) == name and _is_natural(count):
            return name, count
    raise Malformed("it names files outside its folder, or no files")


def _is_natural(given: Any) -> bool:
    return type(given) is int and given >= 0


def read_saved(folder: str, wanted: ElementType | None, compression: str | None, wait: bool) -> tuple[Saved, ...]:
    """Make the plan that reads a folder, and after it one for each of its files.

    Raises:
        MissingFileError: nothing was saved there.
        DataError: the manifest is damaged, or compression or elements are not those wanted.
    """
    plans = _waited_for(folder) if wait else _read_manifest(folder)
    whole = plans[0]
    if compression is not None and whole.compression != ("GZIP" if compression == "GZIP" else ""):
        reason = f"load needs a dataset saved with compression {compression!r}, got {whole.compression or 'NONE'!r}"
        raise RecordError(reason, file=folder, stage="load")
    if wanted is None:
        return plans
    _check(folder, wanted, whole.saved, sum(whole.counts))
    element = ElementType(wanted.structure, wanted.specs, whole.saved.batched)
    return tuple(replace(plan, saved=element) for plan in plans)


def _check(folder: str, wanted: ElementType, saved: ElementType, count: int) -> None:
    names = saved.structure.leaf_names() if saved.structure is not None else [""]
    if wanted.structure != saved.structure:
        reason = f"load needs elements like {describe(wanted.nested)}, got {describe(saved.nested)}"
        raise RecordError(reason, file=folder, stage="load")
    for name, spec, found in zip(names, wanted.specs, saved.specs, strict=True):
        both = spec.relax(found)
        wider = (both.shape, both.dtype) != (spec.shape, spec.dtype)  # some elements may be of another shape
        if not spec.accepts(found) or (count and wider):
            raise RecordError(f"load needs {spec} for {name or 'elements'}, got {found}", file=folder, stage="load")


def _waited_for(folder: str) -> tuple[Saved, ...]:
    started, logged = time.monotonic(), False
    while True:
        try:
            return _read_manifest(folder)
        except MissingFileError:
            if not logged and time.monotonic() - started > 5:
                logged = True
                logger.info("load waits until a dataset is saved in %s", folder)
            time.sleep(0.1)
