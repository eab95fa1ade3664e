"""tfdata_complaints: what users of tf.data have asked for or stumbled over, and where gpupipe answers it.

Issue numbers are those of tensorflow/tensorflow unless a repository is named. `where` is a test that shows the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COMPLAINTS", "Complaint"]


@dataclass(frozen=True)
class Complaint:
    """One row.

    Attributes:
        what: the complaint.
        issues: where it was made.
        answer: what gpupipe does instead.
        where: a file of this project that shows it.
    """

    what: str
    issues: str
    answer: str
    where: str


COMPLAINTS = (
    Complaint(
        "No decoding and no map on the GPU",
        "#13610 #26411 #40755 #52307 #59516",
        "one DALI graph decodes, crops and normalises; `explain()` shows where each step runs",
        "tests/transform/test_dali.py",
    ),
    Complaint(
        "Prefetching to the GPU is confusing or does nothing",
        "#43905 #35563 #30929 #20628 #37277",
        "batches are made on the device and delivered there, without a copy",
        "tests/transform/test_array.py",
    ),
    Complaint(
        "Memory grows over epochs",
        "#41395 #32052 #20436 #35132 #30156",
        "queues are bounded in elements and bytes; `memory_report()` says what each step holds",
        "tests/behaviour/test_memory_report.py",
    ),
    Complaint(
        "Filling the shuffle buffer stalls the first batch, and every epoch",
        "#30646 #47090 #17958",
        "a buffer of records holds references found by walking headers; the next pass fills while the last drains",
        "tests/chains/test_memory.py",
    ),
    Complaint(
        "No perfect shuffle of a dataset larger than memory",
        "#32376 #14518",
        "`shuffle(gp.ALL)`: a uniform permutation, computed, not stored",
        "tests/behaviour/test_global_shuffle.py",
    ),
    Complaint("No `ds[i]`", "#14518", "`ds[i]`, negative numbers and slices", "tests/behaviour/test_random_access.py"),
    Complaint(
        "The length is unknown",
        "#29385 #44799 #36531 #35422 #29743",
        "`len()` counts record headers, through map, batch and the rest",
        "tests/behaviour/test_random_access.py",
    ),
    Complaint(
        "Python functions run one at a time under the GIL",
        "#14448 #15694 #44274 #32454 #42911",
        "ops instead of Python; `map(fn, workers='process')` for what has to be Python",
        "tests/behaviour/test_process_map.py",
    ),
    Complaint(
        "from_generator is slow and serial",
        "#13101 #56258",
        "`from_indexable(obj)` for anything with `__len__` and `__getitem__`, its items fetched in parallel maps",
        "tests/behaviour/test_random_access.py",
    ),
    Complaint(
        "The overhead per element is high",
        "#15694 #59744",
        "the benchmark `host` counts elements per CPU-second, with tf.data beside it",
        "tests/benchmarks/test_suites.py",
    ),
    Complaint(
        "A seed makes every epoch draw the same augmentation",
        "#35682 #44195 #35090 keras#15358",
        "draws depend on (seed, epoch, element): new in each epoch, equal for equal epochs",
        "tests/conformance/test_tfdata_defects.py",
    ),
    Complaint(
        "No checkpoint with random ops",
        "#34357 #26493 #27954 #56385 orbax#413",
        "`iterator.state_dict()` with every step, JSON, exact: random ops, generators and Python functions too",
        "tests/reliability/test_resume.py",
    ),
    Complaint(
        "Checkpoints are as large as the shuffle buffer",
        "#18583 #34020 #40753",
        "offsets and indices, never payloads: 10 KB and at most 16 bytes for each buffered element",
        "tests/reliability/test_state.py",
    ),
    Complaint(
        "A corrupt TFRecord ends the run, loses its file or hangs",
        "#25700 #26991 #27022 #34458 #41530 #60924 #37573 #38078",
        "the record is named, counted and left out; reading continues after it",
        "tests/conformance/test_tfdata_defects.py",
    ),
    Complaint(
        "A corrupt image: of which file?",
        "#41208 models#5912 models#7434 tpu#455 datasets#5608",
        "errors name file, offset and stage, with the decoder's reason",
        "tests/chains/test_bad_input.py",
    ),
    Complaint(
        "A batch that does not stack says nothing useful",
        "#41298 #41316 #34544 #40919 models#10873",
        "the leaf, both shapes, the element and its file; what to do",
        "tests/conformance/test_tfdata_defects.py",
    ),
    Complaint(
        "Nothing can be debugged inside map",
        "#30653 #14732 #48429 #49724",
        "a plain function is plain Python; ops run on arrays at once; `explain()`",
        "tests/ops/test_eager_limits.py",
    ),
    Complaint(
        "cache() has traps, and locks that stay",
        "#50952 #56427 #60174 #75002 #18266 #28798 #30105 #47545",
        "keyed by the chain, finished atomically, safe with concurrent writers; no lock files",
        "tests/behaviour/test_file_cache.py",
    ),
    Complaint(
        "AUTOTUNE takes what it wants",
        "#33516 #62821",
        "chosen within `Options(threads, host_memory)`, with reasons in `iterator.stats()`, reusable by "
        "`Options.from_tuned`",
        "tests/behaviour/test_autotune.py",
    ),
    Complaint(
        "The order differs between machines",
        "#34180 #45495 #39992",
        "one order for any number of cores",
        "tests/conformance/test_tfdata_defects.py",
    ),
    Complaint(
        "shuffle with take and skip leaks training data into validation",
        "#59279 PR #62782 datasets#291",
        "`split([.8, .1, .1], seed)` by index; `check()` warns of take or skip after a reshuffling shuffle",
        "tests/behaviour/test_split.py",
    ),
    Complaint("skip is O(n)", "PR #40963", "O(1) on indexed sources", "tests/behaviour/test_random_access.py"),
    Complaint(
        "list_files is slow, knows no pathlib and no recursion",
        "#17810 #46702 #37357 #71884 #22429",
        "scandir, pathlib, `**`, `{a,b}`, a stable order",
        "tests/behaviour/test_names_of_files.py",
    ),
    Complaint(
        "EXIF orientation and resize hold surprises",
        "#33932 #8430 #49834 #6720",
        "`exif_orientation=` and `antialias=` are arguments with documented defaults",
        "tests/ops/test_result_dtypes.py",
    ),
    Complaint(
        "Auto-sharding warns and guesses",
        "#42146 #55474 #36846 #49828 #55072 #66851",
        "`shard(n, i)`; nothing is sharded automatically",
        "tests/behaviour/test_steps.py",
    ),
    Complaint(
        "Large arrays are copied, limited to 2 GB, or land on the GPU",
        "#52215 #71744 #38693",
        "arrays above 1 MB are views",
        "tests/behaviour/test_sources.py",
    ),
    Complaint(
        "fork and multiprocessing are unsafe",
        "#36984 keras#11461",
        "native libraries start late; a forked child gets an error, never a hang; workers are spawned",
        "tests/behaviour/test_process_map.py",
    ),
    Complaint(
        "DALI's TensorFlow plugin is bound to TensorFlow's version",
        "DALI#1263 #2493 #3613 #4529 #3237",
        "no dependency on TensorFlow",
        "tests/test_imports.py",
    ),
    Complaint(
        "There are too many ways, and the order of shuffle, batch and repeat matters",
        "#31019",
        "one recommended chain in the README; `check()` reports what is probably a mistake",
        "tests/behaviour/test_checks.py",
    ),
)
