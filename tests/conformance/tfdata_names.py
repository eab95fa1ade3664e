"""tfdata_names: every public name of tf.data, and what stands here for it. Writes gpupipe/dataset/README.md.

    python -m tests.conformance.tfdata_names > gpupipe/dataset/README.md

"same" is not claimed here but counted: the number is that of the comparisons with TensorFlow, under tests/differential,
whose code uses the name. A name that has none must say how it is better, or why it is left out.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

__all__ = ["COMPLAINTS", "NAMES", "Name", "comparisons", "document"]

ROOT = Path(__file__).resolve().parents[2]
DIFFERENTIAL = ROOT / "tests" / "differential"
COMPLAINTS = Path(__file__).with_name("tfdata_complaints.md")
"""What users of tf.data stumbled over: issues of tensorflow/tensorflow unless a repository is named, and the answer."""


@dataclass(frozen=True)
class Name:
    """One name.

    Attributes:
        here: what to write instead, where it is not the same name.
        better: what is more, or deliberately different.
        left_out: why there is none.
        tested: a test file that shows it, where TensorFlow has nothing to compare with.
    """

    here: str = ""
    better: str = ""
    left_out: str = ""
    tested: str = ""


_REMOTE = "workers on other machines: `on_ray`, where Ray starts, restarts and moves them"
_GRAPH = "belongs to TensorFlow's graph and variants; here a chain is a Python object"
_SQL = "a reader for tables, not for images; `from_generator` or `from_indexable` takes the rows"
_TUNING = (
    "what bounds AUTOTUNE are plain `Options` (`threads`, `host_memory`, `autotune`, `tuned`), shown by `explain()`"
)

DATASET: dict[str, Name] = {
    "apply": Name(),
    "as_numpy_iterator": Name(),
    "batch": Name(better="an error names the leaf, both shapes, the element and its file"),
    "bucket_by_sequence_length": Name(better="an element that is too long is named"),
    "cache": Name(
        better="a file is keyed by the plan: it never serves another chain's data; a partial pass does no harm"
    ),
    "cardinality": Name(
        better="known where tf.data says unknown, never wrong; `repeat()` of what may be empty is unknown, not endless"
    ),
    "choose_from_datasets": Name(better="never claims to be infinite when it is not"),
    "concatenate": Name(),
    "counter": Name(),
    "element_spec": Name(),
    "enumerate": Name(),
    "filter": Name(better="runs before decoding where it can; says so when it drops everything for long"),
    "fingerprint": Name(tested="tests/behaviour/test_scanning.py"),
    "flat_map": Name(),
    "from_generator": Name(better="checked against its signature, never truncated: 1.5 is not an int32"),
    "from_tensor_slices": Name(better="views of the arrays, no copy; NumPy's dtypes (Python int is int64)"),
    "from_tensors": Name(),
    "get_single_element": Name(),
    "group_by_window": Name(better="any integer as key; a size below 1 is refused on the user's line"),
    "ignore_errors": Name(
        better="the rest of a file after a bad record is read; a missing file fails once, not forever"
    ),
    "interleave": Name(better="cycle_length is 16 on every machine, so the order is the same, too"),
    "list_files": Name(better="pathlib, `**`, `{a,b}`, URLs; reproducible without setting a seed"),
    "load": Name(tested="tests/behaviour/test_save_load.py"),
    "map": Name(
        better="plain Python runs for each element, or in processes; ops are traced into a graph; new draws each epoch"
    ),
    "options": Name(),
    "padded_batch": Name(better="Python numbers as padding take the dtype of the leaf"),
    "prefetch": Name(),
    "ragged_batch": Name(better="gives `gpupipe.Ragged`, plain NumPy"),
    "random": Name(better="new numbers in each epoch only on request, equal for equal (seed, epoch)"),
    "range": Name(),
    "rebatch": Name(better="a size of 0 or below is an error on the user's line"),
    "reduce": Name(better="takes windows, too"),
    "rejection_resample": Name(better="one pass that takes each element at most once"),
    "repeat": Name(better="an endless repeat of nothing is reported"),
    "sample_from_datasets": Name(better="whole numbers as weights; a finite cardinality is known"),
    "save": Name(
        better="identities are kept, so a loaded chain draws as before", tested="tests/behaviour/test_save_load.py"
    ),
    "scan": Name(better="`spec=` says what a Python function gives"),
    "shard": Name(
        better="a wrong number is an error on the user's line; `even=` gives every rank the same number of elements"
    ),
    "shuffle": Name(
        better="holds references, not payloads; `shuffle(gp.ALL)` is uniform over the whole dataset, without a buffer"
    ),
    "skip": Name(better="O(1) on indexed sources"),
    "snapshot": Name(better="partial passes and other writers do no harm", tested="tests/behaviour/test_save_load.py"),
    "sparse_batch": Name(left_out="there is no sparse type; `ragged_batch` and `padded_batch` serve variable lengths"),
    "take": Name(),
    "take_while": Name(),
    "unbatch": Name(),
    "unique": Name(better="any hashable scalar, and arrays by value"),
    "window": Name(better="a window can be iterated over any number of times; its elements keep their identity"),
    "with_options": Name(),
    "zip": Name(),
}

MODULE: dict[str, Name] = {
    "AUTOTUNE": Name(here="gp.AUTOTUNE"),
    "Dataset": Name(here="gp.Dataset"),
    "DatasetSpec": Name(here="gp.DatasetSpec", tested="tests/behaviour/test_windows.py"),
    "FixedLengthRecordDataset": Name(better="a file whose size does not fit is an error that names all sizes"),
    "INFINITE_CARDINALITY": Name(here="gp.INFINITE_CARDINALITY"),
    "Iterator": Name(here="iter(ds)", better="a context manager; survives an error, closes its threads"),
    "IteratorSpec": Name(left_out=_GRAPH),
    "NumpyIterator": Name(here="ds.as_numpy_iterator()"),
    "Options": Name(here="gp.Options", better="few fields, each documented; a wrong name is a TypeError"),
    "TFRecordDataset": Name(better="len(), ds[i] and full shuffles by an index; errors with file and offset"),
    "TextLineDataset": Name(better="a lone carriage return is kept; a line above 64 MiB is one bad element"),
    "ThreadingOptions": Name(here="gp.Options(threads=)", left_out=_TUNING),
    "UNKNOWN_CARDINALITY": Name(here="gp.UNKNOWN_CARDINALITY"),
}

EXPERIMENTAL: dict[str, Name] = {
    "AutoShardPolicy": Name(left_out="explicit: `shard(n, i)`"),
    "AutotuneAlgorithm": Name(left_out=_TUNING),
    "AutotuneOptions": Name(left_out=_TUNING),
    "Counter": Name(here="gp.Dataset.counter"),
    "CsvDataset": Name(here="gp.CsvDataset", better="a missing quote costs one line; a lone carriage return is kept"),
    "DatasetInitializer": Name(left_out=_GRAPH),
    "DistributeOptions": Name(left_out="explicit: `shard(n, i)`"),
    "ExternalStatePolicy": Name(left_out=_GRAPH),
    "OptimizationOptions": Name(here="gp.Options(disabled_rules=)", better="rules by name, counted by `explain()`"),
    "Optional": Name(left_out=_GRAPH),
    "RandomDataset": Name(here="gp.Dataset.random"),
    "Reducer": Name(left_out="`reduce`, or `group_by_window` and plain Python"),
    "SHARD_HINT": Name(left_out="explicit: `shard(n, i)`"),
    "ServiceOptions": Name(left_out=_REMOTE),
    "SqlDataset": Name(left_out=_SQL),
    "TFRecordWriter": Name(here="gp.io.TFRecordWriter", better="takes single records, too; a context manager"),
    "assert_cardinality": Name(here="ds.assert_cardinality(n)"),
    "at": Name(here="ds[i]", better="also TFRecords, negative numbers and slices"),
    "bucket_by_sequence_length": Name(here="ds.bucket_by_sequence_length"),
    "cardinality": Name(here="ds.cardinality()"),
    "choose_from_datasets": Name(here="gp.Dataset.choose_from_datasets"),
    "copy_to_device": Name(here="gp.Options(device=)", better="batches are made on the device"),
    "dense_to_ragged_batch": Name(here="ds.ragged_batch"),
    "dense_to_sparse_batch": Name(left_out="as sparse_batch"),
    "distributed_save": Name(left_out=_REMOTE),
    "enable_debug_mode": Name(left_out="not needed: plain functions are plain Python, ops run eagerly on arrays"),
    "enumerate_dataset": Name(here="ds.enumerate"),
    "from_list": Name(here="gp.Dataset.from_list"),
    "from_variant": Name(left_out=_GRAPH),
    "get_model_proto": Name(left_out=_TUNING),
    "get_next_as_optional": Name(left_out="next(iterator, default)"),
    "get_single_element": Name(here="ds.get_single_element()"),
    "get_structure": Name(here="ds.element_spec"),
    "group_by_reducer": Name(left_out="`group_by_window` and plain Python"),
    "group_by_window": Name(here="ds.group_by_window"),
    "ignore_errors": Name(here="ds.ignore_errors()"),
    "index_table_from_dataset": Name(left_out="a lookup table of TensorFlow; a dict in a Python map"),
    "load": Name(here="gp.Dataset.load"),
    "make_batched_features_dataset": Name(left_out="a convenience; the chain in the README is as short"),
    "make_csv_dataset": Name(left_out=_SQL),
    "make_saveable_from_iterator": Name(left_out=_GRAPH),
    "map_and_batch": Name(here="gp.compat.map_and_batch", tested="tests/behaviour/test_compat.py"),
    "pad_to_cardinality": Name(here="ds.pad_to_cardinality(n)", better="exact with bad elements, too"),
    "parallel_interleave": Name(here="gp.compat.parallel_interleave", tested="tests/behaviour/test_compat.py"),
    "parse_example_dataset": Name(here="ds.map(gp.io.parse_example)"),
    "prefetch_to_device": Name(here="gp.Options(device=)", better="batches are made on the device"),
    "rejection_resample": Name(here="ds.rejection_resample"),
    "sample_from_datasets": Name(here="gp.Dataset.sample_from_datasets"),
    "save": Name(here="ds.save"),
    "scan": Name(here="ds.scan"),
    "service": Name(left_out=_REMOTE),
    "shuffle_and_repeat": Name(here="gp.compat.shuffle_and_repeat", tested="tests/behaviour/test_compat.py"),
    "snapshot": Name(here="ds.snapshot"),
    "table_from_dataset": Name(left_out="a lookup table of TensorFlow; a dict in a Python map"),
    "take_while": Name(here="ds.take_while"),
    "to_variant": Name(left_out=_GRAPH),
    "unbatch": Name(here="ds.unbatch"),
    "unique": Name(here="ds.unique"),
}

NAMES = {
    **{f"tf.data.Dataset.{name}": entry for name, entry in DATASET.items()},
    **{f"tf.data.{name}": entry for name, entry in MODULE.items()},
    **{f"tf.data.experimental.{name}": entry for name, entry in EXPERIMENTAL.items()},
}


def comparisons() -> Counter[str]:
    """How many comparisons with TensorFlow use each name: entries of the tables of chains, and other tests."""
    found: Counter[str] = Counter()
    for path in sorted(DIFFERENTIAL.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Dict):
                for value in node.values:
                    if isinstance(value, ast.Lambda | ast.Tuple | ast.Call):
                        found.update(_names(value))
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.update(_names(node))
    return found


def _names(tree: ast.AST) -> set[str]:
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return names | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


HEAD = """\
# dataset

