import gpupipe as gp

from tests.guide.for_gpupipe.artificial import ArtificialDataset


def chain():
    return ArtificialDataset().prefetch(gp.AUTOTUNE)
