"""The chain in other libraries: each that is installed does the same work as the others, read off its output."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import compare, report
from benchmarks.contestants import CONTESTANTS, batches, missing
from benchmarks.contestants.peers import opencv_chain, source, spdl_chain, torchvision_chain
from benchmarks.contestants.torch_chain import window, with_pillow
from benchmarks.equal import UnequalWork, check, expected_counts, refusals
from benchmarks.job import IMAGENET_MEAN, IMAGENET_STD, Audit, Job, Run
from benchmarks.pairs import Pair, audit
from benchmarks.probe import audit_images, probe_jpeg, write_probes
from benchmarks.tfrecord import example, write_record

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")

COUNT, TIMES = 128, 2
FIGURES = {"share": 0.43, "contrast": 0.28, "flipped": 0.5, "level": 128.0}


def job(folder: Path, name: str, times: int = TIMES) -> Job:
    return Job(name, tuple(map(str, write_probes(folder, COUNT, 4))) * times, mode="audit", shuffle=64)


def agrees(found: Audit, box: bool = False) -> None:
    assert (found.shape, found.dtype, found.layout) == ((64, 224, 224, 3), "float32", "NHWC")
    assert found.counts == {str(TIMES): COUNT}
    assert found.figures["share"] == pytest.approx(0.43, abs=4 * found.errors["share"])
    assert found.figures["flipped"] == pytest.approx(0.5, abs=0.13)
    assert found.figures["level"] == pytest.approx(128, abs=0.5)
    # A triangle leaves 0.28 of the stripes' contrast, a box 0.42.
    assert found.figures["contrast"] == pytest.approx(0.42 if box else 0.28, abs=0.05)


@pytest.mark.parametrize(
    "name", ["torch-alone", "dali-dynamic", "dali-captured", "grain", "grain-workers", "spdl-pillow", "opencv"]
)
def test_a_peer_does_the_work_of_the_chain(name: str, tmp_path: Path) -> None:
    if why := missing(CONTESTANTS[name]):
        pytest.skip(why)
    # What DALI or Grain's processes leave behind, and the one thread of torch, end with a process.
    own = name.startswith(("dali", "torch")) or name == "grain-workers"
    work = job(tmp_path, name)
    agrees(audit(work) if own else audit_images(name, batches(work)), box=name == "opencv")


def test_turboloader_does_the_work_of_the_chain_on_all_cores(tmp_path: Path) -> None:
    pytest.importorskip("turboloader")
    from benchmarks.contestants.peers import turboloader_chain
    from benchmarks.machine import cores

    with pytest.raises(ValueError, match="one thread for each of"):
        next(turboloader_chain.batches(Job("turboloader", (), threads=cores() + 1)))
    files = job(tmp_path, "turboloader")
    found = audit_images("turboloader", turboloader_chain.batches(Job("x", files.files, threads=cores())))
    assert found.counts == {str(TIMES): COUNT}


def test_spdl_decodes_with_ffmpeg_where_it_loads(tmp_path: Path) -> None:
    spdl = pytest.importorskip("spdl.io")
    try:
        spdl.demux_image(probe_jpeg(8, 8))
    except RuntimeError as error:
        pytest.skip(str(error)[:60])
    agrees(audit_images("spdl", spdl_chain.batches(job(tmp_path, "spdl"), "ffmpeg")))


def test_torchvisions_transforms_do_the_work_of_the_chain_with_any_decoder(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("simplejpeg")
    try:
        import torchvision.transforms.v2  # noqa: F401
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision does not load beside this torch: {error}")
    from simplejpeg import decode_jpeg

    def decode(data: Any) -> Any:
        return torch.from_numpy(decode_jpeg(data.numpy().tobytes(), "RGB")).permute(2, 0, 1)

    agrees(audit_images("torchvision", torchvision_chain.batches(job(tmp_path, "torchvision"), decode)))


def test_a_peer_takes_part_where_it_is_named_or_all_are() -> None:
    def names(*asked: str) -> set[str]:
        here, absent = compare.present(compare.Comparison("chain", contestants=asked, against="gpupipe-numpy"))
        return {*here, *absent}

    peers = {name for name, one in CONTESTANTS.items() if one.peer}

    assert len(peers) == 11 and not peers & names()
    assert names("opencv") == {"opencv", "gpupipe-numpy"}
    assert names("all") == {*names(), *peers}


def test_work_that_is_known_to_differ_is_no_refusal_in_that_figure_alone() -> None:
    one = Audit("a", (64, 224, 224, 3), "float32", "NHWC", expected_counts(512, 1), FIGURES)
    box = Audit("b", (64, 224, 224, 3), "float32", "NHWC", expected_counts(512, 1), {**FIGURES, "contrast": 0.42})

    for both in ([one, box], [box, one]):
        check(both, one.counts, {"b": ("contrast",)})
    assert refusals([one, box], one.counts, {"b": ("share",)}) == ["contrast: a 0.28, b 0.42"]
    with pytest.raises(UnequalWork, match=r"contrast: a 0\.28, b 0\.42"):
        check([one, box], one.counts)


def test_a_table_and_a_result_say_which_work_is_not_equal() -> None:
    def made(name: str) -> Run:
        return Run(name, 100, 1.0, 2.0, 0.1, 0.2, 50.0, (64, 224, 224, 3), "float32")

    pairs = [Pair(name, made(name), made("dali"), False) for name in ("dali", "opencv")]
    text = report.table(report.summary(pairs, "dali"), "dali", {}, "image")

    assert "OpenCV loop, threads *" in text
    assert "* OpenCV loop, threads: not equal work: it shrinks with a box filter" in text
    assert list(report.document("chain", {}, pairs, "dali", [], {})["not_equal"]) == ["opencv"]


def test_records_are_read_by_index_in_any_process(tmp_path: Path) -> None:
    path = tmp_path / "one.tfrecord"
    with path.open("wb") as file:
        for label in range(3):
            write_record(file, example(b"jpeg %d" % label, label))
    places = source.Places(Job("x", (str(path), str(path))))

    again: source.Places = pickle.loads(pickle.dumps(places))
    assert [again[i] for i in range(len(again))] == [(b"jpeg %d" % i, i) for i in range(3)] * 2
    assert sorted(places.shuffled(0)) == list(range(6)) != places.shuffled(0)


def test_an_image_is_normalised_line_by_line() -> None:
    image = np.random.default_rng(0).integers(0, 256, (224, 224, 3), np.uint8)
    out = np.empty(image.shape, np.float32)

    source.normalised(image, out)

    np.testing.assert_allclose(out, (image - np.array(IMAGENET_MEAN)) / IMAGENET_STD, atol=1e-5)


def test_pillow_resizes_the_window_alone() -> None:
    """The drawn window, decoded and resized by hand, is what comes out."""
    from PIL import Image

    class Fixed:
        def __init__(self) -> None:
            self.draws: Iterator[float] = iter((0.5, 0.0, 0.9))  # of the area, the logarithm of the aspect, the mirror

        def uniform(self, low: float, high: float) -> float:
            return next(self.draws)

        def randint(self, low: int, high: int) -> int:
            return low

        def random(self) -> float:
            return next(self.draws)

    jpeg = probe_jpeg(375, 500)
    x, y, w, h = window(375, 500, Fixed())
    pixels = Image.open(io.BytesIO(jpeg)).crop((x, y, x + w, y + h)).resize((224, 224), Image.Resampling.BILINEAR)

    np.testing.assert_array_equal(with_pillow(jpeg, Fixed()), np.asarray(pixels))


def test_the_loop_over_opencv_yields_every_batch_in_turn(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    shapes = [images.shape for images, _ in opencv_chain.batches(job(tmp_path, "opencv", 1))]
    assert shapes == [(64, 224, 224, 3)] * 2
