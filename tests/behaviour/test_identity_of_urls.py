"""What of a URL is shown, and what of it identifies the file: not the password, nor what signs it."""

from __future__ import annotations

import json
import logging
import pickle
import random
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote as quoted
from urllib.parse import unquote as unquoted

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import DataError, GpupipeError, Lines, PlanError, StateError, shown_cause, shown_name
from gpupipe.extract.storage.patterns import expand, stable_names
from gpupipe.flow.bad.records import read_manifest
from gpupipe.load.state import sealed
from gpupipe.log import logger
from gpupipe.urls import SIGNING, cleaned, identity, without_parameters, without_secrets
from tests.chains import damage
from tests.reliability.faulty import Faulty

ID1, X = "f6fc42039fba3776", "4adf4367f96e584f"
PORT, MAIL, SLASH, BRANCH = "22db1c90cf5e5814", "dc0ead3fb2a51894", "f335e7c72c13fc26", "b6fa2d8a4c3ec503"
ODD, INNER = "4208783e927d0d68", "cfe7bcbf6eb14873"
NAMES = {
    "https://host/a.tfr": ("https://host/a.tfr", "https://host/a.tfr"),
    "https://host:8080/a@b.tfr": ("https://host:8080/a@b.tfr", "https://host:8080/a@b.tfr"),
    "https://user:pass@host/a.tfr": ("https://user:***@host/a.tfr", "https://host/a.tfr"),
    "https://token@host/a.tfr": ("https://***@host/a.tfr", "https://host/a.tfr"),
    "https://token:@host/a.tfr": ("https://***:***@host/a.tfr", "https://host/a.tfr"),
    "https://token:x-oauth-basic@host/a": ("https://***:***@host/a", "https://host/a"),
    "sftp://user@host/a.tfr": ("sftp://user@host/a.tfr", "sftp://host/a.tfr"),
    "https:///user:pass@host/a": ("https:///user:***@host/a", "https:///host/a"),
    "zip://a::https:////user:pass@host/a": ("zip://a::https:////user:***@host/a", "zip://a::https:////host/a"),
    "https://user:12/pass@host/a": (f"https://user:***{PORT}@host/a",) * 2,
    "http://minio:9000/me@x.org/a": (f"http://minio:***{MAIL}@x.org/a",) * 2,
    "http://u:p@minio:9000/me@x.org/a": ("http://u:***@minio:9000/me@x.org/a", f"http://minio:***{MAIL}@x.org/a"),
    "http://minio:9000/a@b/https://u:pass@h/": (f"http://minio:***{INNER}@b/https://u:***@h/",) * 2,
    "https://host/a?\ud800": (f"https://host/a?…&={ODD}",) * 2,
    "http://localhost:9000/me@x.org/a": ("http://localhost:9000/me@x.org/a",) * 2,
    "http://10.0.0.1:9000/me@x.org/a": ("http://10.0.0.1:9000/me@x.org/a",) * 2,
    "http://[::1]:9000/me@x.org/a": ("http://[::1]:9000/me@x.org/a",) * 2,
    "oss://key:se/cret@bucket/a": ("oss://key:***@bucket/a", "oss://bucket/a"),
    "gs://key:se/cret@bucket/a": ("gs://key:***@bucket/a", "gs://bucket/a"),
    "ours://key:se/cret@bucket/a": (f"ours://key:***{SLASH}@bucket/a",) * 2,
    "ours://a:b/c": ("ours://a:b/c",) * 2,
    "memory://a:b/c@d": ("memory://a:b/c@d",) * 2,
    "file:///a:b@c/d": ("file:///a:b@c/d",) * 2,
    "hdfs:///a@b/c": ("hdfs:///a@b/c",) * 2,
    "az://user:pass@host/a": ("az://user:***@host/a", "az://host/a"),
    "git://repo:branch@a": (f"git://repo:***{BRANCH}@a",) * 2,
    "https://p/https://u:pass@h/a?sig=s": ("https://p/https://u:***@h/a?…", "https://p/https://u:***@h/a"),
    "https://p/web/2/https:/u:pa/ss@h/a": ("https://p/web/2/https:/u:***@h/a",) * 2,
    "https://p/https://token@h/http://u:p@h/": ("https://p/https://***@h/http://u:***@h/",) * 2,
    "https://p/https%3A%2F%2Fu%3Ap%40h%2Fa": ("https://p/https%3A%2F%2Fu%3A***%40h%2Fa",) * 2,
    "https://p/https%253a%252f%252fu%253ap%2540h": ("https://p/https%253A%252F%252Fu%253A***%2540h",) * 2,
    "https://p/https%3A%2F%2Fh%2Fa%20b": ("https://p/https%3A%2F%2Fh%2Fa%20b",) * 2,
    "https://u:p@ss@host/a.tfr": ("https://u:***@host/a.tfr", "https://host/a.tfr"),
    "https://host/a.tfr?X-Amz-Credential=A/B&x-amz-signature=s": ("https://host/a.tfr?…", "https://host/a.tfr"),
    "https://host/a.tfr?Expires=1&Signature=s&Key-Pair-Id=K": ("https://host/a.tfr?…", "https://host/a.tfr"),
    "https://host/get?id=1": (f"https://host/get?…&id={ID1}", f"https://host/get?…&id={ID1}"),
    "https://host/get?id=1&token=t": (f"https://host/get?…&id={ID1}", f"https://host/get?…&id={ID1}"),
    "https://host/a?sv=1&se=2&sp=r&sr=b&sig=s&id=1": (f"https://host/a?…&id={ID1}", f"https://host/a?…&id={ID1}"),
    "https://host/a?sv=1": (f"https://host/a?…&sv={ID1}",) * 2,
    "https://host/a?x": (f"https://host/a?…&={X}", f"https://host/a?…&={X}"),
    "https://host/a#x": (f"https://host/a?…&={X}", f"https://host/a?…&={X}"),
    "https://host/a?": ("https://host/a?…", "https://host/a"),
    "simplecache::https://u:p@host/a?sig=s": ("simplecache::https://u:***@host/a?…", "simplecache::https://host/a"),
    "zip://a.csv::https://u:p@h/z.zip?sig=s": ("zip://a.csv::https://u:***@h/z.zip?…", "zip://a.csv::https://h/z.zip"),
    "file://user:pass@host/a": ("file://user:***@host/a", "file://host/a"),
    "s3://key:se/cr+et@bucket/a": ("s3://key:***@bucket/a", "s3://bucket/a"),
    "s3://bucket/a?.tfr": ("s3://bucket/a?.tfr", "s3://bucket/a?.tfr"),
    "s3://bucket/a?X-Amz-Signature=s": ("s3://bucket/a?…", "s3://bucket/a"),
    "s3://arn:aws:s3:us-west-2:1:accesspoint/n/a@b": ("s3://arn:aws:s3:us-west-2:1:accesspoint/n/a@b",) * 2,
    "abfs://container@account.dfs.core.windows.net/a": ("abfs://container@account.dfs.core.windows.net/a",) * 2,
    "github://org:repo@sha/a": ("github://org:repo@sha/a",) * 2,
    "/data/a?token=1": ("/data/a?token=1",) * 2,
    "a:b@c.tfr": ("a:b@c.tfr",) * 2,
}
"""The name of a file -> what is shown, what identifies it."""


