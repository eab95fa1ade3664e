"""`gpupipe doctor`: this machine in a table or as JSON, and an exit status that scripts can use."""

from __future__ import annotations

import importlib.metadata
import json
import re
import signal
import sys
import time
from pathlib import Path

import pytest

import gpupipe
from gpupipe.cli import doctor, main
from gpupipe.tools.doctor.facts import Facts
from tests.cli.commands import ended, signalled, started
from tests.tools.machines import GPU, LAPTOP, without

# Put first on Python's path as sitecustomize.py: DALI is installed, but cannot be imported.
BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == "nvidia.dali" or name.startswith("nvidia.dali."):
            raise ImportError("libdali_core.so: cannot open shared object file")

sys.meta_path.insert(0, Blocker())
"""


def here(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "gather", lambda progress: facts)


def test_this_machine_is_told_in_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    here(GPU, monkeypatch)

    assert main(["doctor"]) == 0

    out = capsys.readouterr().out
    assert out.startswith(f"gpupipe {gpupipe.__version__}, Python ")
    assert "\nok       GPU            NVIDIA H200 (compute capability 9.0); driver 580.65.06" in out
    assert out.endswith("\nall is well\n")
    assert max(map(len, out.splitlines())) <= 100


def test_what_is_broken_gives_status_1_and_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here(without("cupy-cuda13x", "nvidia-dali-cuda130", facts=GPU), monkeypatch)
    monkeypatch.setitem(GPU.machine.found, "dali", False)

    assert main(["doctor"]) == 1

    out = capsys.readouterr().out
    assert "\nproblem  DALI" in out
    assert re.search(
        r"\n {10,}\$ pip install nvidia-dali-cuda130 cupy-cuda13x 'cuda-toolkit\[cudart,nvrtc\]==13\.\*'\n", out
    )
    assert out.endswith("\n1 problem, 1 warning\n")


def test_warnings_alone_give_status_0_and_json_holds_checks_and_facts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here(LAPTOP, monkeypatch)

    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("\n1 warning\n")
    assert main(["doctor", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["gpupipe"] == gpupipe.__version__
    assert found["broken"] is False
    (dali,) = (check for check in found["checks"] if check["name"] == "DALI")
    assert (dali["status"], dali["command"]) == ("warning", "pip install nvidia-dali-cuda130")
    assert found["facts"]["packages"]["numpy"] == "2.4.6"


def test_of_a_real_machine_a_dali_that_cannot_be_imported_is_a_problem_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)

    status, out, err = ended(started("doctor", "--json", cwd=tmp_path, first=tmp_path))

    assert err == ""
    found = json.loads(out)
    assert status == found["broken"]
    assert {"packages", "GPU", "NumPy on CPU", "device='auto'", "CPUs"} <= {check["name"] for check in found["checks"]}
    if any((d.name or "").startswith("nvidia-dali-cuda") for d in importlib.metadata.distributions()):
        assert status == 1
        (dali,) = (check for check in found["checks"] if check["name"] == "DALI")
        assert dali["status"] == "problem"
        assert "libdali_core.so: cannot open shared object file" in dali["text"]
        assert "-m pip uninstall -y nvidia-dali-cuda1" in dali["command"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT between processes")
def test_ctrl_c_ends_it_and_its_probe(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        "if sys.argv[0] == '-c':\n"
        "    open('probe', 'w').write(str(os.getpid()))\n"
        "    os.rename('probe', 'probing')\n"
        "    time.sleep(60)\n"
    )
    process = started("doctor", cwd=tmp_path, first=tmp_path)

    found = signalled(process, signal.SIGINT, (tmp_path / "probing").exists)

    assert found == (130, "", "gpupipe: interrupted\n")
    probe = Path("/proc", (tmp_path / "probing").read_text(), "stat")
    if sys.platform == "linux":  # gone, or dead and not yet collected by the process that inherited it
        deadline = time.monotonic() + 10  # it ends a moment after its signal
        while probe.exists() and probe.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline
