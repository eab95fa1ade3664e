"""Global arrays of two processes, each with its own rows; resumes inside an epoch and at its end; an evaluation."""

import os
from typing import Any

import jax
import numpy as np

rank = int(os.environ["RANK"])
jax.distributed.initialize(f"localhost:{os.environ['MASTER_PORT']}", 2, rank)

from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

import gpupipe as gp  # noqa: E402
from tests.tensors.programs import chain, tell  # noqa: E402

rows = NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), PartitionSpec("rows"))


def own(array: Any) -> list[int]:
    """The rows of this process."""
    found: list[int] = np.concatenate([shard.data for shard in array.addressable_shards]).tolist()
    return found


def made(state: Any = None) -> Any:
    loader = chain().shard(2, rank, even="drop").as_jax(sharding=rows)
    if state is not None:
        loader.load_state_dict(state)
    return loader


def trained(loader: Any) -> list[int]:
    """The sum of the numbers of each batch, over both processes."""
    return [int(jax.jit(lambda x: x.sum())(numbers)) for _, numbers in loader]


loader = made()
sums, batches, state = [], [], {}
for step, (inputs, numbers) in enumerate(loader):
    assert inputs.shape == (8, 2)
    sums.append(int(jax.jit(lambda x: x.sum())(numbers)))
    batches.append(own(numbers))
    if step == 1:
        state = loader.state_dict()
end = loader.state_dict()
again, after = made(state), made(end)
items = iter(gp.Dataset.range(42).batch(8).by_rank(rank, 2, "pad", check=False).as_jax(sharding=rows))
evaluated = [row for batch in items for row, good in zip(own(batch), items.valid, strict=True) if good]
tell(
    rank,
    sums=sums,
    own=batches,
    next=trained(loader),
    rest=[trained(again), trained(again)],
    end=[trained(after), trained(after)],
    evaluated=evaluated,
    devices=len(jax.devices()),
)
jax.distributed.shutdown()
