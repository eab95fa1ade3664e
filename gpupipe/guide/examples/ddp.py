"""Train on several GPUs, or processes of a CPU, with PyTorch's DistributedDataParallel.

    torchrun --nproc-per-node=8 ddp.py 'train-*.tfrecord' --epochs 2

The same command again continues a run that was stopped, in the middle of an epoch too, on as many ranks or on others.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gpupipe as gp
from gpupipe import ops


def batches(args, rank, ranks):
    """The batches of a rank: float32[N,3,S,S] and int64[N]; as many on every rank."""
    encoded, label = gp.io.FixedLenFeature((), bytes), gp.io.FixedLenFeature((), "int64")

    def train_example(record):
        x = gp.io.parse_single_example(record, {"image/encoded": encoded, "image/class/label": label})
        image = ops.decode_jpeg(x["image/encoded"], channels=3)
        image = ops.random_flip_left_right(ops.random_resized_crop(image, (args.size, args.size)))
        image = ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)
        return ops.transpose(image), x["image/class/label"]

    files = gp.Dataset.list_files(args.data, seed=1)
    records = files.interleave(gp.TFRecordDataset, cycle_length=8, num_parallel_calls=gp.AUTOTUNE)
    own = records.shuffle(10_000, seed=1).shard(ranks, rank, even="drop")
    return own.map(train_example).batch(args.batch, drop_remainder=True).prefetch(gp.AUTOTUNE)


def main(args):
    """Train this process's part."""
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    torch.manual_seed(0)
    loader = batches(args, rank, ranks).as_torch(device)
    layers = nn.Conv2d(3, 64, 16, stride=16), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1000)
    model = DistributedDataParallel(nn.Sequential(*layers).to(device), device_ids=[device.index] if cuda else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def save(epoch):
        """Rank 0 writes one file: weights are the same on all ranks, the loaders' places are gathered."""
        places = [None] * ranks
        dist.all_gather_object(places, loader.state_dict())
        if rank == 0:
            state = {"epoch": epoch, "loaders": places, "model": model.module.state_dict()}
            torch.save(state | {"optimizer": optimizer.state_dict()}, f"{args.checkpoint}.new")
            os.replace(f"{args.checkpoint}.new", args.checkpoint)

    first = step = 0
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint, map_location=device)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loaders"])  # those of all ranks: their number may have changed
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
                print(f"rank {rank}, epoch {epoch}, loss {loss.item():.6f}")
            if step == args.steps:
                return dist.destroy_process_group()
        save(epoch + 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="pattern of TFRecord files with image/encoded and image/class/label")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="images of a rank")
    parser.add_argument("--size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--checkpoint", default="run.pt")
    parser.add_argument("--save-every", type=int, default=100, help="steps")
    parser.add_argument("--steps", type=int, help="stop after so many, as machines may that are taken away")
    main(parser.parse_args())