The chain as users write it. A method call comes in; one plan node (`gpupipe/plan/`) goes out, wrapped in a new
`Dataset`. Nothing runs here: the folders that run a chain (`optimize`, `flow`, `transform`, `load`) are imported by the
first chain that runs, so `import gpupipe` is quick.

In reading order:

- `base.py`: `Chain`, which holds a plan and the count of its epochs; helpers that trace a user's function.
- `core.py`: `Dataset`, made of the parts below, each a class with the methods of one family.
- `sources.py`, `files.py`, `tables.py`, `mixing.py`: where elements come from; datasets of files, of tabular files;
  mixtures and small sources.
- `elements.py`, `batches.py`, `buffers.py`, `scanning.py`: steps on elements; batches and windows; shuffle, prefetch,
  caches; steps that keep a state or a count.
- `ranks.py`: `by_rank`, the rows of one rank of every batch; `on_ray`, workers on this machine or others.
- `running.py`: options, length, `ds[i]`, iterators, epochs and reports.
- `tensors.py`: elements for NumPy, PyTorch, JAX, CuPy, Keras and TensorFlow.
- `epochs.py`: which epoch a loop is; [EPOCHS.md](EPOCHS.md) has the rules.
- `memory.py`: `release_memory`.

Two ideas:

- A method checks its arguments (`gpupipe/arguments.py`) and raises on the user's line; a plan that exists is legal.
- A dataset is immutable. `self._then(node)` continues it with the same count of epochs, `self._joined(...)` makes one
  of several inputs.