@pytest.mark.parametrize("name", NAMES)
def test_what_is_shown_of_a_name_still_identifies_the_file(name: str) -> None:
    shown, identifies = NAMES[name]

    assert without_secrets(name) == without_secrets(shown) == shown
    assert identity(name) == identity(shown) == identity(identity(name)) == identifies


SENTENCES = {
    "got 'https://u:p@h/a?sig=s'; say so": "got 'https://u:***@h/a?…'; say so",
    "(https://u:p@h/a), https://h/b.": "(https://u:***@h/a), https://h/b.",
    "a,https://u:p@h/p,https://u:p@h/q": "a,https://u:***@h/p,https://u:***@h/q",
    'url=URL("http://u:p@h/a?X-Amz-Signature=s")': 'url=URL("http://u:***@h/a?…")',
    "https://user:pass-that-is-cut-o": "https://user:***@",
    "with url: /a?b=1&X-Amz-Signature=s (Caused by": "with url: /a?… (Caused by",
    "/data/a?b=1 is no URL, nor is x=1&y=2": "/data/a?b=1 is no URL, nor is x=1&y=2",
    "http://localhost:8265 and s3://b/a?.tfr": "http://localhost:8265 and s3://b/a?.tfr",
    "https://it's:p@h/x": "https://it's:***@h/x",
    "GET /https%3A%2F%2Fu%3Ap%40h HTTP": "GET /https%3A%2F%2Fu%3A***%40h HTTP",
    '"https://h/a?\\u2026", "https://h/a?\\u2026&id=0123456789abcdef"': (
        '"https://h/a?\\u2026", "https://h/a?\\u2026&id=0123456789abcdef"'
    ),
}


