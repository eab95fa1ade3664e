"""`gpupipe compare` and `gpupipe bench`: a table from a user's data, and plain words when something is wrong."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from gpupipe.comparison import contestants
from gpupipe.comparison.photographs import encode, take, write_shards
from gpupipe.transform.machine import has_dali
from tests.cli.commands import Cli, ended, signalled, started

NUMPY = ["--executor", "numpy"]

pytestmark = pytest.mark.usefixtures("temporary")

FILE = """
from gpupipe import Dataset, io, ops
def crop(path):
    return ops.random_crop(ops.decode_jpeg(io.read_file(path), channels=3), (32, 32, 3))
def said(path):
    print("@said without the end of a line", end="", flush=True)
    return path
ds = Dataset.list_files({pattern!r}, seed=1).map(crop).batch(4)
loud = Dataset.list_files({pattern!r}, seed=1).map(said).map(crop).batch(4)
numbers = Dataset.range(40).batch(8)
print("said while it is imported")
"""


@pytest.fixture
def shards(tmp_path: Path) -> str:
    folder = tmp_path / "shards"
    folder.mkdir()
    write_shards(folder, 8, 2)
    return str(folder)


@pytest.fixture
def users_file(tmp_path: Path) -> str:
    for number in range(8):
        (tmp_path / f"{number}.jpg").write_bytes(encode(take(number)[1]))
    (tmp_path / "train_file.py").write_text(FILE.format(pattern=str(tmp_path / "*.jpg")))
    return str(tmp_path / "train_file.py")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestants, "gpu_count", lambda: 0)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
def test_two_executors_are_compared_on_tfrecords(shards: str, cli: Cli) -> None:
    status, out, err = cli("compare", shards, "--size", 48, "--rate", 500)

    assert (status, err) == (0, "")  # not a terminal
    assert re.search(r"^DALI GPU +not measured: no GPU$", out, re.MULTILINE)
    for title in ("DALI CPU", "NumPy"):
        assert re.search(rf"^{title} +\d+\.\d\d +[\d,]+ +[\d,]+-[\d,]+ +\d+\.\d\d s +[\d,]+ MiB +\d+%$", out, re.M)
    assert re.search(r"^resize +DALI CPU +1 +[\d.]+ +1 / 18 ", out, re.MULTILINE)
    assert re.search(r"^JPEG baseline\S* .* DALI( +0)+$", out, re.MULTILINE)
    assert "no step differs beyond its stated tolerance" in out
    assert "a consumer of 500 images/s waits" in out


def test_json_has_all_figures_and_not_what_a_users_function_prints(
    users_file: str, tmp_path: Path, temporary: Path
) -> None:
    process = started("compare", f"{users_file}:loud", "--json", cwd=tmp_path, TMPDIR=str(temporary))

    status, out, err = ended(process)

    assert status == 0, err
    found = json.loads(out)
    assert (found["format"], found["images"], found["batch"], found["reference"]) == (1, 8, 4, "numpy")
    assert "process of its own" in found["methods"]["rounds"]
    measured = [cost for cost in found["costs"] if cost["cpu_ms"] is not None]
    assert measured
    for cost in measured:
        assert cost["cpu_ms"]["count"] == found["rounds"] >= 3
        assert cost["host_bytes"] is None or cost["host_bytes"] > 1 << 20
    assert ("@said" in err) == has_dali()  # steps are compared in this process, and only between executors


def test_a_chain_without_images_is_measured_and_has_no_steps(users_file: str, cli: Cli) -> None:
    status, out, err = cli("bench", f"{users_file}:numbers", *NUMPY)

    assert status == 0, err
    assert "40 images a pass, batches of 8" in out
    assert "crops" not in out


def test_a_folder_of_jpegs_is_enough(users_file: str, cli: Cli) -> None:
    status, out, err = cli("bench", Path(users_file).parent, *NUMPY, "--size", 32, "--images", 6, "--json")

    assert status == 0, err
    assert json.loads(out)["images"] == 6


def test_damage_in_the_data_is_a_failure_that_names_the_file(users_file: str, cli: Cli) -> None:
    file = Path(users_file).parent / "5.jpg"
    file.write_bytes(file.read_bytes()[:1000])

    status, _, err = cli("compare", f"{users_file}:ds", *NUMPY)

    assert status == 1
    assert re.search(r"^gpupipe compare: no executor could be measured: NumPy: .*5\.jpg", err, re.MULTILINE)
    assert "Traceback" not in err


@pytest.mark.usefixtures("no_gpu")
def test_an_executor_that_is_not_there_is_a_reason_and_status_2(shards: str, cli: Cli) -> None:
    status, _, err = cli("compare", shards, "--executor", "dali-gpu")

    assert status == 2
    assert "no executor could be measured: DALI GPU: no GPU" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full disk to write to")
def test_a_full_disk_is_a_failure_after_the_table(shards: str, cli: Cli) -> None:
    pytest.importorskip("jinja2")

    status, out, err = cli("compare", shards, *NUMPY, "--size", 32, "--html", "/dev/full")

    assert (status, err) == (1, "gpupipe compare: the disk is full: '/dev/full'\n")
    assert "NumPy" in out


def test_without_jinja2_a_page_is_refused_before_anything_is_measured(
    shards: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)

    status, out, err = cli("compare", shards, "--html", "page.html")

    assert (status, out) == (1, "")
    assert "pip install jinja2" in err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals between processes")
@pytest.mark.parametrize(
    ("number", "found"), [("SIGINT", (130, "", "gpupipe: interrupted\n")), ("SIGHUP", (129, "", ""))]
)
def test_ctrl_c_and_a_closed_terminal_leave_nothing_behind(
    tmp_path: Path, temporary: Path, shards: str, number: str, found: tuple[int, str, str]
) -> None:
    process = started("compare", shards, "--size", "600", *NUMPY, cwd=tmp_path, TMPDIR=str(temporary))

    ready = lambda: list(temporary.glob("gpupipe-compare-*/*-numpy.log"))  # noqa: E731
    assert signalled(process, signal.Signals[number], ready) == found
