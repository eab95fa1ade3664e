"""Global arrays of two processes, each with its own rows, and a resume in the middle of the epoch.

Arguments: the rank, the address of the coordinator.
"""

import sys

import jax
import numpy as np

rank = int(sys.argv[1])
jax.distributed.initialize(sys.argv[2], 2, rank)

from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

from tests.tensors.programs import chain, tell  # noqa: E402

rows = NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), PartitionSpec("rows"))
loader = chain().shard(2, rank, even="drop").as_jax(sharding=rows)
sums, own, state = [], [], {}
for step, (inputs, numbers) in enumerate(loader):
    assert inputs.shape == (8, 2)
    sums.append(int(jax.jit(lambda x: x.sum())(numbers)))
    own.append(np.concatenate([shard.data for shard in numbers.addressable_shards]).tolist())
    if step == 1:
        state = loader.state_dict()
again = chain().shard(2, rank, even="drop").as_jax(sharding=rows)
again.load_state_dict(state)
rest = [int(jax.jit(lambda x: x.sum())(numbers)) for _, numbers in again]
tell(rank, sums=sums, own=own, rest=rest, devices=len(jax.devices()))
jax.distributed.shutdown()