@pytest.mark.parametrize("text", SENTENCES)
def test_urls_in_a_sentence_are_shown_without_secrets(text: str) -> None:
    assert cleaned(text) == cleaned(SENTENCES[text]) == SENTENCES[text]


@pytest.mark.timeout(60)  # by the square of their lengths these would take hours
@pytest.mark.parametrize(
    "one",
    [
        "/a://",
        "/https:/",
        "a%3A%2F",
        "%25",
        "a:1/@",
        "&",
        "?",
        "&x",
        "&x=",
        "a::",
        "a",
        "?a=",
        "a://",
        "a://'a",
        "a://?",
        "&sig",
        "&X-Amz-",
    ],
)
@pytest.mark.parametrize("end", ["=", "://", " ://", "=://h"])
def test_a_text_from_a_file_takes_time_by_its_length(one: str, end: str) -> None:
    text = one * 30_000 + end
    assert len(cleaned(text)) <= 12 * len(text)  # 16 digits and more stand for each parameter of a query
    identity(text)


CHARACTER = r"""(?:[^\s'"<>`?]|'(?=[\w%&=+/@-]))"""
SIGNS = "|".join(re.escape(name).replace(r"\*", r"[\w.-]*") for name in SIGNING)


def test_what_is_found_in_a_text_is_what_one_expression_finds() -> None:
    """Each takes time by the square of the length of some texts."""
    scheme = r"[A-Za-z][A-Za-z0-9+.-]{0,30}"
    url = re.compile(rf"(?:{scheme}::)*{scheme}://(?:(?!{scheme}://){CHARACTER})*(?:\?(?:{CHARACTER}|\?)*)?")
    signed = re.compile(rf"""[?&](?=(?:[^\s'"<>`]*&)?(?:{SIGNS})=)[^\s'"<>`]+""", re.IGNORECASE)

    def shown(match: re.Match[str]) -> str:
        name = match[0].rstrip(".,:;!)]}")
        return without_secrets(name) + match[0][len(name) :]

    parts = (
        "http:// https:// s3:// filecache:: a user:pw@ host /p ? & = sig token ?sig=1 &Expires=2 id=1 . , :: : @ … # )"
    )
    rng = random.Random(1)
    for _ in range(5000):
        text = "".join(rng.choice([*parts.split(), " ", "'", '"']) for _ in range(rng.randint(1, 14)))
        assert cleaned(text) == signed.sub("?…", url.sub(shown, text)), text


@pytest.mark.parametrize("path", ["ice cream.txt?key=S3CRET", "a?key=a'.S3CRET", 'a?key="S3CRET', "a?key=<S3CRET`"])
def test_what_was_asked_for_is_shown_without_secrets_whatever_characters_it_has(path: str) -> None:
    url = f"https://u:p w@h/{path}"
    error = shown_cause(FileNotFoundError(url), url)

    assert isinstance(error, FileNotFoundError)
    for text in (
        str(error),
        str(shown_cause(OSError(f"got {url!r}"), url)),
        str(shown_cause(ValueError(quoted(url, "%/:=&?@'")), url)),
    ):
        assert "S3CRET" not in text and "p w" not in text
        assert "https://u:***@h/" in text and "?…&key=" in text


@pytest.mark.parametrize("secret", ["S3CRETkey", "S3%2FCRET", "S3/CRETs", "12/S3CRET", "S3'CRETs", "\ud800S3CRETs"])
@pytest.mark.parametrize(
    "url", ["s3://AKIA:{}@bucket/x", "https://h/a?X-Amz-Signature={}", "http://p/https://u:{}@h/x"]
)
def test_the_secrets_of_what_was_asked_for_are_not_shown_alone_either(url: str, secret: str) -> None:
    for spelled in (secret, quoted(secret, "", errors="surrogatepass"), unquoted(secret), repr(secret)[1:-1]):
        for text in (f'Invalid bucket name "AKIA:{spelled}@bucket"', f"got AKIA:{spelled}.", f"signature {spelled}"):
            assert "CRET" not in cleaned(text, url.format(secret))
    assert cleaned("a port, 1234, of u:p", "https://u:p@h/x?Expires=1234") == "a port, 1234, of u:p"


