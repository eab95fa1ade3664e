"""The parts of the day: all of them on the CPU, and what they make of what they find."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu_day import decoders, inputs, outcomes
from benchmarks.gpu_day.day import ROOT, Day
from benchmarks.gpu_day.ledger import Ledger
from benchmarks.gpu_day.parts import complete, environment, pixels, place, streams, suite, tolerances, train
from benchmarks.gpu_day.plan import ORDER, part
from gpupipe.comparison.usage import nvml
from gpupipe.transform import machine

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")
needs_dali = pytest.mark.skipif(not machine.has_dali(), reason="DALI is not installed")


@pytest.fixture
def day(tmp_path: Path) -> Day:
    return Day(dry=True, has_gpu=False, out=str(tmp_path), folder=str(tmp_path))


@needs_dali
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_dry_run_asks_every_question_that_needs_no_gpu_within_three_minutes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "gpu-day", "--dry", "--minutes", "3", "--out", str(tmp_path)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    ledger = Ledger(tmp_path / "gpu-day-dry.jsonl")
    found = {name: ledger.of(name) for name in ORDER}
    absent = {name: one.absent for name, one in found.items() if one.absent}
    assert {name: one.failures for name, one in found.items() if one.failures} == {}
    assert {name for name, one in found.items() if one.state == "done"} == set(ORDER) - set(absent)
    assert all(found[name].answers for name in set(ORDER) - set(absent))
    assert set(absent) <= {"capture", "train"}  # torch may be missing
    assert "GPU" in absent["capture"]
    assert found["suite"].answers["the stand-in"]["failed"] == {}
    assert found["suite"].answers["the stand-in"]["passed"] > 5
    assert all(f"\n{name} (" in done.stdout for name in ORDER)
    assert "cannot be shown" not in done.stdout


def test_what_decoders_need_and_which_tolerances_are_too_small_is_said() -> None:
    def case(name: str, inside: float, everywhere: float, atol: float = 0, ring: float | None = None) -> dict[str, Any]:
        return {"case": name, "decodes": name.startswith("decode"), "atol": atol, "ring": ring,
                "inside": inside, "all": everywhere, "mean": 0.1}  # fmt: skip

    lines = tolerances.summary({
        "decode_jpeg": {"cases": 9, "exact": 7, "decodes": True, "apart": [
            case("decode a", 3.0, 3.0), case("decode b", 2.5, 7.5, atol=1, ring=3)]},
        "resize": {"cases": 4, "exact": 1, "decodes": False, "apart": [
            case("fits", 1.0, 18.0, 1, 18), case("rough", 2.0, 5.0, 1, 18), case("edge", 1.0, 20.0, 1, 18),
            {"case": "none", "decodes": False, "atol": 0, "ring": None, "error": "GpupipeError: no kernel"}]},
    })  # fmt: skip

    assert lines[0] == "13 cases of 2 ops, 8 of them exact"
    assert lines[1].startswith("GPU_DECODING = 5 is what the decoders need")
    assert lines[2:] == [
        "rough: atol 1 -> 2, ring 18 -> 18", "edge: atol 1 -> 1, ring 18 -> 20", "none: GpupipeError: no kernel",
    ]  # fmt: skip


@needs_dali
def test_a_case_that_is_off_is_measured_and_one_that_fails_is_told_from_a_gpu_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gpupipe.errors import DeviceError, GpupipeError
    from tests.conformance import harness
    from tests.conformance.test_ops import CASES

    case = next(case for case in CASES if case.op.name == "flip_left_right" and np.ndim(case.inputs[0]) == 3)
    meant = harness.Batch.of(case, varying=True).references()
    moved = [tuple(np.pad(x[1:-1, 1:-1], ((1, 1), (1, 1), (0, 0)), constant_values=0) for x in row) for row in meant]
    ring = max(float(abs(a.astype(float) - b).max()) for row, other in zip(meant, moved, strict=True)
               for a, b in zip(row, other, strict=True))  # fmt: skip

    monkeypatch.setattr(harness.Batch, "run", lambda self, kind: moved)
    found = tolerances.measured(case, "dali-cpu")
    assert (found["inside"], found["all"]) == (0.0, ring)
    assert ring > 0

    def fails(error: Exception) -> Callable[..., Any]:
        def run(self: Any, kind: str) -> Any:
            raise error

        return run

    monkeypatch.setattr(harness.Batch, "run", fails(GpupipeError("no kernel")))
    assert tolerances.measured(case, "dali-cpu")["error"] == "GpupipeError: no kernel"
    monkeypatch.setattr(harness.Batch, "run", fails(DeviceError("the GPU is gone")))
    with pytest.raises(DeviceError, match="the GPU is gone"):
        tolerances.measured(case, "dali-cpu")


TESTS = """
import os, pytest

