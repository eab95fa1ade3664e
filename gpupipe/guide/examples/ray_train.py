"""Train with Ray Train: its workers are the ranks, and share the batches of one chain.

    python ray_train.py 'train-*.tfrecord' --workers 8 --checkpoint /shared/run.pt

Ray starts the workers again when one fails, and the same command again continues a run that was stopped, in the middle
of an epoch too, with as many workers or with others. `--workers 0` trains in this process, or in those of torchrun.
"""

import argparse
import os

import ray.train
import ray.train.torch
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from torch import nn

import gpupipe as gp
from gpupipe import ops


def batches(args):
    """The rows of this worker of all batches: float32[N,3,S,S] and int64[N]; as many on every worker."""
    encoded, label = gp.io.FixedLenFeature((), bytes), gp.io.FixedLenFeature((), "int64")

    def train_example(record):
        x = gp.io.parse_single_example(record, {"image/encoded": encoded, "image/class/label": label})
        image = ops.decode_jpeg(x["image/encoded"], channels=3)
        image = ops.random_flip_left_right(ops.random_resized_crop(image, (args.size, args.size)))
        image = ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)
        return ops.transpose(image), x["image/class/label"]

    files = gp.Dataset.list_files(args.data, shuffle=False)
    examples = files.interleave(gp.TFRecordDataset, cycle_length=8).shuffle(gp.ALL, seed=1).map(train_example)
    return examples.batch(args.batch, drop_remainder=True).by_rank().prefetch(gp.AUTOTUNE)


def train(settings):
    """Train one worker's part."""
    args = argparse.Namespace(**settings)
    device = ray.train.torch.get_device()
    torch.manual_seed(0)
    loader = batches(args).as_torch(device)
    layers = nn.Conv2d(3, 64, 16, stride=16), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1000)
    model = ray.train.torch.prepare_model(nn.Sequential(*layers))
    own = getattr(model, "module", model)  # without DistributedDataParallel
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def save(epoch):
        """The first worker writes one file: weights are the same on all, and so is the loader's state."""
        if ray.train.get_context().get_world_rank() == 0:
            state = {"epoch": epoch, "loader": loader.state_dict(), "model": own.state_dict()}
            torch.save(state | {"optimizer": optimizer.state_dict()}, f"{args.checkpoint}.new")
            os.replace(f"{args.checkpoint}.new", args.checkpoint)

    first = step = 0
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint, map_location=device)
        own.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        first = saved["epoch"]
    for epoch in range(first, args.epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.save_every == 0:
                save(epoch)
                print(f"epoch {epoch}, loss {loss.item():.6f}")
                ray.train.report({"epoch": epoch, "loss": loss.item()})
            if step == args.steps:
                return
        save(epoch + 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="pattern of TFRecord files with image/encoded and image/class/label")
    parser.add_argument("--workers", type=int, default=2, help="of Ray Train")
    parser.add_argument("--gpu", action="store_true", help="one for each worker")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=256, help="images of all workers")
    parser.add_argument("--size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--checkpoint", default=os.path.abspath("run.pt"), help="a file that all workers see")
    parser.add_argument("--save-every", type=int, default=100, help="steps")
    parser.add_argument("--steps", type=int, help="stop after so many, as machines may that are taken away")
    args = parser.parse_args()
    ray.train.torch.TorchTrainer(
        train,
        train_loop_config=vars(args),
        scaling_config=ScalingConfig(num_workers=args.workers, use_gpu=args.gpu),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=3)),
    ).fit()
