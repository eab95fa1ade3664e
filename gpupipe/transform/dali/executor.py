"""executor: the executor that runs a program as a DALI graph, on the CPU or on a GPU.

DALI is fed explicitly: `submit` feeds a batch and schedules a run, `collect` takes the oldest result. The graph has no
readers, randomness or state, so a batch depends on its feed alone. DALI's default (dynamic) executor is needed for
three properties, each tested: results own their memory, a failing batch affects no other batch, and with
`prefetch_queue_depth=1` any number of runs may be scheduled ahead.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ...classes import dataclass
from ...errors import ClosedError, DataError, DecodeError, DeviceError, GpupipeError
from ...extract.images.budget import Share, hold, let_go
from ...graph.values import Apply, Const
from ...options import DecoderOptions
from ...spec import TensorSpec
from ..array import load_cupy, to_device_array
from ..host_decode import HostDecoder
from ..machine import card_and_versions
from ..numpy import can_compute
from ..program import BatchFailed, Executor, Feed, Program, WrongPixels
from . import library
from .build import Lowering, check_nodes, delivered, input_nodes, lower, promises
from .failures import cause_of, device_failed, is_of_device, sample_of
from .feed_cached import tensors_on_gpu
from .feeding import VERIFIED, Entry, entry_of, kept, tensors_of, wholly
from .proof import TOLERANCE, TOLERANCE_SIMPLE, Decoder, Prover
from .results import check_result, separate, to_numpy, unlike

__all__ = ["DaliExecutor", "Lowering"]

REGION_DECODE: set[int] = set()
"""GPUs, by ordinal, that decode only the region of a crop: none, since nvImageCodec 0.9.0 fails there on some GPUs
(NVIDIA/nvImageCodec#55). `tests/transform/region_decode.py` probes a GPU."""


@dataclass(slots=True)
class _Flight:
    """A batch in flight.

    Attributes:
        feed: its rows, with images as DALI gets them.
        buffers: the fed tensors, kept alive until DALI is done with them.
        causes: the errors of bad rows, because of which the batch was not fed.
        outcome: its outputs or failure, if taken from DALI before `collect`.
        share: what its large images hold of the budget until DALI has decoded them.
    """

    feed: Feed
    buffers: list[Any]
    causes: dict[int, DataError]
    outcome: Any = None
    share: Share | None = None


_LONE = 3
"""Batches in a row of which only the row that DALI names is looked at: of one bad row, the others need not be."""


class _Wrong(NamedTuple):
    """Why a row is wrong, and the inputs whose images were decoded wrongly."""

    text: str
    images: frozenset[int]


class DaliExecutor(Executor):
    """Runs a program as a DALI graph.

    Args:
        program: what to compute.
        batch_size: the largest batch that will be submitted.
        threads: CPU threads of DALI.
        device_id: ordinal of the GPU, None for the CPU (then no GPU and no driver are needed).
        decoding: options of decoders on a GPU.
        verifies: whether feeds name rows whose decoded images are to be compared with the host's (`Feed.verified`).
        proves: whether samples of every decoded row are checked, see `proof`; None means on a GPU only, since on the
            CPU libjpeg decodes, which writes every row or reports an error.

    Results on the CPU are NumPy arrays, on a GPU CuPy arrays (`DeviceArray` without CuPy), without a copy.
    """

    def __init__(
        self,
        program: Program,
        batch_size: int,
        threads: int,
        device_id: int | None = None,
        decoding: DecoderOptions | None = None,
        verifies: bool = False,
        proves: bool | None = None,
    ) -> None:
        super().__init__("DALI on CPU" if device_id is None else f"DALI on GPU {device_id}", batch_size)
        self._program, self._threads, self._device_id = program, threads, device_id
        self.on_gpu = device_id is not None
        self._decoding = decoding or DecoderOptions()
        self._proves, self._verifies = device_id is not None if proves is None else proves, verifies
        self._prover = Prover(program, TOLERANCE if self._decoding.jpeg_fancy_upsampling else TOLERANCE_SIMPLE)
        self._names = ", ".join(value.op.name for value in program.values if isinstance(value, Apply))
        self._fed = [n for n, value in enumerate(program.inputs) if not isinstance(value, Const)]
        self._entries: tuple[Entry, ...] | None = None
        self._pipeline: Any = None
        self._foreign = [value for value in program.values if isinstance(value, Apply) and value.op.foreign]
        self._checked = not self._foreign
        self._host = HostDecoder(program, threads, self.on_gpu)
        if device_id is not None:
            load_cupy()
        self._failures = 0  # batches in a row that failed
        self._good: Feed | None = None  # a row that DALI computed: tells a broken executor from bad data

    def _start(self, feed: Feed) -> _Flight:
        """Decode on the host what DALI must not decode, then feed the batch and schedule its run."""
        if self._entries is None:
            self._entries = tuple(entry_of(self._program.inputs[n], feed.values[n]) for n in self._fed)
        causes: dict[int, DataError] = {}
        values = list(feed.values)
        for n in self._host.readings:
            values[n] = self._host.ready(n, feed, causes)
        return self._schedule(replace(feed, values=tuple(values)), causes)

    def _schedule(self, feed: Feed, causes: dict[int, DataError]) -> _Flight:
        """Feed a batch to DALI and schedule its run, unless some rows are known to be bad."""
        assert self._entries is not None
        entries = zip(self._fed, self._entries, strict=True)
        tensors = library.import_dali().tensors
        fed = [] if causes else [(feed.values[n], entry) for n, entry in entries]
        buffers = [self._tensors(tensors, rows, entry, feed.size, causes) for rows, entry in fed]
        if causes:
            return _Flight(feed, [], causes)
        if self._pipeline is None:
            self._pipeline = library.POOL.take(self._key) or self._build(self._entries)
        share = hold(sum(feed.large)) if any(feed.large) and not self.on_gpu else None
        try:
            for n, buffer in zip(self._fed, buffers, strict=True):
                # -1: a stream of DALI's own; what is kept on a GPU is complete, and `feed_input` waits for its copy.
                self._pipeline.feed_input(f"input{n}", buffer, **({"cuda_stream": -1} if type(buffer) is list else {}))
            if self._verifies and self._pipeline.decoders:
                self._pipeline.feed_input(VERIFIED, wholly(feed))
            self._pipeline.schedule_run()
        except Exception as error:
            # Some inputs are fed and others not, so no later output of this pipeline can be trusted.
            self._give_up()
            if is_of_device(str(error)):
                raise self._device_failed(str(error)) from error
            raise GpupipeError(f"{self.label} refused a batch of {self._names}: {cause_of(str(error))}") from error
        return _Flight(feed, buffers, {}, share=share)

    def _tensors(self, tensors: Any, rows: Any, entry: Entry, size: int, causes: dict[int, DataError]) -> Any:
        if entry.kind == "cached" and self._device_id is not None:
            return tensors_on_gpu(tensors, self._names, rows, entry, self._device_id, causes)
        return tensors_of(tensors, self._names, rows, entry, size, causes)

    def _finish(self, flight: _Flight) -> list[Any]:
        feed = flight.feed
        outputs = self._outcome(flight) if flight.outcome is None else flight.outcome
        if isinstance(outputs, BatchFailed):
            if not flight.causes:
                self._check_good_row(outputs.text)
            feed, outputs = self._judged(flight, outputs)
        else:
            self._failures = 0
            if self._good is None:
                self._good = kept(feed.chosen([0]))
        results, wrong = self._results(feed, outputs)
        if wrong:
            damaged = self._host.damaged(feed, wrong)
            faults = {row: one for row, one in wrong.items() if not one.images <= {*damaged.get(row, ())}}
            if len(faults) < len(wrong):
                results, wrong = self._repaired(feed)
            wrong = {**wrong, **faults}
        if wrong:
            where = f"{self.label}, {card_and_versions(self._device_id)}"
            raise WrongPixels({row: wrong[row].text for row in sorted(wrong)}, where, results)
        return results

    def _results(self, feed: Feed, outputs: Any) -> tuple[list[Any], dict[int, _Wrong]]:
        """The results among the outputs of a run, and the rows with images that were decoded wrongly."""
        count = len(self._program.outputs)
        outputs, others = outputs[:count], [to_numpy(output, feed.size) for output in outputs[count:]]
        shapes = sum(1 + len(value.specs) for value in self._foreign)
        self._check_shapes(others[:shapes])
        hand_over = to_numpy if self._device_id is None else to_device_array
        results = separate([hand_over(output, feed.size) for output in outputs])
        if not self._checked:
            self._checked = True
            for value, result in zip(self._program.outputs, results, strict=True):
                check_result(value, result)
        return results, self._wrong(feed, iter(others[shapes:]))

    def _repaired(self, feed: Feed) -> tuple[list[Any], dict[int, _Wrong]]:
        """Run a batch again with the host's pixels of all of its damaged JPEGs, which decoders decode differently.

        Raises:
            BatchFailed: the host refuses some of them.
        """
        causes: dict[int, DataError] = {}
        feed = self._with_pixels_of_host(feed, self._host.damaged(feed, range(feed.size)), causes)
        self._finish_later()
        flight = _Flight(feed, [], causes) if causes else self._schedule(feed, {})
        outputs = self._outcome(flight)
        if isinstance(outputs, BatchFailed):
            raise outputs
        return self._results(feed, outputs)

    def _with_pixels_of_host(
        self, feed: Feed, images: Mapping[int, Iterable[int]], causes: dict[int, DataError]
    ) -> Feed:
        """A batch with some of its images decoded by the host.

        Args:
            feed: the batch.
            images: by row, the inputs whose image the host decodes.
            causes: gets the errors of the rows with an image that the host refuses.
        """
        values: list[Any] = list(feed.values)
        for n in self._host.readings:
            values[n] = list(values[n])
        for row, inputs in images.items():  # the first bad image of a row is its reason
            try:
                for n in inputs:
                    values[n][row] = self._host.second_opinion(n, values[n][row])
            except DecodeError as error:
                causes[row] = error.kept()
        return replace(feed, values=tuple(values))

    def _wrong(self, feed: Feed, checks: Iterator[Any]) -> dict[int, _Wrong]:
        """The rows with wrong images; `checks` has the outputs of `check_nodes`."""
        found: dict[int, _Wrong] = {}
        for decoder in self._pipeline.decoders:
            wrong = self._prover.wrong_samples(decoder, feed, next(checks), next(checks)) if self._proves else {}
            images = next(checks) if self._verifies else ()
            for row in feed.verified:
                if row not in wrong and (text := self._prover.wrong_image(decoder, feed, row, images[row])):
                    wrong[row] = text
            for row, text in wrong.items():
                before = found.get(row, _Wrong(f"{decoder.name}: {text}", frozenset()))
                found[row] = _Wrong(before.text, before.images | {decoder.image})
        return found

    def _outcome(self, flight: _Flight) -> Any:
        """Wait for the oldest run: DALI's outputs, or BatchFailed. DALI returns runs in order only."""
        if flight.causes:
            return BatchFailed(str(next(iter(flight.causes.values()))), flight.causes)
        try:
            # Without a stream this waits for the batch, on a GPU too; the next run is scheduled already.
            outputs = self._pipeline.share_outputs()
        except (RuntimeError, MemoryError) as error:
            text = str(error) or type(error).__name__
            if "scheduler was shut down" in text:
                raise ClosedError(f"{self.label} was shut down because the interpreter exits") from error
            if "Calling type does not match" in text or "ExternalSource expected" in text:
                raise GpupipeError(f"{self.label} cannot run {self._names}: {cause_of(text)}") from error
            return BatchFailed(cause_of(text))  # the rest of DALI's text is about its own source code
        finally:
            share, flight.share = flight.share, None
            if share is not None:
                let_go(share)
        self._pipeline.release_outputs()
        return outputs

    def _device_failed(self, text: str, known: str = "") -> DeviceError:
        """Close the executor and return the error to raise for a failure that the data did not cause."""
        self._give_up()
        return device_failed(text, self.label, f"{self._names} in batches of {self._batch_size}", known)

    def _check_good_row(self, text: str) -> None:
        """After a failed run, compute a known good row again.

        Args:
            text: DALI's message about the failure.

        Raises:
            DeviceError: the row fails now; or there is no such row yet, and the text names the device.
        """
        if self._good is None:
            if is_of_device(text):
                raise self._device_failed(text)
            return
        self._finish_later()
        outputs = self._outcome(self._schedule(self._good, {}))
        if isinstance(outputs, BatchFailed):
            if self._host.damaged(self._good, [0]):  # a decoder may refuse alone what it decoded in a batch
                self._good = None
                return
            raise self._device_failed(text, "fails on rows that it computed before")

    def _give_up(self) -> None:
        """Close without returning the pipeline to the pool, since it is unusable."""
        self._closed, self._pipeline = True, None
        self._flights.clear()
        self._host.close()

    def discard(self) -> None:
        self._give_up()

    def _finish_later(self) -> None:
        """Take the results of all batches in flight, so that single runs can find the rows that fail."""
        for later in self._flights:
            if later.outcome is None:
                later.outcome = self._outcome(later)

    def _judged(self, flight: _Flight, failure: BatchFailed) -> tuple[Feed, Any]:
        """Run a failed batch again, with the images that DALI refuses decoded by the host.

        Returns:
            The batch as it was fed, and its outputs.

        Raises:
            BatchFailed: the host refuses some of them too, or the images are not the reason.
            DeviceError: the data is not the reason.
        """
        if not self._host.readings:
            raise failure
        self._finish_later()
        causes = dict(failure.causes)  # if there are any, DALI has not seen the batch at all
        rest = [row for row in range(flight.feed.size) if row not in causes]
        # Asking the host's threads first is faster than bisecting; DALI still decides, as it does for other batches.
        named = sample_of(failure.text) if self.one_by_one and self._failures < _LONE else None
        self._failures += 1
        refused = self._refused_by_both(flight.feed, [row for row in rest if row == named])
        refused = refused or self._refused_by_both(flight.feed, rest) or self._refused(flight.feed, rest)
        if len(refused) == len(rest) > 1:
            self._check_good_row(failure.text)
        if not refused and not causes:  # a run that fails and then succeeds is not due to its images
            raise self._device_failed(failure.text, "failed once and ran on the same batch again")
        images = dict.fromkeys((*causes, *refused), self._host.readings)
        feed = self._with_pixels_of_host(flight.feed, images, causes)
        if not causes:
            outputs = self._outcome(self._schedule(feed, {}))
            if not isinstance(outputs, BatchFailed):
                return feed, outputs
            failure = outputs  # not because of its images
            if self._good is None and len(refused) == len(rest) and can_compute(self._program, flight.feed):
                raise self._device_failed(
                    failure.text, "fails on every row of its first batch, which the host computes"
                )
        raise BatchFailed(failure.text, causes)

    def _refused_by_both(self, feed: Feed, rows: list[int]) -> list[int]:
        """The rows among these that the host refuses and for which a run fails."""
        return [row for row in self._host.refused(feed, rows) if self._refused(feed, [row])]

    def _refused(self, feed: Feed, rows: list[int]) -> list[int]:
        """The rows for which a run fails, found by bisection."""
        out, parts = [], [rows] if rows else []
        while parts:
            part = parts.pop()
            if isinstance(self._outcome(self._schedule(feed.chosen(part), {})), BatchFailed):
                middle = len(part) // 2
                if middle:
                    parts += [part[middle:], part[:middle]]
                else:
                    out += part
        return out

    def _check_shapes(self, shapes: list[Any]) -> None:
        """Compare the shapes of the results of users' functions, delivered or not, with their declared specs.

        Raises:
            SpecError: a shape differs.
        """
        rest = iter(shapes)
        for value in self._foreign:
            given, *made = (next(rest) for _ in range(1 + len(value.specs)))
            for index, rows in enumerate(made):
                for row, first in zip(rows, given, strict=True):
                    given_shape = tuple(first.tolist())
                    spec = value.op.promised(index, given_shape, value.x[0].spec.layout) or value.specs[index]
                    shape = tuple(row.tolist())
                    if not spec.accepts(TensorSpec(shape, spec.dtype)):
                        raise unlike(value, spec, f"one of shape {list(shape)}")

    def close(self) -> None:
        """Drain the pipeline and return it to the pool for the next executor of this program."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        self._host.close()
        pipeline, self._pipeline = self._pipeline, None
        flights, self._flights = self._flights, deque()
        if pipeline is None:
            return
        for flight in flights:
            if not flight.causes and flight.outcome is None:
                try:
                    pipeline.share_outputs()
                    pipeline.release_outputs()
                except RuntimeError:
                    continue  # bad data in a batch that is no longer needed; the pipeline is still good
        library.POOL.put(self._key, pipeline, self._program)

    @property
    def _key(self) -> tuple[Any, ...]:
        how = (self._decoding, self._proves, self._verifies)
        return (self._program.digest, self._entries, self._batch_size, self._threads, self._device_id, *how)

    def _build(self, entries: tuple[Entry, ...]) -> Any:
        dali = library.import_dali()
        on_gpu = self._device_id is not None
        if on_gpu:
            library.refuse_fork(self.label)
        d = Lowering(
            dali.fn,
            dali.types,
            dali.math,
            "gpu" if on_gpu else "cpu",
            "mixed" if on_gpu else "cpu",
            not on_gpu or self._device_id in REGION_DECODE,
            self._decoding,
            self._threads,
        )
        pipeline = dali.pipeline(
            batch_size=self._batch_size, num_threads=self._threads, device_id=self._device_id, prefetch_queue_depth=1
        )
        library.POOL.watch(pipeline)  # before it is built, in case the process forks in between
        with pipeline:
            nodes = input_nodes(d, self._program, dict(zip(self._fed, entries, strict=True)))
            for n in self._fed:
                # With `preserve`, this keeps inputs that no operator reads; if pruned, they could not be fed.
                pipeline.add_sink(nodes[self._program.inputs[n]])
            decoders, decoded = [], []
            for value in self._program.values:
                nodes[value] = lower(d, value, nodes)
                for image, region in d.decoded:
                    assert isinstance(value, Apply)
                    decoders.append(Decoder.of(self._program, value, region))
                    decoded.append(image)
                d.decoded.clear()
            checks = check_nodes(d, decoded, self._proves, self._verifies)
            shapes = [node.shape() for value in self._foreign for node in promises(value, nodes)]
            pipeline.set_outputs(*(delivered(d, nodes[value]) for value in self._program.outputs), *shapes, *checks)
        pipeline.decoders = tuple(decoders)  # kept with the pipeline for its next executor
        try:
            pipeline.build()
        except Exception as error:
            if is_of_device(str(error)):
                raise self._device_failed(str(error)) from error
            raise GpupipeError(f"{self.label} cannot build {self._names}: {cause_of(str(error))}") from error
        return pipeline