def test_good(): pass
def test_bad(): assert 1 == 2
def test_skipped(): pytest.skip("no GPU")

@pytest.fixture
def falls():
    yield
    raise RuntimeError("behind the test")

def test_falls_behind(falls): pass
def test_ends_the_process(): os._exit(7)
def test_never_run(): pass
"""


def test_outcomes_are_known_although_pytest_was_ended(day: Day, tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)

    found = suite.run(day, "some", ("-c", "/dev/null", f"--rootdir={tmp_path}", str(tmp_path / "test_some.py")))

    names = {name.partition("::")[2]: said for name, said in found["failed"].items()}
    assert (found["passed"], found["skipped"], found["ended"]) == (1, 1, "pytest ended with 7")
    assert names.keys() == {"test_bad", "test_falls_behind"}
    assert "RuntimeError" in names["test_falls_behind"]
    assert [name.partition("::")[2] for name in found["unfinished"]] == ["test_ends_the_process"]


def test_a_file_that_cannot_be_collected_is_a_failure_and_no_test_at_all_an_error(day: Day, tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("import no_such_module")
    usual = ("-c", "/dev/null", f"--rootdir={tmp_path}")

    found = suite.run(day, "some", (*usual, str(tmp_path / "test_some.py")))
    assert list(found["failed"].values()) == ["it cannot be collected"]

    with pytest.raises(RuntimeError, match="no test was run: pytest ended with 4"):
        suite.run(day, "none", (*usual, str(tmp_path / "nowhere.py")))


def test_tests_in_several_processes_are_counted_once(day: Day, tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "test_some.py").write_text("def test_a(): pass\ndef test_b(): pass\ndef test_c(): assert 0\n")

    found = suite.run(day, "some", ("-n", "2", "-c", "/dev/null", f"--rootdir={tmp_path}", str(tmp_path)))

    assert (found["passed"], len(found["failed"]), found["unfinished"]) == (2, 1, [])


def test_a_plugin_for_benchmarks_that_refuses_several_processes_has_no_part_in_it(
    day: Day, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_some.py").write_text("def test_a(): pass\n")
    (tmp_path / "plugin_of_benchmarks.py").write_text("def pytest_configure(config): raise UserWarning('with xdist')\n")
    (found := tmp_path / "plugin_of_benchmarks-1.dist-info").mkdir()
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-of-benchmarks\nVersion: 1\n")
    (found / "entry_points.txt").write_text("[pytest11]\nbenchmark = plugin_of_benchmarks\n")  # as pytest-benchmark
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    assert suite.run(day, "some", ("-c", "/dev/null", f"--rootdir={tmp_path}", str(tmp_path)))["passed"] == 1


def test_the_suite_names_every_folder_with_a_test_marked_gpu() -> None:
    texts = {path.relative_to(ROOT): path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    marked = {path for path, text in texts.items() if re.search(r"pytest\.mark\.gpu\b", text)}
    helpers = [".".join(path.with_suffix("").parts) for path in marked if not path.name.startswith("test_")]
    assert len(helpers) == 2  # lists of executors, one of them marked
    parameters = re.compile(rf"from ({'|'.join(map(re.escape, helpers))}) import .*\bEXECUTORS\b")
    marked |= {path for path, text in texts.items() if parameters.search(text)}

    assert set(suite.FOLDERS) == {str(path.parent) for path in marked if path.name.startswith("test_")}


def test_the_notes_of_a_run_are_read_line_by_line(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_text("".join(json.dumps({"test": test, "outcome": outcome}) + "\n" for test, outcome in [
        ("a", "began"), ("a", "passed"), ("b", "began"), ("b", "failed"), ("b", "passed"), ("c", "began"),
    ]))  # fmt: skip

    found = outcomes.read(notes)

    assert (found["passed"], found["failed"], found["unfinished"]) == (1, {"b": ""}, ["c"])
    assert outcomes.read(tmp_path / "nothing")["passed"] == 0


class FakeNvml:
    """An NVML of one card, whose functions fill in what they are handed."""

    def __init__(self, start: int = 0) -> None:
        self.start, self.ends = start, 0

    def nvmlInit_v2(self) -> int:
        return self.start

    def nvmlShutdown(self) -> int:
        self.ends += 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        handle._obj.value = 100 + index.value
        return 0

    def nvmlDeviceGetName(self, handle: Any, name: Any, size: Any) -> int:
        name.value = b"A card %d" % handle.value
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, size: Any) -> int:
        text.value = b"580.65.06"
        return 0

    def nvmlSystemGetCudaDriverVersion_v2(self, version: Any) -> int:
        version._obj.value = 13010
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = 9, 0
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used = 80 << 30, handle.value << 20
        return 0

    def nvmlDeviceGetMigMode(self, handle: Any, now: Any, later: Any) -> int:
        now._obj.value = int(handle.value == 101)
        return 0

    def nvmlDeviceGetJpgUtilization(self, handle: Any, load: Any, period: Any) -> int:
        load._obj.value = 42
        return 0


def test_cards_are_read_off_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: fake)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")

    assert nvml.cards() == [
        nvml.Card("A card 100", 81920, "9.0", "580.65.06", "13.1", False),
        nvml.Card("A card 101", 81920, "9.0", "580.65.06", "13.1", True),
    ]
    assert nvml.memory_used() == 101
    assert nvml.jpeg_load() == 42
    assert fake.ends == 3


@pytest.mark.parametrize("found", [FakeNvml(start=9), None], ids=["refuses", "is missing"])
def test_without_nvml_there_are_no_cards(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Any:
        if found is None:
            raise OSError(name)
        return found

    monkeypatch.setattr(ctypes, "CDLL", load)

    assert (nvml.cards(), nvml.memory_used(), nvml.jpeg_load()) == ([], 0, None)


def test_a_module_that_is_missing_is_named_with_what_needs_it(monkeypatch: pytest.MonkeyPatch, day: Day) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(complete, "MODULES", {name: complete.MODULES[name] for name in ("numpy", "cupy")})

    lines = complete.summary({"modules": complete.questions(day)["modules"]()})

    assert len(lines) == 1
    assert lines[0].startswith("missing: cupy, for batches as CuPy arrays, mixup and cutmix")
    absent = dict.fromkeys(environment.LIBRARIES, "")
    assert "libnvcuvid.so.1 (the driver's engines" in environment.summary({"libraries": absent})[0]


@needs_dali
def test_a_decoder_that_gives_other_pixels_elsewhere_is_seen(day: Day, monkeypatch: pytest.MonkeyPatch) -> None:
    real = decoders.rows

    def first_is_brighter(pipeline: Any, files: Any) -> Any:
        rows = real(pipeline, files)
        return [np.minimum(rows[0], 250) + np.uint8(5), *rows[1:]]

    monkeypatch.setattr(place, "rows", first_is_brighter)
    found = place.questions(day)["load 1.0"]()
    assert found["again"]["images"] == 0
    assert found["batches of 2"]["images"] == 1 and found["batches of 2"]["most"] == 5

    host: Any = decoders.make(day, decoders.decoding(), on_host=True)
    monkeypatch.setattr(pixels, "rows", lambda pipeline, files: first_is_brighter(pipeline, files)
                        if pipeline is not host else real(pipeline, files))  # fmt: skip
    monkeypatch.setattr(
        pixels, "make", lambda day, build, on_host=False: host if on_host else decoders.make(day, build)
    )
    answers = {"load 1.0, fancy": pixels.questions(day)["load 1.0, fancy"]()}
    assert {one["most"] for one in answers["load 1.0, fancy"].values()} == {5}
    assert "4:2:0 5 levels" in pixels.summary(answers)[0]


@needs_dali
def test_a_batch_that_changes_before_it_is_read_is_a_wrong_sum(day: Day, monkeypatch: pytest.MonkeyPatch) -> None:
    assert streams.questions(day)["the host, late"]() == {"batches": 2, "images": 0, "labels": 0}

    def overwritten(images: Any, labels: Any) -> tuple[float, int]:
        return inputs.sums(images * 0, labels)

    truth = iter([1, 1])
    monkeypatch.setattr(streams, "sums", lambda x, y: inputs.sums(x, y) if next(truth, 0) else overwritten(x, y))
    assert streams.questions(day)["the host, late"]() == {"batches": 2, "images": 2, "labels": 0}


def test_the_model_is_resnet_50() -> None:
    torch = pytest.importorskip("torch")

    model = train.resnet()

    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
    assert model.eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)


def test_a_step_that_waits_for_data_has_a_stall() -> None:
    usual = {"images_s": 1, "cpu_ms": 1}

    lines = train.summary({"a batch that stays": {"ms": 75.0, **usual}, "the loader": {"ms": 100.0, **usual}})

    assert "stall" not in lines[0]
    assert lines[1].endswith("stall 25.0%")


def test_parts_that_need_torch_say_so_before_they_begin() -> None:
    assert all("torch" in part(name).needs for name in ("train", "capture"))
