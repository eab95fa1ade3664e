"""Which executor is chosen, on machines of every kind; the machine is simulated, the rules are real."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpupipe import Dataset, ops
from gpupipe import cpus as cpus_module
from gpupipe.errors import MissingDependencyError, PlanError
from gpupipe.graph.values import Apply, Input
from gpupipe.ops.cast import Cast
from gpupipe.optimize.lower.compile import lower_dry
from gpupipe.optimize.place import placer
from gpupipe.options import Options
from gpupipe.spec import TensorSpec
from gpupipe.transform import choose
from gpupipe.transform import machine as machine_of
from gpupipe.transform.choose import Choice, choose_for, make_executor, resolve_device, threads_of, unsupported
from gpupipe.transform.program import Program
from tests.transform.tiny import IMAGE, TinyDaliOnly, TinyHostOnly, chain


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this machine look like one with so many GPUs, with or without DALI."""
    sizes = [name for names in cpus_module.LOCAL_RANKS.values() for name in names]
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_CPUS_ON_NODE", *cpus_module.LOCAL_RANKS, *sizes):
        monkeypatch.delenv(name, raising=False)

    def pretend(
        gpus: int,
        dali: bool,
        fast: bool = False,
        *,
        built_for: int | None = 13,
        driver: int | None = 13,
        **environment: str,
    ) -> None:
        monkeypatch.setattr(machine_of, "installed", lambda: (gpus, driver))
        monkeypatch.setattr(choose, "has_dali", lambda: dali)
        monkeypatch.setattr(choose, "has_fast", lambda: fast)
        monkeypatch.setattr(choose, "fast_trouble", lambda: "" if fast else "missing")
        monkeypatch.setattr(choose, "dali_cuda", lambda: built_for)
        monkeypatch.setattr(sys, "platform", "linux")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return pretend


FEW, MORE = choose.FEW_THREADS, choose.FEW_THREADS + 1
FOUND = "OpenCV and cykooz-resizer found"
NEITHER = f"DALI is not installed .pip install.*{FOUND}.*less than NumPy"


@pytest.mark.parametrize(
    ("gpus", "dali", "fast", "options", "executor", "why"),
    [
        (0, False, False, Options(), "numpy", "DALI is not installed"),
        (0, True, False, Options(), "dali-cpu", "no GPU found"),
        (2, True, False, Options(), "dali-gpu", "2 GPUs and DALI found"),
        (2, False, False, Options(), "numpy", "2 GPUs found, DALI is not installed"),
        (2, True, False, Options(backend="numpy"), "numpy", "backend='numpy'"),
        (2, True, False, Options(backend="dali", device="cpu"), "dali-cpu", "device='cpu'"),
        (2, True, False, Options(device="gpu:1"), "dali-gpu", "device='gpu:1'"),
        (0, True, True, Options(threads=FEW), "fast", FOUND),
        (0, True, True, Options(threads=MORE), "dali-cpu", "no GPU found"),
        (0, False, True, Options(threads=FEW), "fast", FOUND),
        (0, False, True, Options(threads=MORE), "fast", NEITHER),
        (1, False, True, Options(threads=MORE), "fast", NEITHER),
        (1, True, True, Options(threads=2), "dali-gpu", "1 GPU and DALI found"),
        (1, True, True, Options(threads=2, device="cpu"), "fast", FOUND),
        (0, True, True, Options(threads=2, backend="dali"), "dali-cpu", "no GPU found, DALI found"),
        (0, True, True, Options(threads=MORE, backend="fast"), "fast", "backend='fast'"),
    ],
)
def test_the_choice(machine: Any, gpus: int, dali: bool, fast: bool, options: Options, executor: str, why: str) -> None:
    machine(gpus, dali, fast)

    choice = resolve_device(options.resolve())

    number = 1 if options.device == "gpu:1" else 0
    assert (choice.executor, choice.device_id) == (executor, number if executor == "dali-gpu" else None)
    assert re.search(why, choice.why)
    assert ("less than NumPy" in choice.why) == ("less than NumPy" in why)


