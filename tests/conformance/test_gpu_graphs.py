"""Every graph that a GPU would run: each op, case, fusion and user's function, lowered for the GPU without one."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.contestants import CONTESTANTS, dali_chain
from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.plan import module_of
from benchmarks.job import Job
from gpupipe import ops
from gpupipe.errors import SpecError
from gpupipe.graph.host_values import HostValues, is_image
from gpupipe.graph.op import Case, Op
from gpupipe.graph.trace import trace
from gpupipe.graph.values import Apply, Input
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.decode_crop import DecodeCrop
from gpupipe.ops._shared.decoding import decoder
from gpupipe.ops._shared.policy import Policy
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.ops.aug_mix import AugMix
from gpupipe.ops.decode_image import DecodeImage
from gpupipe.ops.decode_jpeg import DecodeJpeg
from gpupipe.ops.rand_augment import RandAugment
from gpupipe.options import DecoderOptions
from gpupipe.spec import TensorSpec, flatten
from gpupipe.transform.program import Feed, Program
from tests.conformance.harness import Batch, given
from tests.conformance.test_fused import OPS
from tests.conformance.test_ops import CASES, COMPOSED

fn = pytest.importorskip("nvidia.dali.fn", reason="DALI is not installed")
from gpupipe.transform.dali import library  # noqa: E402
from gpupipe.transform.dali.feeding import LEGAL  # noqa: E402
from tests.conformance.gpu_graphs import (  # noqa: E402
    KERNELS,
    GpuGraph,
    has_symbols,
    looked_at,
    lowered,
    lowered_copy,
    lowering_for_a_gpu,
    written_by_hand,
)

ROWS = 4
UINT8 = TensorSpec((None, None, 3), "uint8", "HWC")
NUMBER = TensorSpec((), "int64")
FILES = [encoded(picture(45, 60 + n)) for n in range(ROWS)]
IMAGES = [picture(45, 60)] * ROWS
WINDOW = [np.zeros((ROWS, 2), np.int32), np.full((ROWS, 2), 24, np.int32)]
NUMBERS = [np.int64(k) for k in range(ROWS)]
PIXELS = [case for case in CASES if is_image(Batch.of(case, rows=1).call)]


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with lowering_for_a_gpu():
        yield


def of_batch(batch: Batch) -> GpuGraph:
    """The graph of a case."""
    program = Program(batch.results)
    return lowered(program, Feed.of(program, batch.values))


@functools.cache
def of_cases(varying: bool) -> list[tuple[Case, GpuGraph]]:
    """The graph of each case; of every fourth where parameters vary, which changes how they enter the graph."""
    return [(case, of_batch(Batch.of(case, varying=varying))) for case in (PIXELS[::4] if varying else PIXELS)]


@pytest.mark.parametrize("varying", [False, True], ids=["static", "varying"])
def test_every_case_of_every_op_would_run(varying: bool) -> None:
    refused, found = {}, GpuGraph()
    for case, graph in of_cases(varying):
        found.operators += graph.operators
        found.typed += graph.typed
        if graph.wrong:
            refused[str(case)] = graph.wrong

    assert refused == {}
    assert len(PIXELS) > 500
    typed = sum(found.operators[name, "gpu"] for name in KERNELS)
    assert found.typed > 0.5 * typed > 100  # the rest works on results of arithmetic, whose dtypes no argument says
    assert {name for name, device in found.operators if device == "gpu"} >= {"Cast", "Flip", "Resize", "Slice"}


FEW = 3
"""Copies from the CPU for each batch that an op may cost: the image where it comes from there, and its parameters.

