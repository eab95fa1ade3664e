"""Evaluation under Accelerate on several ranks: the rows that `gather_for_metrics` gives, beside PyTorch's loader's."""

import logging
import sys
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

import gpupipe as gp
from tests.tensors.programs import tell

logging.getLogger("gpupipe").setLevel(logging.ERROR)
accelerator = Accelerator(cpu=True)
ranks, rank = accelerator.num_processes, accelerator.process_index


def number(x: Any) -> int:
    if int(x) % 7 == 3:
        raise ValueError("bad")
    return int(x)


def gathered(loader: Any) -> list[int]:
    seen: list[int] = []
    for batch in accelerator.prepare(loader):
        rows: Any = accelerator.gather_for_metrics(batch)
        seen += rows.tolist()
    return seen


def chain(rows: int, size: int, drop: bool, policy: Any) -> gp.Dataset:
    ds = gp.Dataset.range(rows)
    if policy != "raise":
        ds = ds.map(number, traced=False, spec=gp.TensorSpec((), "int64"))
    return ds.batch(size, drop_remainder=drop).with_options(gp.Options(on_error=policy))


def wanted(rows: int, policy: str) -> list[int]:
    numbers = list(range(rows))
    if policy == "skip":
        return [x for x in numbers if x % 7 != 3]
    return [x - (x % 7 == 3) for x in numbers] if policy == "replace" else numbers  # the last good one


part, parts = map(int, sys.argv[1:3])
cases = [
    (rows, size, drop, policy)
    for rows in (*range(3, 25), 48, 50, 56)
    for size in (2, 3, 4, 5, 8, 16)
    for drop in (False, True)
    for policy in ("raise", "skip", "replace")
][part::parts]
wrong = []
for rows, size, drop, policy in cases:
    numbers: Any = wanted(rows, policy)
    theirs = gathered(torch.utils.data.DataLoader(numbers, batch_size=size, drop_last=drop))
    if gathered(chain(rows, size, drop, policy).as_torch()) != theirs:
        wrong.append([rows, size, drop, policy])

sizes = []  # of the batches of ragged rows: 2, 2, 1
for lists in (False, True):
    ds = gp.Dataset.range(5).map(lambda i: np.arange(i), traced=False, spec=gp.TensorSpec((None,), "int64"))
    loader = accelerator.prepare(ds.ragged_batch(2).as_torch(lists=lists))
    sizes.append([[row.tolist() for row in batch] for batch in loader])
by_rank = gathered(gp.Dataset.range(8 * ranks).batch(4 * ranks).by_rank(rank, ranks, check=False).as_torch())
refused = []
for ds in (
    gp.Dataset.range(24).shard(ranks, rank).batch(2),
    gp.Dataset.range(23).batch(2 * ranks).by_rank(rank, ranks, "pad", check=False),
):
    try:
        accelerator.prepare(ds.as_torch())
    except gp.PlanError as error:
        refused.append(str(error))
tell(rank, cases=len(cases), wrong=wrong, by_rank=sorted(by_rank), refused=refused, sizes=sizes)
accelerator.end_training()
