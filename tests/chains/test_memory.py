"""A shuffle buffer larger than the data does not hold the data: records travel as references."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import gpupipe as gp
from tests.chains.data import ROOT

RECORD = 110_000
LIMIT = 50 * 1024 * 1024
# Counts VmRSS: anonymous memory and file pages. Read between records, so that the peak is seen, not what is left.
PROGRAM = """
import json, sys
import gpupipe as gp

order, pattern, buffer = sys.argv[1], sys.argv[2], int(sys.argv[3])
FEATURES = {"data": gp.io.FixedLenFeature((), bytes), "number": gp.io.FixedLenFeature((), "int64")}

def parse(record):
    x = gp.io.parse_single_example(record, FEATURES)
    return x["data"], x["number"]

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

def chain(buffer):
    ds = gp.Dataset.list_files(pattern, seed=1).interleave(gp.TFRecordDataset, cycle_length=8, num_parallel_calls=-1)
    ds = ds.shuffle(buffer, seed=1).map(parse) if order == "shuffle-parse" else ds.map(parse).shuffle(buffer, seed=1)
    return ds.batch(16)

with chain(64).iterator(0) as warm:  # modules, threads and blocks of a chain without a buffer to speak of
    for _ in zip(warm, range(8)):
        pass
before = resident()
peak, first, seen = 0, None, set()
for data, numbers in chain(buffer):
    peak = max(peak, resident())
    assert all(len(row) == 110_000 for row in data)
    seen.update(numbers.tolist())
    if first is None:
        first = numbers.tolist()
print(json.dumps({"before": before, "rise": peak - before, "records": len(seen), "first": first}))
"""


def write_shards(folder: Path, count: int, shards: int) -> str:
    """Synthetic shards of records of 110 KB; answer their pattern."""
    import gpupipe as gp

    payload = os.urandom(RECORD)
    for shard in range(shards):
        with gp.io.TFRecordWriter(str(folder / f"part-{shard:02d}")) as writer:
            for number in range(shard * count // shards, (shard + 1) * count // shards):
                writer.write(gp.io.encode_example({"data": payload, "number": number}))
    return str(folder / "part-*")


def measure(order: str, pattern: str, buffer: int) -> dict[str, int]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, order, pattern, str(buffer)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(sys.platform != "linux", reason="VmRSS is read from /proc"),
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_shards(tmp_path_factory.mktemp("small"), 1400, 8)


@pytest.mark.parametrize("order", ["shuffle-parse", "parse-shuffle"])
def test_a_buffer_of_154_MB_of_records_takes_less_than_50_MB(small: str, order: str) -> None:
    found = measure(order, small, 10_000)

    assert found["records"] == 1400
    first = found["first"]
    assert first != sorted(first)  # type: ignore[call-overload]  # it was shuffled
    assert found["rise"] < LIMIT


FAULTS = """
import resource, sys
import gpupipe as gp

ds = gp.Dataset.from_tensor_slices([sys.argv[1]]).repeat(16).interleave(gp.TFRecordDataset, cycle_length=2)

def faults(batches):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    rows = sum(len(batch) for batch in batches)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / rows

list(ds.batch(128))
print(faults(ds.batch(128)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators keep or return memory as they like")
def test_the_byte_strings_of_a_batch_have_the_memory_of_those_before(tmp_path: Path) -> None:
    path = tmp_path / "0.tfrecord"
    with gp.io.TFRecordWriter(path) as out:
        for _ in range(128):
            out.write(os.urandom(RECORD))

    done = subprocess.run(
        [sys.executable, "-c", FAULTS, str(path)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )

    assert float(done.stdout) < 2  # of 27 pages that a record has