def test_what_was_asked_for_is_not_in_the_arguments_of_a_cause_either() -> None:
    url = "https://u:S3CRET@h/\ud800"
    with pytest.raises(UnicodeEncodeError) as caught:
        url.encode()

    assert "S3CRET" not in repr(shown_cause(caught.value, url).args)


@pytest.mark.parametrize("before", ["\ufeff", " ", "'", "x"])
def test_a_path_with_a_url_in_it_is_shown_without_secrets(before: str) -> None:
    assert without_secrets(f"{before}https://u:p@h/a?sig=s") == f"{before}https://u:***@h/a?…"


def test_a_url_that_lost_a_slash_is_shown_without_secrets() -> None:
    assert without_secrets(str(Path("https://u:p@h/a?sig=s"))) == "https:/u:***@h/a?…"


@pytest.mark.parametrize("name", [name.replace("*", "Date") for name in SIGNING])
def test_what_signs_a_url_identifies_nothing(name: str) -> None:
    for spelled in (name, name.lower(), name.upper()):
        assert identity(f"https://h/a?{spelled}=1") == "https://h/a"


def test_parameters_of_ones_own_may_sign_as_well() -> None:
    name = identity("https://h/a?auth=1&x-ours-date=2&id=1")

    assert without_parameters(name, ("AUTH", "x-ours-*")) == f"https://h/a?…&id={ID1}"
    assert without_parameters(name, ("auth", "x-ours-*", "id")) == "https://h/a"
    assert without_parameters("https://h/a", ("auth",)) == "https://h/a"


def test_names_of_signed_urls_are_those_of_the_paths() -> None:
    signed = [f"https://u:p@h/{path}?X-Amz-Credential=A/{i}" for i, path in enumerate(("a/0.jpg", "b/0.jpg"))]

    assert stable_names(signed) == ["a/0.jpg", "b/0.jpg"]
    assert stable_names(signed[:1]) == ["0.jpg"]
    assert stable_names(["https://h/get?id=1", "https://h/get?id=2"]) == [
        f"get?…&id={ID1}",
        identity("https://h/get?id=2").removeprefix("https://h/"),
    ]


class Signed:
    """A file of records over HTTP, by URLs that are signed anew.

    Attributes:
        server: counts requests.
    """

    def __init__(self, server: Faulty) -> None:
        self.server = server

    def url(self, signature: str, more: str = "") -> str:
        url = self.server.url(f"a.tfrecord?X-Amz-Signature={signature}{more}")
        return url.replace("://", f"://user:{signature}@")


@pytest.fixture
def signed(tmp_path: Path) -> Iterator[Signed]:
    data = tmp_path / "data"
    data.mkdir()
    damage.write(data / "a.tfrecord", [b"%04d" % i for i in range(20)])
    with Faulty(data).serving() as server:
        yield Signed(server)


def _draws(ds: Any) -> Any:
    return ds.map(lambda record, rng: (record, rng.integers(1 << 60)), rng=True)


CHAINS: dict[str, Callable[[str], Any]] = {
    "TFRecordDataset": gp.TFRecordDataset,
    "shuffled": lambda url: gp.TFRecordDataset(url).shuffle(5),
    "list_files": lambda url: gp.Dataset.list_files(url).interleave(gp.TFRecordDataset),
    "from_tensor_slices": lambda url: gp.Dataset.from_tensor_slices([url]).interleave(gp.TFRecordDataset),
    "from_list": lambda url: gp.Dataset.from_list([(url, 1)]).interleave(lambda path, _: gp.TFRecordDataset(path)),
    "from_tensors": lambda url: gp.Dataset.from_tensors(url).flat_map(gp.TFRecordDataset),
    "text of a function": lambda url: gp.Dataset.range(1).flat_map(lambda _: gp.TFRecordDataset(url)),
}


@pytest.mark.parametrize("make", CHAINS.values(), ids=CHAINS)
def test_a_file_that_is_signed_anew_draws_the_same_and_takes_the_state(
    make: Callable[[str], Any], signed: Signed, caplog: pytest.LogCaptureFixture
) -> None:
    expected = [int(draw) for _, draw in _draws(make(signed.url("one"))).iterator(epoch=0)]
    first = iter(_draws(make(signed.url("one"))))
    head = [int(next(first)[1]) for _ in range(7)]
    state = json.loads(json.dumps(first.state_dict()))

    again = iter(_draws(make(signed.url("two"))))
    again.load_state_dict(state)

    assert head + [int(draw) for _, draw in again] == expected
    assert [int(draw) for _, draw in _draws(make(signed.url("three"))).iterator(epoch=0)] == expected
    assert len(set(expected)) == 20
    assert [record for record in caplog.records if "has changed" in record.getMessage()] == []


