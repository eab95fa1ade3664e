"""The command: `python -m benchmarks WHAT`; `--help` lists what."""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.autotune import CHAINS as TUNED
from benchmarks.autotune import STARTS, autotune
from benchmarks.checkout import wrong
from benchmarks.cifar import cifar
from benchmarks.commands import commands as measure_commands
from benchmarks.compare import Comparison, compare, compare_checkouts
from benchmarks.equal import UnequalWork
from benchmarks.flowers import flowers
from benchmarks.gpu_day.command import add_options, gpu_day
from benchmarks.gpu_day.ledger import LedgerError
from benchmarks.host import CHAINS, host, host_checkouts
from benchmarks.machine import cores, gpus
from benchmarks.memory import shuffle_memory
from benchmarks.no_worse import PAIRS
from benchmarks.pairs import ContestantFailed
from benchmarks.planted import PROGRAMS, planted
from benchmarks.requests import requests
from benchmarks.stop import Stopped, stoppable
from benchmarks.suites import augment, cold, decode, every, far, first, gil, on_ray, places, ranks, remote, training
from benchmarks.suites import cores as cores_suite

__all__ = ["main"]

RESULTS = Path(__file__).parent / "results"
COMMANDS = (
    "chain",
    "extract",
    "shuffle-memory",
    "bench-gpu",
    "gpu-day",
    "host",
    "on-error",
    "approximate",
    "overhead",
    "prepared",
    "profile",
    "commands",
    "flowers",
    "requests",
    "autotune",
    "cifar",
    "first-batch",
    "decode",
    "augment",
    "cores",
    "gil",
    "training",
    "cold",
    "on-ray",
    "remote",
    "places",
    "far",
    "ranks",
    "all",
)
SUITES = (first, decode, augment, cores_suite, gil, training, cold, remote, places, far, ranks, on_ray, every)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a benchmark.

    Returns:
        0; 2 if the contestants' work is unequal, one of them failed, or a folder cannot be used or is full; 128 + the
        number of a signal that ended the command. `gpu-day` has others (`gpu_day/command.py`).
    """
    if not Path("/proc/self/status").exists():
        print("benchmarks need Linux, got a system without /proc; CPU time and memory are read there", file=sys.stderr)
        return 2
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or (words[0] not in COMMANDS and words[0] not in ("-h", "--help")):
        words.insert(0, "chain")
    options = _parser().parse_args(words)
    if misplaced := _misplaced(options):
        print(f"{options.command}: {misplaced}", file=sys.stderr)
        return 2
    try:
        scratch = options.scratch and options.scratch.absolute()  # processes have other working folders
        with stoppable(), tempfile.TemporaryDirectory(prefix="benchmarks-", dir=scratch) as folder:
            return int(options.run(options, Path(folder)))
    except (UnequalWork, ContestantFailed, LedgerError, OSError) as error:
        print(f"{options.command}: {error}", file=sys.stderr)
        return 2
    except Stopped as stop:
        print(f"{options.command}: {stop}", file=sys.stderr)
        return stop.status


def _misplaced(options: argparse.Namespace) -> str:
    """Return what is wrong with the folders on the command line, "" if nothing is."""
    if any(os.path.isfile(folder) for folder in (options.out, *options.out.parents)):
        return f"--out needs a folder, got {options.out}, which is a file or in one"
    if options.scratch is not None and not _writable(options.scratch):
        return f"--scratch needs a folder that exists and can be written to, got {options.scratch}"
    if (checkout := getattr(options, "checkout", None)) is not None and (lacks := wrong(checkout)):
        return f"--checkout {lacks}"
    if options.command == "gpu-day":  # it may show results without writing any
        return ""
    if not _writable(next(folder for folder in (options.out, *options.out.absolute().parents) if folder.is_dir())):
        return f"--out needs a folder that can be written to, got {options.out}"
    return ""


def _writable(folder: Path) -> bool:
    """Whether a file can be created in a folder; its mode alone does not tell."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _chain(options: argparse.Namespace, folder: Path) -> int:
    work = "chain-gpu" if options.device == "gpu" else "chain-plain" if options.plain else "chain"
    return _compare(options, folder, f"chain-uncropped-{options.uncropped}" if options.uncropped else work)


