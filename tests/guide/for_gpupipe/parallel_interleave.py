import gpupipe as gp

from tests.guide.for_gpupipe.artificial import ArtificialDataset


def chain():
    return gp.Dataset.range(2).interleave(
        lambda _: ArtificialDataset(),
        cycle_length=2,
        num_parallel_calls=gp.AUTOTUNE,
    )