Each further image is one more.
"""
OF_A_POLICY = 8
"""As `FEW`, for policies: each layer equalizes histograms, which takes images to the host and back."""


def test_an_op_costs_few_copies_to_the_gpu_whatever_the_number_of_its_parameters() -> None:
    many: dict[str, int] = {}
    for case, graph in (*of_cases(False), *of_cases(True)):
        copied = len(graph.copied) - max(len(case.inputs) - 1, 0)
        many[type(case.op).__name__] = max(many.get(type(case.op).__name__, 0), copied)

    policies = {type(case.op).__name__ for case in PIXELS if isinstance(case.op, Policy)}
    most = {name: OF_A_POLICY if name in policies else FEW for name in many}
    assert {name: count for name, count in many.items() if count > most[name]} == {}
    # Beside the image and the numbers, one for each layer of the deepest chain, whatever the number of chains.
    assert {name: many[name] for name in policies} == {
        "AugMix": 5, "AutoAugment": 4, "RandAugment": 5, "TrivialAugmentWide": 3
    }  # fmt: skip
    assert many["ColorJitter"] == many["AdjustContrast"] == FEW
    assert many["FlipLeftRight"] == 1  # only the image


@pytest.mark.parametrize("op", [AugMix(3, 6, 6), RandAugment(6)], ids=["6 chains of 6", "6 layers"])
def test_a_policy_of_six_layers_is_within_that(op: Policy) -> None:
    graph = of_batch(Batch.of(Case(op, (IMAGES[0],), ("HWC",))))

    assert graph.wrong == []
    assert len(graph.copied) == OF_A_POLICY


def _first_cases() -> Iterator[Case]:
    """One case of each op that takes an image, and not its bytes."""
    seen = set()
    for case in PIXELS:
        if type(case.op) not in seen and not any(isinstance(x, bytes) for x in case.inputs):
            seen.add(type(case.op))
            yield case


@pytest.mark.parametrize("dtype", LEGAL, ids=str)
def test_every_dtype_that_an_op_accepts_has_a_kernel(dtype: np.dtype[Any]) -> None:
    refused, accepted = {}, 0
    for case in _first_cases():
        with np.errstate(over="ignore"):  # nobody looks at the values
            inputs = tuple(x.astype(dtype) if np.ndim(x) == 3 else x for x in case.inputs)
        try:
            batch = Batch.of(replace(case, inputs=inputs))
            feed = Feed.of(program := Program(batch.results), batch.values)
        except SpecError:
            continue
        accepted += 1
        if wrong := lowered(program, feed).wrong:
            refused[case.op.name] = wrong

    assert refused == {}
    assert accepted > 1


@pytest.mark.parametrize("case", COMPOSED, ids=str)
def test_the_parts_of_an_op_would_run(case: Case) -> None:
    assert of_batch(Batch.of(case, varying=True).in_parts()).wrong == []


DECODERS_TO_FUSE = (DecodeJpeg(3), DecodeJpeg(3, True), DecodeJpeg(1), DecodeJpeg(0), DecodeImage(3))
FUSED: list[Op] = [*OPS, *(DecodeCrop(d, crop) for d in DECODERS_TO_FUSE for crop in (Crop(), Crop(24, 31)))]
"""The ops that only the optimizer makes."""


@pytest.mark.parametrize("regions", [False, True], ids=["whole images", "regions"])
@pytest.mark.parametrize("op", FUSED, ids=lambda op: f"{type(op).__name__}-{FUSED.index(op)}")
def test_a_fused_op_would_run(op: Any, regions: bool) -> None:
    decodes = isinstance(op, DecodeCrop)
    mirrors = [np.ones(ROWS, np.int32)] if not decodes and op.mirrored else []
    params = [*(WINDOW if op.crop else []), *mirrors]
    first, rows = (TensorSpec((), bytes), FILES) if decodes else (UINT8, IMAGES)

    assert lowered(*given(op, first, rows, params), regions).wrong == []


def _readme(data: Any) -> Any:
    image = ops.random_resized_crop(ops.decode_jpeg(data, channels=3), (224, 224))
    image = ops.random_flip_left_right(image)
    return ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)


def _long(data: Any) -> Any:
    image = ops.random_resized_crop(ops.decode_image(data, channels=3), (64, 64))
    image = ops.color_jitter(image, 0.4, 0.4, 0.4, 0.1)
    image = ops.random_jpeg_quality(image, 40, 90)
    image = ops.random_erasing(image, 0.5)
    return ops.transpose(ops.per_image_standardization(image), "CHW")


def _blurred(x: Any) -> Any:
    return ops.dali_function(functools.partial(fn.gaussian_blur, window_size=5), x, spec=UINT8, same_size=True)


def _plus(x: Any, k: Any) -> Any:
    return ops.dali_function(lambda a, b: a + b, x, k, spec=TensorSpec((None, None, 3), "int64", "HWC"))


def _beside(x: Any, k: Any) -> Any:
    return ops.flip_left_right(x), ops.dali_function(lambda b: b * 2, k, spec=NUMBER)


BYTES, BOTH = ([FILES], [TensorSpec((), bytes)]), ([IMAGES, NUMBERS], [UINT8, NUMBER])
ONE = [IMAGES], [UINT8]

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[list[Any], list[TensorSpec]]]] = {
    "the README's chain": (_readme, BYTES),
    "a long chain": (_long, BYTES),
    "a turn for each image": (lambda x, k: ops.rot90(x, k), BOTH),
    "a user's function": (_blurred, ONE),
    "a user's function of an image and a number": (_plus, BOTH),
    "a user's function of numbers": (_beside, BOTH),
    "arithmetic with a number": (lambda x, k: ops.cast(ops.flip_left_right(x), "float32") * k, BOTH),
    "a constant": (lambda x: ops.resize(x, (9, 9)) + np.ones((9, 9, 3), "f4"), ONE),
    "one value twice": (lambda x: (ops.flip_left_right(x),) * 2, ONE),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_as_users_write_it_would_run(name: str) -> None:
    function, (columns, specs) = FUNCTIONS[name]
    traced = trace(function, flatten(tuple(range(len(specs))) if len(specs) > 1 else 0)[1], specs)
    assert traced is not None
    program = Program(tuple(dict.fromkeys(value for value in traced.outputs if is_image(value))))
    keys = np.arange(ROWS, dtype=np.uint64)
    values = HostValues(ROWS, columns.__getitem__, lambda index: keys, seed=1, epoch=0)

    assert lowered(program, Feed.of(program, values)).wrong == []


@pytest.mark.parametrize(
    "name", [one.name for one in CONTESTANTS.values() if one.module == "dali_chain" and one.work == "chain-gpu"]
)
def test_a_pipeline_that_the_benchmarks_write_by_hand_would_run(name: str) -> None:
    graph = written_by_hand(
        lambda: dali_chain.pipeline(Job(name, ("a.tfrecord",)), ["a.idx"], **CONTESTANTS[name].options)
    )

    assert graph.wrong == []
    assert graph.operators["CropMirrorNormalize", "gpu"] == 1
    assert graph.typed == 2
    assert [device for operator, device in graph.operators if operator.startswith("decoders__")] == ["mixed"]


@pytest.mark.parametrize("name", ["engines", "regions", "pixels", "place", "bad", "memory", "speed"])
def test_the_pipelines_of_the_first_hour_would_run(name: str, tmp_path: Path) -> None:
    day = Day(dry=False, has_gpu=True, out=str(tmp_path), folder=str(tmp_path))
    for number in range(48):
        (tmp_path / f"photograph-{number}.jpg").write_bytes(FILES[0])
    questions = dict(module_of(name).questions(day))
    for other in ("words", "the chain"):  # not by hand
        questions.pop(other, None)

    graphs = {question: written_by_hand(ask) for question, ask in questions.items()}

    assert {question: graph.wrong for question, graph in graphs.items() if graph.wrong} == {}
    for graph in graphs.values():
        assert {device for operator, device in graph.operators if operator.startswith("decoders__")} == {"mixed"}


def _decoding(decode: Op, **others: Any) -> GpuGraph:
    window = WINDOW if isinstance(decode, DecodeCrop) else []
    return lowered(*given(decode, TensorSpec((), bytes), FILES, window), **others)


DECODERS = [DecodeJpeg(3), DecodeJpeg(0, True), DecodeImage(1), DecodeCrop(DecodeJpeg(3), Crop(24, 31))]


@pytest.mark.parametrize("regions", [False, True], ids=["whole images", "regions"])
@pytest.mark.parametrize("decode", DECODERS, ids=repr)
def test_what_options_ask_of_decoders_reaches_those_of_a_gpu_and_no_others(decode: Op, regions: bool) -> None:
    fast = DecoderOptions(hw_decoder_load=0.75, jpeg_fancy_upsampling=False, preallocate=(600, 800))
    asked = {
        "hw_decoder_load": 0.75,
        "jpeg_fancy_upsampling": False,
        "preallocate_height_hint": 600,
        "preallocate_width_hint": 800,
    }

    on_gpu, usual = (_decoding(decode, regions=regions, decoding=options) for options in (fast, None))
    cpu = SimpleNamespace(decoder_device="cpu", decoding=fast, types=SimpleNamespace(RGB=0, GRAY=1))
    on_cpu = decoder(cpu, 3, False)

    assert on_gpu.wrong == usual.wrong == []
    assert [args["device"] for args in on_gpu.decoders] == ["mixed"]
    assert asked.items() <= on_gpu.decoders[0].items()
    assert not {*asked} - {"jpeg_fancy_upsampling"} & {*on_cpu}
    assert on_cpu["jpeg_fancy_upsampling"] is True
    assert usual.decoders[0]["hw_decoder_load"] == 1.0
    assert usual.decoders[0]["jpeg_fancy_upsampling"] is True
    assert "preallocate_height_hint" not in usual.decoders[0]


@pytest.mark.parametrize("verifies", [False, True])
@pytest.mark.parametrize("decode", DECODERS, ids=repr)
def test_what_looks_at_decoded_images_would_run_and_leaves_little_behind(decode: Op, verifies: bool) -> None:
    bare = _decoding(decode, proves=False)
    graph = _decoding(decode, verifies=verifies)

    assert bare.wrong == graph.wrong == []
    added = graph.operators - bare.operators
    assert added["Resize", "gpu"] == added["Cat", "gpu"] == added["_Shape", "cpu"] == 1
    assert len(graph.copied) == len(bare.copied)
    assert sum(added.values()) <= 5 + 3 * verifies


@dataclass(frozen=True, slots=True)
class _Wrong(Op):
    """What a GPU would refuse: the negative controls, without which the tests above say nothing."""

    how: str

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return xs[0]

    def dali(self, d: Any, x: Any) -> Any:
        match self.how:
            case "no operator":
                return d.fn.peek_image_shape(x)
            case "argument on the GPU":
                return d.fn.resize(x, size=d.fn.cast(x, dtype=d.types.FLOAT))
            case "no such argument":
                return d.fn.resize(x, no_such_argument=1)
            case _:
                return d.fn.flip(d.fn.cast(x, dtype=d.types.FLOAT16), horizontal=1)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("no operator", "peek_image_shape|PeekImageShape"),
        ("argument on the GPU", "Named arguments must be on CPU"),
        ("no such argument", "no_such_argument"),
        pytest.param(
            "no kernel", "Flip has no GPU kernel from float16 to float16",
            marks=pytest.mark.skipif(not has_symbols(), reason="reads symbols with nm, which is not installed"),
        ),
    ],
)  # fmt: skip
def test_what_a_gpu_would_refuse_is_refused_here(how: str, text: str) -> None:
    program = Program((Apply(_Wrong(how), (Input(0, UINT8),)),))

    graph = lowered(program, Feed(1, ([np.zeros((4, 4, 3), np.uint8)],)))

    assert re.search(text, "; ".join(graph.wrong))


@dataclass(frozen=True, slots=True)
class _OfTheHost(Op):
    """What DALI computes on the host, whatever the device."""

    how: str

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return TensorSpec(None, None)

    def dali(self, d: Any, x: Any) -> Any:
        made = {
            "a shape": lambda: x.shape(),
            "a constant": lambda: d.types.Constant(np.arange(3, dtype=np.int32), device="cpu"),
            "a number": lambda: d.types.Constant(2.5),
            "an image": lambda: x,
        }
        return made[self.how]()


@pytest.mark.parametrize("how", ["a shape", "a constant", "a number", "an image"])
def test_a_result_that_is_computed_on_the_host_is_delivered_on_the_gpu(how: str) -> None:
    program = Program((Apply(_OfTheHost(how), (Input(0, UINT8),)),))

    graph = lowered(program, Feed(1, ([np.zeros((4, 4, 3), np.uint8)],)))

    assert graph.wrong == []


def test_a_result_on_the_host_is_found_by_these_tests() -> None:
    parts = library.import_dali()
    pipeline = parts.pipeline(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        pipeline.set_outputs(fn.external_source(name="input0", dtype=parts.types.UINT8, ndim=3).shape())

    assert looked_at(pipeline, 1).wrong == ["result 0 is on the cpu, and is delivered as an array of the GPU"]


@pytest.mark.parametrize("source", ["cpu", "gpu"])
def test_what_copies_arrays_to_a_gpu_and_on_it_would_run(source: str) -> None:
    for dtype in LEGAL:
        graph = lowered_copy(source, dtype)

        assert graph.wrong == []
