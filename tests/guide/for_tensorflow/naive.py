from tests.guide.for_tensorflow.artificial import ArtificialDataset


def chain():
    return ArtificialDataset()
