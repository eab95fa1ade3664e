"""Going on in an epoch of a million records: 16 files, interleave, filter, a buffer of 10,000."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe.extract.examples.encode import encode_example

FULL = bool(os.environ.get("GPUPIPE_FULL"))
RECORDS = 1_000_000 if FULL else 16_000
FILES, BATCH, BUFFER = 16, 250, 10_000 if FULL else 1_000


def parse(record: Any) -> Any:
    spec = {"label": gp.io.FixedLenFeature((), "int64"), "text": gp.io.FixedLenFeature((), bytes)}
    return gp.io.parse_single_example(record, spec)


def three_of_four(x: Any) -> Any:
    return x["label"] % 4 != 3


def build(folder: Path) -> gp.Dataset:
    files = gp.Dataset.list_files(str(folder / "*"), seed=1)
    records = files.interleave(gp.TFRecordDataset, cycle_length=FILES, num_parallel_calls=gp.AUTOTUNE)
    return records.map(parse).filter(three_of_four).shuffle(BUFFER, seed=1).batch(BATCH)


@pytest.mark.timeout(900 if FULL else 120)
def test_an_epoch_is_gone_on_with_at_a_tenth_the_half_and_nine_tenths(tmp_path: Path) -> None:
    for i in range(FILES):
        with gp.io.TFRecordWriter(str(tmp_path / f"{i:02}.tfrecord")) as writer:
            for n in range(i * RECORDS // FILES, (i + 1) * RECORDS // FILES):
                writer.write(encode_example({"label": n, "text": b"0123456789" * 3}))
    batches = RECORDS * 3 // 4 // BATCH
    wanted = {batches // 10, batches // 2, batches * 9 // 10}
    states, after, seen = {}, {}, 0
    for number, batch in enumerate(items := iter(build(tmp_path)), 1):
        seen += len(batch["label"])
        if number - 1 in wanted:
            after[number - 1] = batch["label"].tolist()
        if number in wanted:
            states[number] = json.dumps(items.state_dict())
    assert seen == RECORDS * 3 // 4
    for number, text in states.items():
        assert len(text) <= 10_000 + 16 * BUFFER
        begun = time.perf_counter()
        with iter(build(tmp_path)) as items:
            items.load_state_dict(json.loads(text))
            assert next(items)["label"].tolist() == after[number]
        seconds = time.perf_counter() - begun
        print(f"{number} of {batches} batches: state of {len(text):,} bytes, first batch after {seconds:.3f} s")
