"""CSV on tf.data and on gpupipe: values, what is missing, quotes, and which records are errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore")]

CASES: dict[str, tuple[bytes, list[Any], dict[str, Any]]] = {
    "plain": (b"1,a\n2,b\n", ["int32", "string"], {}),
    "empty lines": (b"1,a\n\n2,b\n", ["int32", "string"], {}),
    "an empty line of one column": (b"a\n\nb\n", ["string"], {}),
    "quotes": (b'1,"a\nb"\r\n2,"c""d"\n"3","e,f"\n4,""""\n', ["int32", "string"], {}),
    "ends of lines in quotes": (b'1,"a\r\nb\n\nc"\n2,d\n', ["int32", "string"], {}),
    "missing values": (b'1,""\n,b\n,\n', [[5], ["z"]], {}),
    "a required value is missing": (b"1,\n2,b\n,c\n", ["int32", "string"], {}),
    "quotes in wrong places": (b'1,a"b\n2,c\n', ["int32", "string"], {}),
    "too few and too many": (b"1,a,3\n2\n3,c\n", ["int32", "string"], {}),
    "blanks": (b" 12 , a \n+5,c\n-7,d\n", ["int32", "string"], {}),
    "not numbers": (b"1_0,a\n0x1,b\n1.0,c\n2147483648,d\n8,e\n", ["int32", "string"], {}),
    "large numbers": (b"9223372036854775807\n-9223372036854775808\n9223372036854775808\n", ["int64"], {}),
    "floats": (b"1e3,inf\n1.5 ,nan\nx,1\n.5,-0\n", ["float32", "float64"], {}),
    "a text for missing": (b"NA,x\n2,NA\n", [[7], ["d"]], {"na_value": "NA"}),
    "chosen columns": (b"1,a,x\n2,b,y\n", ["int32", "string"], {"select_cols": [0, 2]}),
    "a chosen column is missing": (b"1,a,x\n2,b\n", ["int32", "string"], {"select_cols": [0, 2]}),
    "a header": (b"h,i\n1,a\n", ["int32", "string"], {"header": True}),
    "no quotes": (b'1,"a"\n2,b"c\n', ["int32", "string"], {"use_quote_delim": False}),
    "nothing": (b"", ["int32"], {}),
    "bytes that are no text": (b"1,\xff\xfe\0\n", ["int32", "string"], {}),
    "no last newline": (b"1,a\r\n2,b", ["int64", "string"], {}),
    "an empty line with a default": (b"a\n\nb\n", [["z"]], {}),
    "a header alone": (b"h,i\n", ["int32", "string"], {"header": True}),
    "tabs": (b"1\ta,b\n", ["int32", "string"], {"field_delim": "\t"}),
}


def _outcomes(dataset: Any, error: Any) -> list[Any]:
    """The elements with their dtypes; "error" where there is one."""
    found: list[Any] = []
    items = iter(dataset)
    while True:
        try:
            element = next(items)
        except StopIteration:
            return found
        except error:
            found.append("error")
            continue
        leaves = [value.numpy() if hasattr(value, "numpy") else value for value in element]
        found.append([(type(leaf).__name__, repr(leaf)) for leaf in leaves])


@pytest.mark.parametrize("name", CASES)
def test_records_and_errors_are_those_of_tensorflow(tf: Any, name: str, tmp_path: Path) -> None:
    data, columns, options = CASES[name]
    path = str(tmp_path / "one.csv")
    Path(path).write_bytes(data)
    kinds = {"int32": tf.int32, "int64": tf.int64, "float32": tf.float32, "float64": tf.float64, "string": tf.string}
    theirs = [kinds.get(column, column) if isinstance(column, str) else column for column in columns]

    expected = _outcomes(tf.data.experimental.CsvDataset(path, theirs, **options), tf.errors.OpError)

    assert _outcomes(gp.CsvDataset(path, columns, **options), gp.DataError) == expected