def test_other_parameters_make_another_file(signed: Signed) -> None:
    def drawn(more: str, **options: Any) -> list[int]:
        ds = _draws(gp.TFRecordDataset(signed.url("one", more))).with_options(gp.Options(**options))
        return [int(draw) for _, draw in ds.iterator(epoch=0)]

    assert len({drawn(more)[0] for more in ("", "&id=1", "&id=2")}) == 3
    assert drawn("&id=1", signing_parameters=("id",)) == drawn("&id=2", signing_parameters=("ID",)) == drawn("")
    state = iter(gp.TFRecordDataset(signed.url("one", "&id=1"))).state_dict()
    with pytest.raises(StateError, match="a state over the same files"):
        iter(gp.TFRecordDataset(signed.url("one", "&id=2"))).load_state_dict(state)


def test_a_state_knows_the_parameters_that_its_options_name(signed: Signed) -> None:
    def items(more: str) -> Any:
        options = gp.Options(signing_parameters=("auth",))
        return iter(_draws(gp.TFRecordDataset(signed.url("one", more))).with_options(options))

    first, other = items("&auth=1"), items("&auth=2")
    next(first)
    state = json.loads(json.dumps(first.state_dict()))
    other.load_state_dict(state)

    assert [int(draw) for _, draw in first] == [int(draw) for _, draw in other]
    with pytest.raises(StateError, match="a state over the same files"):
        iter(_draws(gp.TFRecordDataset(signed.url("one", "&auth=1")))).load_state_dict(state)


