"""Train with JAX and Flax on all devices, of one process or several.

    python jax_flax.py 'train-*.tfrecord' --epochs 2
    python jax_flax.py 'train-*.tfrecord' --processes host:1234 2 0      # and host:1234 2 1

The same command again continues a run that was stopped, from its last checkpoint, in the middle of an epoch.
"""

import argparse
import os

import jax
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

import gpupipe as gp
from gpupipe import ops


def batches(args):
    """The batches of this process: float32[N,S,S,3] and int64[N]."""
    encoded, label = gp.io.FixedLenFeature((), bytes), gp.io.FixedLenFeature((), "int64")

    def train_example(record):
        x = gp.io.parse_single_example(record, {"image/encoded": encoded, "image/class/label": label})
        image = ops.decode_jpeg(x["image/encoded"], channels=3)
        image = ops.random_flip_left_right(ops.random_resized_crop(image, (args.size, args.size)))
        return ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD), x["image/class/label"]

    files = gp.Dataset.list_files(args.data, seed=1)
    records = files.interleave(gp.TFRecordDataset, cycle_length=8, num_parallel_calls=gp.AUTOTUNE)
    own = records.shuffle(10_000, seed=1).shard(jax.process_count(), jax.process_index(), even="drop")
    return own.map(train_example).batch(args.batch, drop_remainder=True).prefetch(gp.AUTOTUNE)


@nnx.jit
def train_step(model, optimizer, images, labels):
    """One step; the loss before it."""

    def loss(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(images).mean((1, 2)), labels).mean()

    value, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return value


def main(args):
    """Train."""
    if args.processes:
        address, number, mine = args.processes
        jax.distributed.initialize(address, int(number), int(mine))
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    loader = batches(args).as_jax(sharding=NamedSharding(mesh, PartitionSpec("data")))  # every device has its rows
    random = nnx.Rngs(0)
    model = nnx.Sequential(nnx.Conv(3, 64, (8, 8), 8, rngs=random), nnx.gelu, nnx.Linear(64, 1000, rngs=random))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    state = jax.device_put(nnx.state((model, optimizer)), NamedSharding(mesh, PartitionSpec()))  # all have the weights

    manager = ocp.CheckpointManager(os.path.abspath(args.folder), options=ocp.CheckpointManagerOptions(max_to_keep=2))
    step = first = 0
    if manager.latest_step() is not None:
        items = ocp.args.Composite(state=ocp.args.StandardRestore(state), place=ocp.args.JsonRestore())
        saved = manager.restore(manager.latest_step(), args=items)
        state, step, first = saved.state, manager.latest_step(), saved.place["epoch"]
        loader.load_state_dict(saved.place["loader"])  # the processes are in step: the place of one is that of all
    nnx.update((model, optimizer), state)
    last = args.steps and step + args.steps
    for epoch in range(first, args.epochs):
        for images, labels in loader:
            loss = train_step(model, optimizer, images, labels)
            step += 1
            if step % args.save_every == 0:
                place = ocp.args.JsonSave({"epoch": epoch, "loader": loader.state_dict()})
                weights = ocp.args.StandardSave(nnx.state((model, optimizer)))
                manager.save(step, args=ocp.args.Composite(state=weights, place=place))
                print(f"process {jax.process_index()}, epoch {epoch}, loss {float(loss):.6f}")
            if step == last:
                return manager.close()
    manager.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="pattern of TFRecord files with image/encoded and image/class/label")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="images of a process")
    parser.add_argument("--size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--folder", default="run", help="of checkpoints")
    parser.add_argument("--save-every", type=int, default=100, help="steps")
    parser.add_argument("--steps", type=int, help="stop after so many, as a machine may that is taken away")
    parser.add_argument("--processes", nargs=3, help="where there are several: address of the first, how many, which")
    main(parser.parse_args())
