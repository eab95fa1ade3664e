import time

import gpupipe as gp
from gpupipe import TensorSpec


class ArtificialDataset(gp.Dataset):
    def _generator(num_samples):
        time.sleep(0.003)  # opening the file

        for sample_idx in range(num_samples):
            time.sleep(0.0015)  # reading data (line, record) from the file
            yield (sample_idx,)

    def __new__(cls, num_samples=3):
        return gp.Dataset.from_generator(
            cls._generator,
            output_signature=TensorSpec(shape=(1,), dtype="int64"),
            args=(num_samples,),
        )