@pytest.mark.parametrize("kind", ["cache", "snapshot"])
def test_a_cache_of_a_file_that_is_signed_anew_is_the_same(kind: str, signed: Signed, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()

    def kept(signature: str, more: str = "") -> list[bytes]:
        ds = gp.TFRecordDataset(signed.url(signature, more))
        return list(ds.cache(str(folder / "x")) if kind == "cache" else ds.snapshot(str(folder)))

    first = kept("one")
    gets = signed.server.gets

    assert kept("two") == first
    assert (signed.server.gets, len(list(folder.iterdir()))) == (gets, 1)
    assert kept("two", "&id=1") == kept("two", "&id=2") == first
    assert len(list(folder.iterdir())) == 3


def test_a_cache_of_the_urls_themselves_holds_those_that_are_valid(signed: Signed, tmp_path: Path) -> None:
    found = [list(gp.Dataset.list_files(signed.url(one)).cache(str(tmp_path / "x"))) for one in ("one", "two")]

    assert found == [[signed.url("one").encode()], [signed.url("two").encode()]]


def test_bad_records_of_a_file_that_is_signed_anew_are_known(signed: Signed, tmp_path: Path) -> None:
    path, listed = signed.server.folder / "a.tfrecord", str(tmp_path / "bad.jsonl")
    data = bytearray(path.read_bytes())
    data[14] ^= 1
    path.write_bytes(data)

    def errors(signature: str, more: str = "", **options: Any) -> list[str]:
        ds = gp.TFRecordDataset(signed.url(signature, more)).with_options(gp.Options(on_error="skip", **options))
        with iter(ds) as items:
            assert len(list(items)) == 19
            return [error.file for error in items.errors]

    shown = errors("one", error_manifest=listed)
    assert shown == [signed.server.url("a.tfrecord?…").replace("://", "://user:***@")]
    errors("two", error_manifest=listed, bad_records=listed)  # which does not write it again
    errors("two", "&id=1", error_manifest=listed)
    errors("two", "&id=1&auth=7", error_manifest=listed)

    lines = [json.loads(line) for line in Path(listed).read_text().splitlines()]
    assert len(lines) == 3
    known = read_manifest(listed)
    for more in ("", "&id=1", "&auth=7&id=1"):
        assert list(known.of_file(signed.url("three", more))) == ([0] if more != "&auth=7&id=1" else [])
    assert list(known.of_file(signed.url("three", "&id=2"))) == []
    assert list(read_manifest(listed, ("auth",)).of_file(signed.url("three", "&auth=8&id=1"))) == [0]


def _of_an_earlier_version(state: Any, name: str) -> Any:
    """A state in which a file has the name that earlier versions gave it."""
    ((_, size),) = state["files"]["sizes"]
    return sealed({**state, "files": {**state["files"], "sizes": [[name, size]], "digest": "0" * 32}})


def test_a_state_of_an_earlier_version_over_a_signed_url_is_refused_with_the_way_out(signed: Signed) -> None:
    first = iter(gp.TFRecordDataset(signed.url("one")))
    next(first)
    old = _of_an_earlier_version(first.state_dict(), "a.tfrecord?X-Amz-Signature=s1gnature&key=hidden")

    for state in (old, sealed({**old, "files": {n: x for n, x in old["files"].items() if n != "sizes"}})):
        with pytest.raises(StateError, match=r"over URLs with a query .* start the epoch again") as caught:
            iter(gp.TFRecordDataset(signed.url("two"))).load_state_dict(state)
        assert "s1gnature" not in str(caught.value) and "hidden" not in str(caught.value)


def test_a_state_over_a_plain_url_is_taken_when_the_url_is_signed(signed: Signed) -> None:
    plain = iter(_draws(gp.TFRecordDataset(signed.server.url("a.tfrecord"))))
    next(plain)

    now = iter(_draws(gp.TFRecordDataset(signed.url("one"))))
    now.load_state_dict(plain.state_dict())

    assert [int(draw) for _, draw in now] == [int(draw) for _, draw in plain]


def test_a_listing_names_files_by_their_paths_and_what_chooses_them(signed: Signed) -> None:
    for more, chosen in (("", ""), ("&id=1", f"?…&id={ID1}")):
        url = signed.url("one", more)
        assert expand(url) == [(url, f"a.tfrecord{chosen}")]
    assert shown_name(signed.url("one")) == signed.server.url("a.tfrecord?…").replace("://", "://user:***@")
    with pytest.raises(PlanError, match=r"nothing lies below 'http://user:\*\*\*@[\d.:]+/a.tfrecord\?…'"):
        gp.image_folder(signed.url("one"))


class Odd(ValueError):
    """An exception of another library."""


def test_the_text_of_errors_and_of_logs_has_no_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    bad = "\x1b[31mX\x07\nA LINE"
    named = type(f"Odd{bad}", (ValueError,), {})

    def fails(record: Any) -> Any:
        raise named(f"{bad} {bytes(record).decode()}")

    ds = gp.Dataset.from_tensor_slices(np.array([bad.encode()], dtype=object)).map(fails, traced=False)
    with pytest.raises(DataError) as caught:
        list(ds)
    list(ds.with_options(gp.Options(on_error="skip")))
    logger.warning("%s: %s %d", bad, named(bad), 3)

    texts = [str(caught.value), *(record.getMessage() for record in caplog.records)]
    assert len(texts) == 3
    for text in texts:
        assert text.isprintable() and "\\x1b[31mX\\x07\\nA LINE" in text
    assert str(PlanError(f"one line\nand {bad}")) == "one line\\nand \\x1b[31mX\\x07\\nA LINE"
    assert str(shown_cause(ValueError(bad))) == "\\x1b[31mX\\x07\\nA LINE"
    own = GpupipeError(Lines("one line\nand another \x1b"))
    assert str(own) == str(pickle.loads(pickle.dumps(own))) == "one line\nand another \\x1b"


def test_a_cause_with_a_secret_is_replaced_and_any_other_stays() -> None:
    plain, secret, missing = Odd("plain"), Odd("GET https://u:p4ss@h/a?sig=s"), FileNotFoundError("https://h/a?sig=s1")
    missing.__cause__ = secret
    nested = Odd("above")
    nested.__cause__ = missing

    assert shown_cause(plain) is plain
    for error, kind, text in (
        (secret, ValueError, "Odd: GET https://u:***@h/a?…"),
        (missing, FileNotFoundError, "https://h/a?…"),
        (nested, ValueError, "Odd: above"),
    ):
        found = shown_cause(error)
        assert (type(found), str(found)) == (kind, text)
        shown = "".join(traceback.format_exception(found))
        assert "p4ss" not in shown and "s1" not in shown


def test_the_error_of_a_function_has_its_own_exception_as_the_cause() -> None:
    def fails(record: Any) -> Any:
        raise Odd("https://u:p4ss@h/a")

    with pytest.raises(GpupipeError, match=r"raised Odd: https://u:\*\*\*@h/a") as caught:
        list(gp.Dataset.range(1).map(fails, traced=False))

    assert type(caught.value.__cause__) is Odd and str(caught.value.__cause__) == "https://u:p4ss@h/a"


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gpupipe")