def _gpu(options: argparse.Namespace, folder: Path) -> int:
    return _compare(options, folder, "chain-gpu")


def _extract(options: argparse.Namespace, folder: Path) -> int:
    return _compare(options, folder, "extract")


def _on_error(options: argparse.Namespace, folder: Path) -> int:
    return _compare(options, folder, f"on-error-{options.backend}")


def _approximate(options: argparse.Namespace, folder: Path) -> int:
    return _compare(options, folder, "approximate")


def _overhead(options: argparse.Namespace, folder: Path) -> int:
    return _compare(options, folder, "overhead")


def _prepared(options: argparse.Namespace, folder: Path) -> int:
    return _compare(options, folder, "prepared")


def _compare(options: argparse.Namespace, folder: Path, work: str) -> int:
    if work == "chain-gpu" and not gpus():
        print("not measured: no NVIDIA GPU here (the driver names none)")
        return 0
    found = Comparison(
        work=work,
        data=options.data,
        contestants=_names(options),
        against=options.against,
        pairs=options.pairs,
        batch=options.batch,
        batches=options.batches,
        warmup=options.warmup,
        threads=options.threads,
        shuffle=options.shuffle,
        probes=options.probes,
        timeout=options.timeout,
        megapixels=options.megapixels,
        dry=options.dry,
        minutes=options.minutes,
    )
    checkout = getattr(options, "checkout", None)
    if checkout is not None:
        return _written(compare_checkouts(found, checkout, folder, options.out))
    return _written(compare(found, folder, options.out))


def _memory(options: argparse.Namespace, folder: Path) -> int:
    path = shuffle_memory(
        folder,
        options.out,
        contestants=_names(options),
        records=options.records,
        shuffle=options.shuffle,
        threads=options.threads,
        checkout=options.checkout,
        pairs=options.pairs,
    )
    return _written(path)


def _host(options: argparse.Namespace, folder: Path) -> int:
    chains = tuple(options.chains.split(",")) if options.chains else tuple(CHAINS)
    measure = host if options.checkout is None else partial(host_checkouts, options.checkout)
    path = measure(
        options.out,
        contestants=_names(options),
        chains=chains,
        elements=options.elements,
        batch=options.batch,
        pairs=options.pairs or (5 if options.checkout is None else PAIRS),
    )
    return _written(path)


def _profile(options: argparse.Namespace, folder: Path) -> int:
    plants = tuple(options.plants.split(",")) if options.plants else ()
    path = planted(options.out, folder, plants=plants, pairs=options.pairs)
    return _written(path)


def _commands(options: argparse.Namespace, folder: Path) -> int:
    path = measure_commands(
        options.out,
        folder,
        images=options.images,
        records=options.records,
        pairs=options.pairs,
        checkout=options.checkout,
    )
    return _written(path)


def _requests(options: argparse.Namespace, folder: Path) -> int:
    return _written(requests(options.out, images=options.images, pairs=options.pairs))


def _flowers(options: argparse.Namespace, folder: Path) -> int:
    path = flowers(
        options.out,
        folder,
        contestants=_names(options),
        images=options.images,
        rounds=options.pairs,
        threads=options.threads,
    )
    return _written(path)


def _autotune(options: argparse.Namespace, folder: Path) -> int:
    path = autotune(
        options.out,
        folder,
        chains=tuple(options.chains.split(",")) if options.chains else tuple(TUNED),
        starts=tuple(options.starts.split(",")) if options.starts else tuple(STARTS),
        images=options.images,
        seconds=options.seconds,
        pairs=options.pairs,
    )
    return _written(path)


def _cifar(options: argparse.Namespace, folder: Path) -> int:
    names, threads = _names(options), options.threads
    return _written(cifar(options.out, contestants=names, images=options.images, pairs=options.pairs, threads=threads))


def _written(path: Path) -> int:
    print(f"written to {path.name}")
    return 0


