"""buffers: the methods of `Dataset` that hold elements: shuffle, prefetch, caches and files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..arguments import checked_function, integer, integer_or_none
from ..errors import PlanError, PlanTypeError
from ..extract.storage.patterns import file_name, is_url
from ..options import AUTOTUNE, All
from ..plan.cache import Cache, FileCache, GpuCache
from ..plan.index import Everything
from ..plan.node import INFINITE, UNKNOWN_CARDINALITY, walk
from ..plan.order import WHOLE, Prefetch, Shuffle, never_ends, options_of
from ..plan.sources import Param
from ..spec import DatasetSpec
from .base import Chain

if TYPE_CHECKING:
    from .. import Dataset

__all__ = ["Buffers"]


class Buffers(Chain):
    """Shuffle, prefetch, caches and files."""

    def shuffle(
        self,
        buffer_size: int | All,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
        *,
        streams: int | None = None,
        window: int | None = None,
    ) -> Dataset:
        """Draw elements at random from a buffer of `buffer_size` elements.

        Args:
            buffer_size: elements of the buffer, >= 1; output p is an input element of index <= p + buffer_size - 1.
                Records of local files are held as references of about 250 bytes, not as payloads. `gpupipe.ALL`
                shuffles the whole dataset by index: nothing is held or filled, and every order is equally likely. It
                needs steps that can be indexed. `gpupipe.UNKNOWN_CARDINALITY`, as in ``shuffle(ds.cardinality())``,
                shuffles the whole of any finite dataset: all of it is read before the first element, and held.
            seed: mixed with the chain's seed. Inputs of a `zip` that are shuffled with equal seeds, buffers and numbers
                of elements stay in step, in every epoch; without seeds each has its own order.
            reshuffle_each_iteration: False gives the same order in every epoch and pass; default True.
            streams: with `ALL`, for data that is far away or too large for random reads: an order in which each of
                several ranks reads few files, and these nearly in sequence. The files come in a random order, one after
                the other; this line is cut into `streams` streams whose lengths differ by one at most, and each
                stream is shuffled in windows, whose first one is shorter in some streams, so that not all of them end
                at once. Element i is the next one of stream ``i % streams``. So ``by_rank`` on W ranks reads about
                ``files / W`` files on each, if W divides `streams` and the batch. Batches depend on seed, epoch and the
                numbers of records alone: they are the same for any number of ranks. Files are known behind
                `from_manifest` and ``TFRecordDataset(files)``, and maps of these; elsewhere runs of `window` neighbours
                stand in for them. Every element comes once.
            window: elements of a stream that are shuffled together, >= 1, by default 1,000: elements of one file are
                mixed with those of the other streams in each batch, and within about `window` of their own. What a rank
                holds of its files is up to two windows of each of its ``streams / W`` streams.

        Raises:
            PlanError: a buffer size below 1, `streams` without `ALL`, `ALL` after a step that cannot be indexed, or the
                whole of an infinite dataset; or `ALL` behind `batch` under ``on_error="skip"``, when it starts.
        """
        seed = integer_or_none("shuffle", "seed", seed)
        every = Everything(seed, reshuffle_each_iteration is not False)
        if streams is None and window is not None:
            raise PlanError(f"shuffle needs streams with window={window!r:.80}, got none")
        if streams is not None:
            counts = (
                integer("shuffle", "streams", streams, 1),
                integer("shuffle", "window", 1000 if window is None else window, 1),
            )
            every = Everything(seed, every.reshuffle, *counts)
            if not isinstance(buffer_size, All):
                raise PlanError(f"shuffle needs gp.ALL with streams={streams}, got buffer_size={buffer_size!r}")
        if isinstance(buffer_size, All):
            return self._select(
                "shuffle(gp.ALL)",
                every,
                "shuffle(gp.UNKNOWN_CARDINALITY), which holds all elements in memory",
            )
        size = integer("shuffle", "buffer_size", buffer_size)
        if size in (UNKNOWN_CARDINALITY, INFINITE) and never_ends(self.plan):
            raise PlanError(
                f"shuffle({size}), of a whole dataset, needs a dataset that ends, got an infinite one; shuffle before "
                "repeat, or give a number of elements"
            )
        if size == UNKNOWN_CARDINALITY:
            size = WHOLE
        if size < 1:
            raise PlanError(
                f"shuffle needs buffer_size >= 1, got {size}; for the whole dataset use gpupipe.ALL, or "
                "UNKNOWN_CARDINALITY where nothing can be indexed"
            )
        return self._then(Shuffle(self.plan, size, seed, reshuffle_each_iteration is not False))

    def prefetch(self, buffer_size: int | None) -> Dataset:
        """Compute up to `buffer_size` elements ahead in the background.

        At most that many finished elements wait. Elements that earlier steps are working on do not count: image ops run
        on up to three batches at a time, with or without a prefetch, and ``map(num_parallel_calls=n)`` on 2 n elements.

        Args:
            buffer_size: elements, >= 0; `AUTOTUNE` or None lets gpupipe choose.
        """
        size = AUTOTUNE if buffer_size is None else integer("prefetch", "buffer_size", buffer_size)
        if size < AUTOTUNE:
            raise PlanError(f"prefetch needs buffer_size >= 0 or AUTOTUNE, got {size}")
        return self._then(Prefetch(self.plan, size))

    def cache(
        self,
        filename: str | os.PathLike[str] = "",
        *,
        device: str | None = None,
        memory: int | None = None,
        spill: bool = False,
    ) -> Dataset:
        """Keep the elements of the first full pass, in memory, in a file, or with their images in GPU memory.

        Random ops before the cache are drawn once. Those after it differ from epoch to epoch, and in the first pass of
        each epoch draw what they would draw without the cache.

        Elements in any order (``deterministic=False``) are kept in the order in which they arrived. With such elements
        a chain has a `state_dict` only if the cache is in a file.

        The elements are kept on the host, also where images are computed on a GPU: place the cache before the map that
        decodes the images, so that it keeps them encoded. Or, where the model leaves room, keep decoded images on the
        GPU, with ``device="gpu"``: later epochs neither decode nor copy them. All arrays with three axes or more are
        kept there, e.g. uint8[H,W,3]; everything else stays on the host. Traced ops behind it take images from there;
        steps that look at them on the host get copies. It needs a GPU, DALI and CuPy.

        Args:
            filename: the start of the file's path; a hash of everything that the elements depend on follows: the chain
                before the cache by content, its seed and options, and the files it reads with their sizes and times, of
                a URL with its ETag if it has one. So another chain, or newer data, never gets these elements; a URL
                whose server tells neither is named in the log. What a Python function opens, under a name that it makes
                up or a generator gives, is not seen: remove the file here after such data has changed. A temporary file
                is renamed at the end of a full pass; a pass that stops early leaves nothing. A damaged file costs the
                damaged elements, and the
                next iterator computes it again. "" keeps the elements in memory. Inside a function of `interleave` or
                `flat_map` each different dataset has its own file.
            device: "gpu" keeps images in the memory of the chain's GPU (`Options.device`), for elements that are not
                batches; None or "cpu" on the host.
            memory: with a GPU, the bytes of its memory that the elements may take, > 0; default:
                `Options.device_memory`. A pass that fills the cache while another one does takes as much for itself.
            spill: with a GPU, whether images that find no room there stay on the host, from where they are copied in
                each epoch; else they are an error.

        Raises:
            PlanError: the file is a URL; or, on the first `next`, there is no GPU.
            MissingDependencyError: on the first `next`: CuPy is not installed.
            DeviceError: while iterating: the images need more GPU memory, and `spill` is False.
            MissingFileError: while iterating: the folder does not exist.
        """
        if not isinstance(filename, (str, os.PathLike)):
            raise PlanTypeError(f"cache needs a file name, got {filename!r}")
        if device not in (None, "cpu", "gpu"):
            wrong = PlanError if isinstance(device, str) else PlanTypeError
            raise wrong(f'cache needs device="gpu", "cpu" or None, got {device!r}; Options(device=) says which GPU')
        if any(isinstance(node, Param) for node in walk(self.plan)):
            # Refused while tracing: the function is called for each element instead, so each dataset has its own.
            raise PlanError("cache needs a chain of its own, got one that depends on a traced element")
        path = os.fspath(filename)
        if device == "gpu":
            return self._kept_on_gpu(path, memory, spill)
        if memory is not None or spill:
            raise PlanError(f'cache needs device="gpu" with memory={memory!r} and spill={spill!r}, got {device!r}')
        if not path:
            from ..flow.cache.memory import CacheStore

            return self._then(Cache(self.plan, CacheStore()))
        return self._kept_in_files("cache", path)

    def _kept_on_gpu(self, path: str, memory: int | None, spill: bool) -> Dataset:
        if path:
            raise PlanError(f'cache needs a file or device="gpu", got both, {path!r}')
        if not isinstance(spill, bool):
            raise PlanTypeError(f"cache needs spill=True or False, got {spill!r}")
        if memory is not None:
            memory = integer("cache", "memory", memory, 1)
        if self.plan.element.batched:
            raise PlanError(
                'cache(device="gpu") needs elements that are not batches yet, got batches; put it before batch'
            )
        from ..flow.cache.on_gpu import GpuCacheStore

        return self._then(GpuCache(self.plan, GpuCacheStore(memory=memory, spill=spill)))

    def snapshot(
        self,
        path: str | os.PathLike[str],
        compression: str | None = "AUTO",
        reader_func: None = None,
        shard_func: None = None,
    ) -> Dataset:
        """Keep the elements of the first full pass in a folder: like `cache` with a file name, in a folder per chain.

        Args:
            path: the folder; created if it does not exist.
            compression: "GZIP"; "AUTO", "NONE" or None for none.
            reader_func: must be None: elements are read in the order in which they were written; see `load`.
            shard_func: must be None: there is one file; see `save`.
        """
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise PlanTypeError(f"snapshot needs the path of a folder, got {path!r}")
        if reader_func is not None or shard_func is not None:
            raise PlanError(
                "snapshot needs reader_func=None and shard_func=None, as it keeps one file; "
                "use save(path, shard_func=...) and load(path, reader_func=...)"
            )
        if compression not in ("AUTO", "NONE", "", None, "GZIP"):
            raise PlanError(f'snapshot needs compression "AUTO", "NONE", None or "GZIP", got {compression!r}')
        return self._kept_in_files("snapshot", os.fspath(path), True, "GZIP" if compression == "GZIP" else "")

    def _kept_in_files(self, who: str, path: str, folder: bool = False, compression: str = "") -> Dataset:
        if is_url(file_name(who, os.fsdecode(path))):
            raise PlanError(f"{who} needs a local path, got {path!r}; save it here and copy the folder")
        for spec in self.plan.element.specs:
            if isinstance(spec, DatasetSpec):
                raise PlanTypeError(f"{who} needs arrays, numbers and bytes, got a {spec}; use flat_map first")
        if any(isinstance(node, Param) for node in walk(self.plan)):  # as in `cache`
            raise PlanError(f"{who} needs a chain of its own, got one that depends on a traced element")
        from .. import __version__
        from ..flow.cache.files import FileCacheStore

        store = FileCacheStore(os.path.abspath(path), self.plan, __version__, who, folder, compression)
        return self._then(FileCache(self.plan, store, path, who))

    def save(
        self,
        path: str | os.PathLike[str],
        compression: str | None = None,
        shard_func: Callable[..., Any] | None = None,
    ) -> None:
        """Run the chain now and write its elements to a folder, for `Dataset.load`.

        Earlier contents of the folder are replaced once everything is written. The saved type holds for all elements:
        dimensions that differ are unknown, and an element of another dtype is a bad element.

        Args:
            path: the folder; created if it does not exist.
            compression: None, "NONE" or "GZIP".
            shard_func: takes an element (a tuple is unpacked) and returns the number >= 0 of its file. Without it there
                is one file, and `load` gives the elements in order.

        Raises:
            PlanError: the dataset is infinite, the path is a URL, or the compression is unknown.
            DataError: an element is bad, under ``on_error="raise"``; nothing is saved.
            OSError: the folder cannot be written.
        """
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise PlanTypeError(f"save needs the path of a folder, got {path!r}")
        folder = os.fspath(path)
        if is_url(file_name("save", os.fsdecode(folder))):
            raise PlanError(f"save needs a local path, got {folder!r}; save it here and copy the folder")
        if compression not in (None, "", "NONE", "GZIP"):
            raise PlanError(f'save needs compression None, "NONE" or "GZIP", got {compression!r}')
        if shard_func is not None:
            checked_function("save", shard_func, self.plan.element)
        if never_ends(self.plan):
            raise PlanError("save needs a dataset that ends, got an infinite one; use take(n)")
        from ..load.save import save

        settings = options_of(self.plan).resolve()
        epoch = self._counter.take(self.plan, settings) if self._epoch is None else self._epoch
        folder = os.path.abspath(folder)  # a function of the chain may change the working directory
        save(self.plan, settings, epoch, folder, "GZIP" if compression == "GZIP" else "", shard_func)