To add a method: write it in the part of its family, check the arguments, return `self._then(node)`. The node, its flow
and its lowering are the other three lines of the recipe "add a step" in [CONTRIBUTING.md](../../CONTRIBUTING.md).

# tf.data's names

`python -m tests.conformance.tfdata_names` writes this page; a test compares the two.

*compared* counts the chains and tests under `tests/differential` that run on TensorFlow and on gpupipe and use the
name: elements, order, structure, cardinality and errors are equal, except for what the last column says.
"""


def document() -> str:
    """The page: half of it for newcomers, then the tables."""
    found = comparisons()
    lines = [*HEAD.splitlines(), ""]
    for title, entries in (
        ("Methods of Dataset", DATASET),
        ("tf.data", MODULE),
        ("tf.data.experimental", EXPERIMENTAL),
    ):
        lines += [f"## {title}", "", "| tf.data | here | compared | |", "|---|---|--:|---|"]
        for name, entry in sorted(entries.items(), key=lambda item: item[0].lower()):
            count = found[_here(name, entry)]
            if entry.left_out:
                lines.append(f"| `{name}` | {_code(entry.here) or '-'} | | left out: {entry.left_out} |")
            else:
                same = "" if count else f"tested in `{entry.tested}`" if entry.tested else ""
                what = f"better: {entry.better}" if entry.better else "same"
                cells = (
                    f"`{name}`",
                    _code(entry.here) or "same name",
                    str(count or ""),
                    what + "; " * bool(same) + same,
                )
                lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    lines += [
        "## What users of tf.data stumbled over",
        "",
        *COMPLAINTS.read_text(encoding="utf-8").splitlines(),
        "",
    ]
    return "\n".join(lines)


def _here(name: str, entry: Name) -> str:
    """The name that a comparison would use."""
    here = entry.here.partition("(")[0].rpartition(".")[2]
    return here or name


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    print(document())
