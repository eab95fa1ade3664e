import gpupipe as gp


def increment(x):
    return x + 1


def chain():
    fast_dataset = gp.Dataset.range(1000)
    return fast_dataset.batch(256).map(increment, num_parallel_calls=gp.AUTOTUNE)