@pytest.mark.parametrize(
    ("gpus", "dali", "options", "error", "text"),
    [
        (0, True, Options(device="gpu"), PlanError, "needs an NVIDIA GPU and its driver, found none.*device='auto'"),
        (2, True, Options(device="gpu:2"), PlanError, "needs GPU 2, found 2"),
        (2, False, Options(device="gpu"), MissingDependencyError, "pip install nvidia-dali-cuda130 cupy-cuda13x"),
        (0, False, Options(backend="dali"), MissingDependencyError, r"pip install nvidia-dali-cuda130\)"),
        (2, True, Options(backend="numpy", device="gpu"), PlanError, "backend 'numpy' runs on the CPU"),
        (0, True, Options(backend="fast"), MissingDependencyError, "cannot run: missing"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(
    machine: Any, gpus: int, dali: bool, options: Options, error: type[Exception], text: str
) -> None:
    machine(gpus, dali)

    with pytest.raises(error, match=text):
        resolve_device(options.resolve())


TORCHRUN = {"LOCAL_RANK": "3"}
ONLY = {"SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "1"}


@pytest.mark.parametrize(
    ("environment", "device", "torch_on", "device_id"),
    [
        pytest.param(TORCHRUN, "auto", None, 3, id="torchrun"),
        pytest.param(TORCHRUN, "gpu", None, 3, id="torchrun, a GPU is asked for"),
        pytest.param(TORCHRUN, "gpu:1", None, 1, id="the user's number"),
        pytest.param({**TORCHRUN, "CUDA_VISIBLE_DEVICES": "2"}, "gpu", None, 0, id="a rank that sees one GPU"),
        pytest.param({"SLURM_LOCALID": "2"}, "auto", None, 2, id="Slurm"),
        pytest.param({"OMPI_COMM_WORLD_LOCAL_RANK": "2"}, "gpu", None, 2, id="Open MPI"),
        pytest.param({"MPI_LOCALRANKID": "2"}, "auto", None, 2, id="Intel MPI"),
        pytest.param({"SLURM_LOCALID": "2", **TORCHRUN}, "auto", None, 3, id="torchrun under Slurm"),
        pytest.param({}, "auto", 3, 3, id="the device that torch works on"),
        pytest.param({}, "auto", None, 0, id="torch works on none"),
        pytest.param({"LOCAL_RANK": "1"}, "auto", 3, 1, id="torchrun and torch"),
        pytest.param(ONLY, "auto", 3, 3, id="the only process of a launcher is no rank"),
    ],
)
def test_which_gpu_a_process_takes(
    machine: Any, monkeypatch: pytest.MonkeyPatch, environment: Any, device: Any, torch_on: int | None, device_id: int
) -> None:
    machine(4, True, **environment)
    cuda = SimpleNamespace(is_initialized=lambda: torch_on is not None, current_device=lambda: torch_on)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))

    choice = resolve_device(Options(device=device).resolve())

    assert choice.device_id == device_id
    assert "MPI" not in str(environment) or f"{next(iter(environment))}=2" in choice.why


@pytest.fixture
def cpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this machine look like one with so many CPUs, some of which are this process's."""

    def pretend(of_machine: int, own: int | None = None) -> None:
        monkeypatch.setattr(machine_of, "cpus_of_machine", lambda: of_machine)
        monkeypatch.setattr(machine_of, "cpu_count", lambda: own or of_machine)

    return pretend


@pytest.mark.parametrize(
    ("environment", "gpus", "of_machine", "own", "threads", "why"),
    [
        ({}, 8, 192, None, 16, "192 CPUs"),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, 8, 12, None, 12, "12 CPUs"),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}, 8, 96, None, 12, "96 CPUs for 8 ranks, LOCAL_RANK=3 of 8"),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}, 8, 4, None, 1, "4 CPUs for 8 ranks"),
        ({"LOCAL_WORLD_SIZE": "4"}, 8, 32, None, 8, "32 CPUs for 4 ranks, LOCAL_WORLD_SIZE=4"),
        ({"LOCAL_RANK": "3"}, 8, 64, None, 8, "64 CPUs for 8 ranks, LOCAL_RANK=3, one rank for each GPU"),
        ({"LOCAL_RANK": "1", "SLURM_NTASKS_PER_NODE": "4"}, 8, 32, None, 8, "32 CPUs for 4 ranks, LOCAL_RANK=1 of 4"),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "1"},
         8, 16, None, 8, "16 CPUs for 2 ranks, LOCAL_RANK=1 of 2"),
        ({"SLURM_LOCALID": "1", "SLURM_TASKS_PER_NODE": "4(x2),3"}, 4, 32, None, 8, "32 CPUs for 4 ranks"),
        ({"SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "4"}, 4, 32, 8, 8, "32 CPUs for 4 ranks (8 of them given to"),
        ({"SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "4"}, 4, 32, 2, 2, "(2 of them given to this one)"),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 4, 20, None, 10, "CPUs for 2 ranks"),
        ({"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, 4, 20, None, 10, "20 CPUs for 2 ranks, MPI_LOCALRANKID=1"),
    ],
)  # fmt: skip
def test_ranks_share_the_cpus_of_a_machine_with_gpus(
    machine: Any, cpus: Any, environment: Any, gpus: int, of_machine: int, own: int | None, threads: int, why: str
) -> None:
    machine(gpus, True, **environment)
    cpus(of_machine, own)

    count, counted = threads_of(Choice("dali-gpu", 0, ""), Options().resolve())

    assert count == threads
    assert why in counted


def test_threads_that_the_options_say_are_taken_and_the_cpu_is_not_shared(machine: Any, cpus: Any) -> None:
    machine(8, True, LOCAL_RANK="3", LOCAL_WORLD_SIZE="8")
    cpus(96)
    given, unset = Options(threads=40).resolve(), Options().resolve()

    assert threads_of(Choice("dali-gpu", 0, ""), given) == (40, "")
    assert threads_of(Choice("dali-cpu", None, ""), unset) == (unset.dali_threads, "")
    assert threads_of(Choice("numpy", None, ""), unset) == (unset.threads, "")


def test_a_slurm_job_has_the_cpus_that_slurm_says(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(8, True, SLURM_LOCALID="1", SLURM_NTASKS_PER_NODE="4", SLURM_CPUS_ON_NODE="8")
    monkeypatch.setattr("os.cpu_count", lambda: 64)

    assert cpus_module.cpus_of_machine() <= 8


def test_explain_says_how_many_threads_a_gpu_gets(machine: Any, cpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(placer, "make_executor", lambda choice, program, size, threads, *_: asked.append(threads))
    machine(8, True, LOCAL_RANK="3", LOCAL_WORLD_SIZE="8")
    cpus(96)
    ds = Dataset.from_tensor_slices([b""]).map(lambda x: ops.resize(ops.decode_jpeg(x), (4, 4))).batch(16)

    text = str(ds.explain())

    assert "DALI on GPU 3, because" in text
    assert "batches of 16; 12 threads (96 CPUs for 8 ranks, LOCAL_RANK=3 of 8)" in text
    made: Any = lower_dry(ds.plan, ds.options().resolve()).flow
    made.executor(made.program, 16)
    ds = ds.with_options(Options(threads=5))
    made = lower_dry(ds.plan, ds.options().resolve()).flow
    made.executor(made.program, 16)
    assert asked == [12, 5]
    assert "96 CPUs" not in str(ds.explain())


@pytest.mark.parametrize(
    ("built_for", "driver", "fits"), [(13, 13, True), (12, 13, True), (12, 12, True), (13, 12, False), (None, 12, True)]
)
def test_a_driver_too_old_for_dali_is_no_gpu(machine: Any, built_for: int | None, driver: int, fits: bool) -> None:
    machine(2, True, built_for=built_for, driver=driver)

    choice = resolve_device(Options().resolve())

    assert choice.executor == ("dali-gpu" if fits else "dali-cpu")
    if not fits:
        assert choice.fallback and "built for CUDA 13 and the driver supports CUDA 12" in choice.why
        with pytest.raises(MissingDependencyError, match=r"cannot run: .*pip install nvidia-dali-cuda120 cupy"):
            resolve_device(Options(device="gpu").resolve())


def test_where_dali_has_no_wheels_no_command_is_named(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(0, False)
    monkeypatch.setattr(sys, "platform", "darwin")

    why = resolve_device(Options().resolve()).why

    assert why == "no GPU found, DALI is not installed (it has wheels for Linux alone)"


@pytest.mark.parametrize("built_for", [12, 13, None])
def test_cupy_is_installed_for_the_cuda_of_dali(built_for: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_of, "dali_cuda", lambda: built_for)
    monkeypatch.setattr(machine_of, "installed", lambda: (1, 13))

    assert f"cupy-cuda{built_for or 12}x" in machine_of.cupy_libraries()


class Nvml:
    """A driver of 8 GPUs."""

    seen: Any = None

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self._answer(name, *given)

    def _answer(self, name: str, *given: Any) -> int:
        first = given[0] if given else None
        if name.startswith("nvmlDeviceGetHandleBy"):
            self.seen = first.decode() if isinstance(first, bytes) else first
        numbers = {"nvmlDeviceGetCount_v2": 8, "nvmlSystemGetCudaDriverVersion_v2": 12040}
        if name in numbers:
            given[0]._obj.value = numbers[name]
        texts = {"nvmlDeviceGetName": b"NVIDIA H200", "nvmlSystemGetDriverVersion": b"580.65.06"}
        if name in texts:
            given[-2].value = texts[name]
        return 0


@pytest.mark.parametrize(
    ("visible", "device", "asked"), [(None, 1, 1), ("3,2", 1, 2), ("GPU-a,GPU-b", 1, "GPU-b"), ("3", 1, 1)]
)
def test_nvml_counts_the_gpus_and_names_the_card_and_its_driver(visible: str | None, device: int, asked: Any) -> None:
    nvml = Nvml()

    assert machine_of.asked(nvml) == (8, 12)
    assert machine_of.named(nvml, device, visible) == ["NVIDIA H200", "driver 580.65.06"]
    assert nvml.seen == asked


def test_without_a_gpu_the_versions_are_named() -> None:
    assert machine_of.card_and_versions(None).startswith("DALI ") == machine_of.has_dali()
    assert not machine_of.card_and_versions(None).startswith("NVIDIA")


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"LOCAL_RANK": "5"}, "needs 6 GPUs, found 4"),
        ({"LOCAL_RANK": "x"}, "needs an integer >= 0"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES=''"),
    ],
)
def test_an_environment_that_leaves_no_gpu_is_named(machine: Any, environment: dict[str, str], text: str) -> None:
    machine(4, True, **environment)

    with pytest.raises(PlanError, match=text):
        resolve_device(Options(device="gpu").resolve())


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 4),
        ("", 0),
        ("-1", 0),
        ("0", 1),
        ("3, 1", 2),
        ("0,9,1", 1),  # CUDA stops at the first entry that is not valid
        ("0,0,1", 1),
        ("GPU-1,GPU-2", 2),
        ("MIG-1,MIG-2", 1),  # CUDA shows a process one MIG instance
        ("NoDevFiles", 0),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(visible: str | None, count: int) -> None:
    assert machine_of._visible(4, visible) == count


def in_a_new_process(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program where the package lies."""
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True, timeout=60
    )


@pytest.mark.parametrize("broken", ["cv2", "cykooz_resizer"])
def test_a_library_that_cannot_be_imported_is_not_chosen_and_named(broken: str, tmp_path: Path) -> None:
    """As OpenCV with windows is on a server: under on_error="skip" every image would be left out."""
    for name in ("cv2", "cykooz_resizer"):
        text = "raise ImportError('libGL.so.1: no such file')" if name == broken else ""
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import numpy as np, gpupipe as gp\n"
        "ds = gp.Dataset.from_tensor_slices(np.zeros((4, 9, 9, 3), np.uint8)).map(lambda x: gp.ops.resize(x, (5, 5)))\n"
        "options = gp.Options(device='cpu', threads=1, on_error='skip')\n"
        "print(*(x.shape for x in ds.batch(4).with_options(options)))\n"
        "try: next(iter(ds.with_options(gp.Options(backend='fast'))))\n"
        "except gp.errors.MissingDependencyError as error: print(error)\n"
    )

    done = in_a_new_process(code)

    assert done.stdout.startswith("(4, 5, 5, 3)\n")
    assert f"{broken} is installed, but importing it fails with ImportError: libGL.so.1" in done.stdout
    assert "the executor 'fast' is not used" in done.stderr


def test_ops_that_an_executor_cannot_run_are_named_before_anything_is_built() -> None:
    program = Program((Apply(TinyHostOnly(), (IMAGE,)),))

    assert unsupported(Choice("numpy", None, ""), program) == []
    assert unsupported(Choice("dali-gpu", 0, ""), program) == ["tiny_host_only"]
    with pytest.raises(PlanError, match=r"host_only cannot run as DALI on CPU.*backend='numpy'"):
        make_executor(Choice("dali-cpu", None, ""), program, 2, 1)


def test_a_fallback_is_logged_once(machine: Any, caplog: pytest.LogCaptureFixture) -> None:
    machine(0, False)
    choice = resolve_device(Options().resolve())

    with caplog.at_level(logging.WARNING, logger="gpupipe"):
        for _ in range(3):
            make_executor(choice, chain(), 2, 1).close()

    assert [record.name for record in caplog.records] == ["gpupipe"]
    assert "DALI is not installed" in caplog.text


PIXELS = Input(0, TensorSpec((2, 2, 3), "uint8", "HWC"))
HALVED = Program((Apply(Cast("float32"), (PIXELS,)),))


@pytest.mark.parametrize(
    ("program", "options", "gpus", "executor"),
    [
        pytest.param(HALVED, Options(), 0, "numpy", id="arrays"),
        pytest.param(HALVED, Options(device="cpu"), 1, "numpy", id="arrays, where a GPU is not wanted"),
        pytest.param(HALVED, Options(backend="dali", device="cpu"), 0, "dali-cpu", id="arrays, DALI asked for"),
        pytest.param(HALVED, Options(), 1, "dali-gpu", id="arrays on a GPU"),
        pytest.param(chain(), Options(), 0, "dali-cpu", id="encoded images"),
        pytest.param(
            Program((Apply(TinyDaliOnly(), (PIXELS,)),)), Options(), 0, "dali-cpu", id="an op that NumPy lacks"
        ),
    ],
)
def test_on_the_cpu_what_decodes_nothing_runs_in_numpy(
    machine: Any, program: Program, options: Options, gpus: int, executor: str
) -> None:
    machine(gpus, True)
    settings = options.resolve()

    assert choose_for(program, resolve_device(settings), settings).executor == executor


@pytest.mark.skipif(not machine_of.has_dali(), reason="needs DALI")
def test_dali_is_imported_while_the_first_rows_are_read() -> None:
    """It takes half a second, in which the buffer of a shuffle can be filled."""
    script = (
        "import sys, time, numpy as np, gpupipe as gp\n"
        "def rows():\n"
        "    for wait in range(400):\n"
        "        if getattr(sys.modules.get('nvidia.dali.types'), 'DALIDataType', None): break\n"
        "        time.sleep(0.1)\n"
        "    print('imported' if wait < 399 else 'read first')\n"
        "    yield np.zeros((4, 4, 3), np.uint8)\n"
        "spec = gp.TensorSpec((4, 4, 3), 'uint8', 'HWC')\n"
        "images = gp.Dataset.from_generator(rows, output_signature=spec).map(gp.ops.flip_left_right).batch(1)\n"
        "next(iter(images.with_options(gp.Options(device='cpu', backend='dali'))))\n"
    )

    assert in_a_new_process(script).stdout.split() == ["imported"]
