"""tables: datasets of the rows of tabular files: Parquet, Arrow, NumPy, HDF5, CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..arguments import integer, signature
from ..errors import DataError, PlanError, PlanTypeError, TraceError, shown_name
from ..extract.records.compression import checked_compression
from ..extract.tables.columns import value_like
from ..extract.tables.csv_layout import CsvLayout
from ..extract.tables.hdf5 import Hdf5
from ..extract.tables.ipc import Ipc
from ..extract.tables.numpy import Npy
from ..extract.tables.parquet import Parquet
from ..extract.tables.table import Format
from ..plan.files import Csv, TableRows
from ..plan.node import ElementType, Node
from ..plan.sources import Param
from ..spec import LEAF, Structure, TensorSpec, as_dtype, as_leaf
from .files import FileDataset

__all__ = ["ArrowDataset", "CsvDataset", "HDF5Dataset", "NumpyDataset", "ParquetDataset"]


class TableDataset(FileDataset):
    """Datasets of rows: what the formats have in common."""

    def __init__(
        self, form: Format, filenames: Any, columns: Any, num_parallel_reads: Any, defaults: Any, spec: Any
    ) -> None:
        who = form.name
        names = chosen_columns(who, columns)
        given = None if spec is None else signature(who, spec)

        def rows(source: Node, leaf: int) -> Node:
            files = source.files if isinstance(source, Param) and leaf == 0 else ()
            found = given or type_of_first(form, files, names, isinstance(columns, str))
            read = names or tuple(found.structure.keys if found.structure else ()) or ("",)
            check_columns(who, found, read)
            filled = replace(form, defaults=checked_defaults(who, defaults, read, found.specs))
            return TableRows(source, leaf, format=filled, names=read, type=found)

        super().__init__(filenames, None, num_parallel_reads, rows)


def chosen_columns(who: str, columns: Any) -> tuple[str, ...] | None:
    """The names of the columns to read; None for all.

    Raises:
        PlanTypeError: neither a name nor a sequence of names.
        PlanError: no name, or one twice.
    """
    if columns is None:
        return None
    names = (columns,) if isinstance(columns, str) else tuple(columns) if isinstance(columns, Sequence) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise PlanTypeError(f"{who} needs a name or a list of names for columns, got {columns!r}")
    if not names or len(set(names)) < len(names):
        raise PlanError(f"{who} needs different names for columns, got {columns!r}")
    return names


def type_of_first(form: Format, files: Sequence[str], names: tuple[str, ...] | None, one: bool) -> ElementType:
    """The type of the rows of the first file that can be opened.

    Raises:
        TraceError: no file is known.
        PlanError: the file lacks a column, or has one whose values cannot be leaves.
        DataError: none of the files can be opened; the error of the first.
    """
    if not files:
        raise TraceError(  # an interleave then calls its function for each file
            f"{form.name} needs to know its columns, and here the plan names no file to look into; give spec=, "
            f"a dict of a TensorSpec for each column, or list the files: Dataset.list_files(p).interleave({form.name})"
        )
    failures: list[DataError] = []
    for path in files:
        try:
            table = form.open(path, names)
            break
        except DataError as error:
            failures.append(error)
    else:
        raise failures[0]
    return type_of_columns(form.name, table.columns, names, path, one)


def type_of_columns(
    who: str, every: Mapping[str, TensorSpec | str], names: Sequence[str] | None, path: str, one: bool
) -> ElementType:
    """The type of rows with these columns.

    Raises:
        PlanError: a column is missing, or has values that cannot be leaves.
    """
    file = shown_name(path)
    for name in names or ():
        if name not in every:
            raise PlanError(f"{who} needs a column {name!r}, and {file} has none")
    for name, spec in every.items():
        if isinstance(spec, str):
            raise PlanError(f"{who} needs columns of numbers, bytes or lists, got {name!r} in {file} {spec}")
        if not spec.known:
            raise PlanError(
                f"{who} needs values that tell the type of each column, got {name!r} in {file} with none; "
                "leave it out with columns=, or list a file with values in it first"
            )
    specs = tuple(spec for spec in every.values() if isinstance(spec, TensorSpec))
    if not specs:
        raise PlanError(f"{who} needs a file with columns, and {file} has none")
    if one or tuple(every) == ("",):
        return ElementType(LEAF, specs)
    return ElementType(Structure(dict, tuple(every), (LEAF,) * len(every), len(every)), specs)


def check_columns(who: str, found: ElementType, names: Sequence[str]) -> None:
    """Check that a type has a leaf for each column.

    Raises:
        PlanError: it is nested in another way.
    """
    structure = found.structure
    single = structure == LEAF and len(names) == 1
    several = structure is not None and structure.kind is dict and structure.keys == tuple(names)
    if not single and (not several or structure is None or structure.count != len(structure.keys)):
        raise PlanError(
            f"{who} needs a spec with a TensorSpec for each column in their order, {', '.join(map(repr, names))}, got "
            f"{found.nested}"
        )
    for spec in found.specs:
        if not spec.known:
            raise PlanError(f"{who} needs a spec of known dtypes and ranks, got {spec}")


def checked_defaults(
    who: str, defaults: Any, names: Sequence[str], specs: Sequence[TensorSpec]
) -> tuple[tuple[str, Any], ...]:
    """The values that replace nulls, as leaves.

    Raises:
        PlanTypeError: not a dict.
        PlanError: a column that is not read, or a value of another type.
    """
    if defaults is None:
        return ()
    if not isinstance(defaults, Mapping):
        raise PlanTypeError(f"{who} needs a dict for defaults, of the value for each column, got {defaults!r}")
    kinds = dict(zip(names, specs, strict=True))
    for name in defaults:
        if name not in kinds:
            raise PlanError(f"{who} needs defaults for columns that are read, got one for {name!r}")
    return tuple((name, value_like(kinds[name], value)) for name, value in defaults.items())


class _ArrowTables(TableDataset):
    """Formats that pyarrow reads."""

    _format: Format

    def __init__(
        self,
        filenames: Any,
        columns: str | Sequence[str] | None = None,
        num_parallel_reads: int | None = None,
        *,
        defaults: Mapping[str, Any] | None = None,
        spec: Any = None,
    ) -> None:
        super().__init__(self._format, filenames, columns, num_parallel_reads, defaults, spec)


class ParquetDataset(_ArrowTables):
    """The rows of Parquet files, as dicts of their columns. Needs pyarrow: ``pip install pyarrow``.

    Numbers are NumPy scalars; text and binary values are bytes; lists of one length are arrays, other lists are arrays
    of unknown length. A dictionary column has the values it stands for. A struct with a binary field ``bytes``, as
    Hugging Face's image columns are, is that field. Other types (times, decimals, maps, other structs) are refused;
    leave them out with `columns`.

    Of Arrow's extension types, ``fixed_shape_tensor`` is an array of its shape, as pyarrow's ``to_numpy_ndarray`` gives
    it: with its axes in the order of its permutation (one that moves three or more axes in a circle is refused, as
    pyarrow writes and reads it in different orders). ``bool8`` is bool. Any other extension type, of Arrow or of your
    own, known to pyarrow or not, is the bytes that it is stored as where these are text or binary (``uuid``, ``json``);
    one stored as numbers, lists or structs is refused.

    All files need the chosen columns of the first one; the rows of another are bad. Where `defaults` has a value for a
    column, a file may lack it, or have nulls alone in it. Integers of other widths, narrower floats, and integers for
    float64 become the first file's type; a value beyond it makes its row bad, as does a list of another length where
    the first file's lists have one.

    Only the chosen columns are read, one row group at a time, which is held in memory while its rows are given, and the
    next one with it where threads read ahead. The rows have an index: `ds[i]` and `shuffle(gp.ALL)` decode the whole
    row group that a row is in. A full shuffle cuts up to 4,096 rows, or 64 MB of them, at a time, and decodes each row
    group that they are in once: small row groups (some MB) make that cheap.

    A row group that cannot be read makes each of its rows a bad element; so does a null without a default for its row.
    A file without a sound footer is lost, see `Options.lost_files`; so is one whose row groups have other numbers of
    rows than it says: where these are more than 8 for each byte of the file, a column is decoded once to count them.
    Without checksums of pages (``write_page_checksum=True`` in pyarrow) a changed byte may be a wrong value that nobody
    notices.

    Args:
        filenames: a path or URL, a (nested) list of them, or a dataset of them.
        columns: names of the columns to read, in this order; one name as a string gives its values alone; None reads
            all columns of the first file.
        num_parallel_reads: files read in turn, one row each; `AUTOTUNE` is 16; None reads one file after the other.
        defaults: the values that replace nulls and columns that a file lacks, by column; floats are rounded.
        spec: the type of the elements; None takes it from the first file, which is opened here. Where the names of
            the files are computed, None tells it at the first element, and `spec` keeps rows indexable.

    Raises:
        PlanError: a column that the first file lacks, or whose type is not supported.
        DataError: the first file cannot be opened, nor one of the seven after it.
        MissingDependencyError: pyarrow is not installed.
    """

    _format = Parquet()


class ArrowDataset(_ArrowTables):
    """The rows of Arrow IPC files (Feather v2), as dicts of their columns. Needs pyarrow: ``pip install pyarrow``.

    As `ParquetDataset`, with record batches for row groups: types, nulls, files that differ, index, and what is read. A
    file is lost if a record batch says it has more rows than its bytes have room for, or other than its columns. IPC
    files have no checksums, so of damage in a batch only what makes it invalid is noticed; a changed number is a wrong
    value. The streams that Hugging Face's ``datasets`` keeps are not IPC files: they have no index.

    Args:
        filenames: a path or URL, a (nested) list of them, or a dataset of them.
        columns: names of the columns to read, in this order; one name as a string gives its values alone; None reads
            all columns of the first file.
        num_parallel_reads: files read in turn, one row each; `AUTOTUNE` is 16; None reads one file after the other.
        defaults: the values that replace nulls and columns that a file lacks, by column; floats are rounded.
        spec: the type of the elements, as for `ParquetDataset`.

    Raises:
        PlanError: a column that the first file lacks, or whose type is not supported.
        DataError: the first file cannot be opened, nor one of the seven after it.
        MissingDependencyError: pyarrow is not installed.
    """

    _format = Ipc()


class NumpyDataset(TableDataset):
    """The items of NumPy's files along the first axis: of .npy the items alone, of .npz dicts of those of its arrays.

    Arrays of numbers and of fixed-size strings (as bytes without trailing NULs; ``U`` as UTF-8) with one length. Arrays
    of objects are refused: they could only be unpickled. So are Fortran order, structured types and complex numbers.

    The items have an index, and reading some costs only these (in blocks of 256 KB), but for compressed members of an
    .npz (``savez_compressed``): such a file is one block. The arrays of an .npz have checksums: before the first item
    of a file is given, the chosen arrays that are not compressed are read once to compare them, in pieces of 4 MB,
    and not again in this process while the file is the same; where one differs, all items of the file are bad. A .npy
    has none: a changed byte is a wrong value. A file that is cut off, or has no sound header, is lost, see
    `Options.lost_files`. All files need the arrays of the first one, with integers of any width; the items of another
    are bad.

    Args:
        filenames: a path or URL, a (nested) list of them, or a dataset of them.
        columns: names of the arrays of .npz files to read, in this order; one name as a string gives its items alone;
            None reads all arrays of the first file.
        num_parallel_reads: files read in turn, one item each; `AUTOTUNE` is 16; None reads one file after the other.
        spec: the type of the elements; None takes it from the first file, which is opened here.

    Raises:
        PlanError: an array that the first file lacks, or whose type is not supported.
        DataError: the first file cannot be opened, nor one of the seven after it.
    """

    def __init__(
        self,
        filenames: Any,
        columns: str | Sequence[str] | None = None,
        num_parallel_reads: int | None = None,
        *,
        spec: Any = None,
    ) -> None:
        super().__init__(Npy(), filenames, columns, num_parallel_reads, None, spec)


class HDF5Dataset(TableDataset):
    """The items of HDF5 files along the first axis of their datasets, as dicts. Needs h5py: ``pip install h5py``.

    Datasets of numbers, of strings (as bytes), and of numbers of varying count, all of one length. Compound types,
    references, links, and data in other files are refused. The items have an index; one is read with its block, which
    is as long as the longest chunk of the chosen datasets, or 256 KB where none is chunked: `shuffle(gp.ALL)` reads
    4,096 items, or 64 MB of them, at a time, and each block that they are in once. One thread at a time reads HDF5.

    HDF5's own library is not proof against damaged files: where a file's structure is damaged, it may end the process.
    So read only files that you trust; with ``libver="latest"``, their structure has checksums.

    A block that cannot be read makes each of its items a bad element. Damage within the data is noticed only where the
    file has checksums (``fletcher32=True``) or is compressed. A file that cannot be opened is lost, see
    `Options.lost_files`; so is one of more than 8 rows for each of its bytes if a chunk of it cannot be found or read:
    that is tried once. Rows of chunks that were never written have the fill value. All files need the datasets of the
    first one, with integers of any width; the items of another are bad.

    Args:
        filenames: a path or URL, a (nested) list of them, or a dataset of them.
        keys: names of the datasets to read, in this order, with slashes between groups; one name as a string gives its
            items alone; None reads all datasets of the first file that are in no group.
        num_parallel_reads: files read in turn, one item each; `AUTOTUNE` is 16; None reads one file after the other.
        spec: the type of the elements; None takes it from the first file, which is opened here.

    Raises:
        PlanError: a dataset that the first file lacks, or whose type is not supported.
        DataError: the first file cannot be opened, nor one of the seven after it.
        MissingDependencyError: h5py is not installed.
    """

    def __init__(
        self,
        filenames: Any,
        keys: str | Sequence[str] | None = None,
        num_parallel_reads: int | None = None,
        *,
        spec: Any = None,
    ) -> None:
        super().__init__(Hdf5(), filenames, keys, num_parallel_reads, None, spec)


class CsvDataset(FileDataset):
    r"""The records of CSV files, as tuples of the chosen columns: tf.data.experimental.CsvDataset.

    A record is identified by its byte offset. Quotes enclose whole values, which may hold delimiters and ends of lines
    then; two quotes stand for one. A lone ``\r`` is data, where TensorFlow ends a line. A bad record (too few values, a
    required one missing, another type) is one bad element. A float beyond its type is infinite. A quote without an end
    takes no more than its own line: what follows is read again from the next one, after at most 1 MB. Rows have no
    index: where one starts is known only after reading all before it.

    Args:
        filenames: a path or URL, a (nested) list of them, or a dataset of them.
        record_defaults: for each chosen column its dtype (int32, int64, float32, float64 or ``string``), if a value is
            required, or the value that replaces a missing one: as a NumPy scalar, a list of one, or as Python's, which
            are int32 (int64 where that is too small), float32 and bytes, as in TensorFlow.
        compression_type: "", "GZIP" or "ZLIB"; None is "".
        buffer_size: accepted for compatibility.
        header: leave out the first record of each file.
        field_delim: between two values, one character of ASCII.
        use_quote_delim: False takes quotes for ordinary characters.
        na_value: a text that stands for a missing value, besides the empty one.
        select_cols: numbers of the columns to read, in growing order; None reads all.
        num_parallel_reads: files read in turn, one record each; `AUTOTUNE` is 16; None reads one file after the other.

    Raises:
        PlanError: columns, defaults or a delimiter that cannot be meant.
        PlanTypeError: arguments of other types.
    """

    def __init__(
        self,
        filenames: Any,
        record_defaults: Sequence[Any],
        compression_type: str | None = None,
        buffer_size: int | None = None,
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
        num_parallel_reads: int | None = None,
    ) -> None:
        who = "CsvDataset"
        compression = checked_compression(compression_type)
        if not isinstance(record_defaults, (list, tuple)) or not record_defaults:
            raise PlanTypeError(f"{who} needs a list of a dtype or a default for each column, got {record_defaults!r}")
        kinds, defaults = zip(*map(_csv_column, record_defaults), strict=True)
        select = None if select_cols is None else tuple(integer(who, "select_cols", i, 0) for i in select_cols)
        if select is not None and (len(select) != len(kinds) or any(b <= a for a, b in pairwise(select))):
            raise PlanError(f"{who} needs growing numbers in select_cols, as many as record_defaults, got {select}")
        if not isinstance(field_delim, str) or len(field_delim.encode()) != 1 or field_delim in '"\r\n':
            raise PlanError(f"{who} needs one character of ASCII for field_delim, no quote, got {field_delim!r}")
        if not isinstance(na_value, str):
            raise PlanTypeError(f"{who} needs a text for na_value, got {na_value!r}")
        delimiter, missing = field_delim.encode(), na_value.encode()
        layout = CsvLayout(kinds, defaults, select, bool(header), delimiter, bool(use_quote_delim), missing)

        def records(source: Node, leaf: int) -> Node:
            return Csv(source, leaf, compression, layout=layout)

        super().__init__(filenames, buffer_size, num_parallel_reads, records)


def _csv_column(given: Any) -> tuple[Any, Any]:
    """The dtype of a column of CSV, and its default or None.

    Raises:
        PlanTypeError: neither a dtype nor a number or text, or one of another type.
    """
    default: Any = None
    if isinstance(given, (str, bytes)) and given not in ("string", "bytes", "int32", "int64", "float32", "float64"):
        default = as_leaf(given)
    elif isinstance(given, (list, tuple, np.ndarray)) and np.size(given) <= 1:
        if np.size(given):
            return _csv_column(given[0] if np.ndim(given) else given[()])  # type: ignore[call-overload]
        dtype = given.dtype if isinstance(given, np.ndarray) else None
        return _csv_column(dtype)
    elif isinstance(given, np.generic):
        default = given
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        default = _csv_number(given)
    try:
        kind: Any = as_dtype(given) if default is None else bytes if isinstance(default, bytes) else default.dtype
    except PlanTypeError:
        kind = None
    if kind is not bytes and str(kind) not in ("int32", "int64", "float32", "float64"):
        raise PlanTypeError(
            f"CsvDataset needs int32, int64, float32, float64 or string, or a default of such, got {given!r}"
        )
    return kind, default


def _csv_number(given: int | float) -> Any:
    """A number of Python as TensorFlow takes it: int32, int64 where that is too small, or float32.

    Raises:
        PlanError: the type does not hold it.
    """
    if isinstance(given, int):
        if not -(2**63) <= given < 2**63:
            raise PlanError("CsvDataset needs a default of at most 64 bits, got a larger integer")
        return (np.int32 if -(2**31) <= given < 2**31 else np.int64)(given)
    with np.errstate(over="ignore"):
        number = np.float32(given)
    if np.isinf(number) and not np.isinf(given):
        raise PlanError(f"CsvDataset needs a default that float32 holds, got {given}; np.float64({given}) is a float64")
    return number