def _names(options: argparse.Namespace) -> tuple[str, ...]:
    return tuple(options.contestants.split(",")) if options.contestants else ()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    chain = commands.add_parser(
        "chain", help="the chain of the README on the CPU: decode, crop, flip, normalise, batch"
    )
    extract = commands.add_parser("extract", help="interleave and parse only, checksums verified")
    memory = commands.add_parser("shuffle-memory", help="what a large shuffle buffer adds to resident memory")
    gpu = commands.add_parser(
        "bench-gpu", help="the chain on a GPU and on its machine's CPU; 'not measured' where there is no GPU"
    )
    on_error = commands.add_parser(
        "on-error",
        help="what on_error='skip' with a manifest costs when nothing is bad: the chain with and without it",
    )
    on_error.set_defaults(run=_on_error)
    approximate = commands.add_parser(
        "approximate", help="the chain at 3 megapixels, decoded at a fraction of the size where the window is large"
    )
    approximate.set_defaults(run=_approximate)
    overhead = commands.add_parser("overhead", help='the chain on "fast" beside the calls of its libraries alone')
    overhead.set_defaults(run=_overhead)
    forms = commands.add_parser("prepared", help="later epochs over images that were shrunk, or decoded, once")
    forms.set_defaults(run=_prepared)
    on_error.add_argument("--backend", choices=("dali", "numpy"), default="dali", help="(%(default)s)")
    day = commands.add_parser("gpu-day", help="the first hour on a machine with a GPU: what works, how exact, how fast")
    add_options(day, RESULTS)
    day.set_defaults(run=gpu_day)
    chain.set_defaults(run=_chain)
    extract.set_defaults(run=_extract)
    memory.set_defaults(run=_memory)
    gpu.set_defaults(run=_gpu)
    sizes = (
        (chain, 64, 40, 10),
        (gpu, 256, 100, 20),
        (extract, 256, 240, 20),
        (on_error, 64, 40, 10),
        (approximate, 32, 8, 3),
        (overhead, 64, 40, 10),
        (forms, 64, 40, 10),
    )
    for command, batch, batches, warmup in sizes:
        command.add_argument("--data", default="", help="a glob of TFRecord shards; default: procedural photographs")
        command.add_argument("--against", default="", help="the reference of the ratios")
        command.set_defaults(megapixels=0.2)
        command.add_argument("--dry", action="store_true", help="few probes: print what differs, do not refuse it")
        command.add_argument("--pairs", type=_positive, default=9, help="pairs for each contestant (%(default)s)")
        command.add_argument("--batch", type=_positive, default=batch, help="rows in a batch (%(default)s)")
        command.add_argument("--batches", type=_positive, default=batches, help="batches in the window (%(default)s)")
        command.add_argument("--warmup", type=_positive, default=warmup, help="batches before it (%(default)s)")
        command.add_argument("--probes", type=_positive, default=40, help="passes over 512 probes (%(default)s)")
        command.add_argument("--shuffle", type=_positive, default=1000, help="records in the buffer (%(default)s)")
        command.add_argument("--timeout", type=_positive, default=600, help="seconds for one process (%(default)s)")
        command.add_argument(
            "--minutes",
            type=_minutes,
            default=8.0 if command is gpu else 0.0,
            help="leave out pairs that would end later, but the first of each contestant; 0: measure all (%(default)g)",
        )
    approximate.set_defaults(shuffle=64)  # a thousand photographs of a megabyte are a gigabyte
    chain.add_argument(
        "--megapixels", type=float, choices=(0.2, 1.0, 3.0), default=0.2, help="of the drawn photographs (%(default)s)"
    )
    chain.add_argument("--plain", action="store_true", help="resize without antialias, in float32 from there on")
    chain.add_argument(
        "--uncropped",
        choices=("resize", "linear", "center"),
        help="whole images to one size, nothing random: with antialias, without, or the middle of the shorter side",
    )
    chain.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="gpu: as bench-gpu")
    memory.add_argument("--shuffle", type=_positive, default=10_000, help="records in the buffer (%(default)s)")
    memory.add_argument("--records", type=_positive, default=12_000, help="records of 110 KB to write (%(default)s)")
    memory.add_argument("--pairs", type=_positive, default=PAIRS, help="with --checkout (%(default)s)")
    host_path = commands.add_parser("host", help="what one element costs on the host: map, batch, shuffle, filter ...")
    host_path.set_defaults(run=_host)
    host_path.add_argument("--chains", default="", help=f"out of {', '.join(CHAINS)}; default: all")
    host_path.add_argument("--elements", type=_positive, default=1_000_000, help="that enter a chain (%(default)s)")
    host_path.add_argument("--batch", type=_positive, default=1000, help="rows in a batch (%(default)s)")
    host_path.add_argument("--pairs", type=_positive, help=f"for each contestant (5; with --checkout {PAIRS})")
    profile = commands.add_parser("profile", help="planted bottlenecks: does Dataset.profile name them, and the gain?")
    profile.set_defaults(run=_profile)
    names = ", ".join(dict.fromkeys(program.plant for program in PROGRAMS))
    profile.add_argument("--plants", default="", help=f"out of {names}; default: all")
    profile.add_argument("--pairs", type=_positive, default=3, help="loops before and after each mend (%(default)s)")
    tools = commands.add_parser(
        "commands", help="what gpupipe pack costs over the bare library calls, and verify a record"
    )
    tools.set_defaults(run=_commands)
    tools.add_argument("--images", type=_positive, default=2000, help="photographs to pack (%(default)s)")
    tools.add_argument("--records", type=_positive, default=1_000_000, help="records to verify (%(default)s)")
    tools.add_argument("--pairs", type=_positive, default=9, help="runs of each (%(default)s)")
    garden = commands.add_parser("flowers", help="a folder of 3,670 photographs in 5 classes: first and later epochs")
    garden.set_defaults(run=_flowers)
    garden.add_argument("--images", type=_positive, default=3670, help="photographs in the folder (%(default)s)")
    garden.add_argument("--pairs", type=_positive, default=9, help="rounds of all contestants (%(default)s)")
    small = commands.add_parser("cifar", help="50,000 images of 32x32 in memory: random crop, flip, normalise, batch")
    small.set_defaults(run=_cifar)
    small.add_argument("--images", type=_positive, default=50_000, help="of 32x32 (%(default)s)")
    small.add_argument("--pairs", type=_positive, default=9, help="pairs for each contestant (%(default)s)")
    served = commands.add_parser("requests", help="what one image costs with gpupipe.preprocessor over bare calls")
    served.set_defaults(run=_requests)
    served.add_argument("--images", type=_positive, default=100, help="photographs, one request each (%(default)s)")
    served.add_argument("--pairs", type=_positive, default=9, help="pairs for NumPy and for DALI (%(default)s)")
    tuned = commands.add_parser("autotune", help="does AUTOTUNE reach the best fixed numbers from bad starts?")
    tuned.set_defaults(run=_autotune)
    tuned.add_argument("--chains", default="", help=f"out of {', '.join(TUNED)}; default: all")
    tuned.add_argument("--starts", default="", help=f"out of {', '.join(STARTS)}; default: all")
    tuned.add_argument("--images", type=_positive, default=200, help="photographs in training (%(default)s)")
    tuned.add_argument("--seconds", type=_positive, default=30, help="that AUTOTUNE gets (%(default)s)")
    tuned.add_argument("--pairs", type=_positive, default=5, help="where nothing is to be tuned (%(default)s)")
    for suite in SUITES:
        suite.add_options(commands)
    for command in (chain, extract, memory, host_path, tools, commands.choices["first-batch"]):
        command.add_argument(
            "--checkout",
            type=Path,
            metavar="FOLDER",
            help="is gpupipe no worse than that of this other checkout, by CPU time? Only its contestants run",
        )
    for command in (
        *(
            commands.choices[name]
            for name in (
                "first-batch",
                "decode",
                "augment",
                "cores",
                "gil",
                "training",
                "cold",
                "remote",
                "places",
                "far",
                "ranks",
                "on-ray",
                "all",
            )
        ),
        chain,
        extract,
        gpu,
        memory,
        host_path,
        on_error,
        approximate,
        overhead,
        forms,
        profile,
        tools,
        garden,
        served,
        tuned,
        small,
    ):
        command.add_argument("--contestants", default="", help="names, separated by commas; default: all")
        command.add_argument(
            "--threads", type=_positive, default=cores(), help="(%(default)s, the cores of this machine)"
        )
        command.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
        command.add_argument(
            "--scratch", type=Path, default=None, help="folder for temporary files, removed at the end"
        )
    return parser


def _minutes(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"needs a number from 0 on, got {text}")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"needs a number from 1 on, got {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
