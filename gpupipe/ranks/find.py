"""find: the rank of this process among those that train together, and what says so."""

from __future__ import annotations

import os
import sys
from typing import Any

from ..errors import PlanError

__all__ = ["VARIABLES", "jax_distributed", "own_rank", "torch_distributed"]

VARIABLES = {
    "torchrun": ("RANK", "WORLD_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "MPI": ("PMI_RANK", "PMI_SIZE"),
}
"""Of each launcher, the variables with the rank and the number of ranks. `SLURM_NTASKS` is also set where srun started
nothing yet."""


def torch_distributed() -> Any:
    """The module torch.distributed if the process has initialised it; else None. Nothing is imported."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None


def jax_distributed() -> Any:
    """The module jax if the process has initialised jax.distributed; else None. Nothing is imported."""
    jax = sys.modules.get("jax")
    distributed = getattr(jax, "distributed", None)
    initialized = getattr(distributed, "is_initialized", None)
    return jax if initialized is not None and initialized() else None


def own_rank() -> tuple[int, int, str]:
    """The rank of this process, the number of ranks, and what says so: an engine, else a launcher's variables.

    Raises:
        PlanError: nothing says so, or the variables contradict one another.
    """
    torch = torch_distributed()
    if torch is not None:
        return torch.get_rank(), torch.get_world_size(), "torch.distributed"
    jax = jax_distributed()
    if jax is not None:
        return jax.process_index(), jax.process_count(), "jax.distributed"
    found: dict[tuple[int, int], list[str]] = {}
    for names in VARIABLES.values():
        values = [os.environ.get(name, "") for name in names]
        if all(values):
            said = " and ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
            numbers = all(value.isascii() and value.isdigit() and len(value) < 10 for value in values)
            if not numbers or int(values[0]) >= int(values[1]):
                said = " and ".join(f"{name}={value[:40]}" for name, value in zip(names, values, strict=True))
                raise PlanError(f"by_rank needs a rank below the number of ranks, got {said}; pass rank= and world=")
            found.setdefault((int(values[0]), int(values[1])), []).append(said)
    if len(found) > 1:
        several = "; ".join(said for texts in found.values() for said in texts)
        raise PlanError(f"by_rank needs one rank of this process, got {several}; pass rank= and world=")
    for (rank, world), said_by in found.items():
        return rank, world, said_by[0]
    alone = next((name for name in VARIABLES["torchrun"] if os.environ.get(name)), None)
    if alone is not None:
        raise PlanError(
            f"by_rank needs RANK and WORLD_SIZE, got {alone}={os.environ[alone][:40]} alone; set both, or pass rank= "
            "and world="
        )
    every = ", ".join(" and ".join(names) for names in VARIABLES.values())
    raise PlanError(
        "by_rank needs the rank of this process, got none: neither torch.distributed nor jax.distributed is "
        f"initialised here, and none of {every} is set; initialise one first, start the program with a launcher, or "
        "pass rank= and world="
    )
