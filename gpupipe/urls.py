"""urls: what of a URL is shown and written down, and what of it identifies the file.

A URL may hold a password, and the signature that a storage asks for. Neither is ever shown or written: errors, logs,
states, reports and pages have ``https://user:***@host/path?…``. Nor are they part of a file's identity, which random
numbers, states, caches and lists of bad records depend on: a file that is signed anew is the same file. Any other
parameter of a query may choose another file; it is shown and written as a digest: ``https://host/get?…&id=`` and 16
hexadecimal digits. So what was written still identifies the file.

A URL may be chained, as fsspec has it: ``simplecache::https://host/path``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from urllib.parse import quote

__all__ = ["SIGNING", "chosen_by", "cleaned", "identity", "is_url", "without_parameters", "without_secrets"]

SIGNING = (
    *("X-Amz-*", "AWSAccessKeyId"),
    *("X-Goog-*", "GoogleAccessId"),
    *("Expires", "Signature", "Policy", "Key-Pair-Id"),  # of CloudFront, and of older signatures of S3 and Google
    *("sig", "token", "access_token"),
)
"""Parameters of a query that sign a URL or let it expire, in upper or lower case; ``*`` stands for any end."""

_OF_AZURE = frozenset(
    "sv se sp st spr sr srt ss si sip sdd skoid sktid skt ske sks skv saoid suoid scid ses sduoid skdutid".split()
)
"""Azure's: beside ``sig``. Alone names as short as these may mean anything."""

_HOSTS = frozenset("ftp ftps hdfs http https s3 s3a s3n sftp smb ssh webdav webhdfs".split())
"""Schemes whose URLs begin with a host, and with a user before it."""

_NO_USERS = frozenset("abfs abfss az git github".split())
"""Schemes that name a container or a repository before the @."""

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]{0,30}"

_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*::)*[A-Za-z][A-Za-z0-9+.-]*://")

_LINKS = 8
"""Schemes before that of a URL, in a chain. With no bound, a text of colons would take time by the square."""

_LINK = re.compile(rf"::(?=(?:{_SCHEME}::){{0,{_LINKS}}}{_SCHEME}://)")
"""What joins the URLs of a chain."""

_LAST_SCHEME = re.compile(rf"{_SCHEME}\Z")

_IN_A_URL = r"""[^\s'"<>`?]|'(?=[\w%&=+/@-])"""

_REST = re.compile(rf"(?:(?!{_SCHEME}://)(?:{_IN_A_URL}))*(?:\?(?:{_IN_A_URL}|\?)*)?")
"""A URL in a sentence, behind its scheme. Another one ends it, but for one in its query."""

_PUNCTUATION = ".,:;!)]}"

_QUERY = re.compile(r"\?(?=[\w.~%-]+=|…|\\u2026)")
"""Where the query begins in a URL of another scheme than HTTP, whose names may have question marks."""

_NO_PORT = re.compile(r"(?!arn:)[^@:\[\]]*:(?!\d+$)")
"""A host, or a user, before something that is no port; the names of Amazon's resources have colons."""

_NAME = re.compile(r"[\w.~%-]{1,40}", re.ASCII)
"""The name of a parameter that is written down; another one, or a value without a name, is part of the digest."""

_WRITTEN = re.compile(r"\?(?:…|\\u2026)((?:&[A-Za-z0-9_.~%-]{0,40}=[0-9a-f]{16})*)")
"""A query as this module writes it, also in JSON."""

_PARAMETER = re.compile(r"&([^&=]*)=[0-9a-f]{16}")


def _pattern(names: Sequence[str]) -> str:
    return "|".join(re.escape(name).replace(r"\*", r"[\w.-]*") for name in names)


_HALVED = re.compile(rf"(?<![\w+.-])({'|'.join(sorted(_HOSTS, reverse=True))}):/(?!/)", re.IGNORECASE)
"""The scheme of a URL that was taken for a path, in which one of its slashes is left."""

_UNQUOTED = "%/:=&?~#+!$,;'@()*[]"
"""What clients of HTTP leave in a URL beside letters and digits."""

_SIGNS = re.compile(_pattern(SIGNING), re.IGNORECASE)

_IN_A_QUERY = r"""[^\s'"<>`]"""

_PARAMETERS = re.compile(rf"[?&]{_IN_A_QUERY}+")
"""What may be a query, behind a path alone, as clients of HTTP name what they asked for."""

_SIGNATURE = re.compile(rf"[?&](?:{_pattern(SIGNING)})=", re.IGNORECASE)


def is_url(text: str) -> bool:
    """Whether a name has a scheme (``s3://...``, ``simplecache::https://...``) and is opened by fsspec."""
    return _URL.match(text) is not None


def without_secrets(name: str) -> str:
    """The name of a file to be shown or written: a URL without password and query, anything else as it is.

    Something before a URL (a space, a byte order mark) makes a path of it, and `pathlib` leaves one of its slashes.
    """
    if is_url(name):
        return "::".join(map(_shown, _LINK.split(name)))
    if "://" in name:
        return cleaned(name)
    halved = _HALVED.search(name)
    return name if halved is None else name[: halved.start()] + _of_halved(halved[1], name[halved.end() :])


def _of_halved(scheme: str, rest: str) -> str:
    return _shown(f"{scheme}://{rest}").replace("://", ":/", 1)


def identity(name: str, also: Sequence[str] = ()) -> str:
    """What identifies a file, of its name or of what `without_secrets` made of that; a path as it is.

    Args:
        name: a URL: user, password and parameters that sign it are left out, of others there are digests.
        also: names of other parameters that sign URLs, as in `SIGNING`.
    """
    if not is_url(name):
        return name
    return without_parameters("::".join(map(_identity, _LINK.split(name))), also)


def chosen_by(url: str) -> str:
    """The part of its query that identifies a file, as at the end of `identity`; "" if there is none."""
    _, mark, parameters = identity(url).partition("?…")
    return mark + parameters


def without_parameters(name: str, also: Sequence[str]) -> str:
    """Leave parameters out of what identifies a file, or of its last part."""
    if not also or "?…" not in name:
        return name
    signs = re.compile(_pattern(also), re.IGNORECASE)

    def kept(query: re.Match[str]) -> str:
        left = [one[0] for one in _PARAMETER.finditer(query[1]) if not signs.fullmatch(one[1])]
        return f"?…{''.join(left)}" if left else ""

    return _WRITTEN.sub(kept, name)


def cleaned(text: str, url: str = "") -> str:
    """A text without the passwords and queries of the URLs in it, which may be cut off, and without signatures.

    It may come from a file: this takes time by its length, whatever it is.

    Args:
        text: a sentence, in which spaces, quotes and the like end a URL.
        url: one that may be in it, with whatever characters.
    """
    for link in _LINK.split(url) if is_url(url) else ():
        shown = _shown(link)
        if shown != link:
            for spelled in (link, quote(link, safe=_UNQUOTED, errors="surrogatepass"), repr(link)[1:-1]):
                text = text.replace(spelled, shown)
    if "://" in text:
        text = "".join(_without_those_of_urls(text))
    if ":/" in text:
        text = "".join(_without_those_of_halved(text))
    return _PARAMETERS.sub(_unsigned, text) if "=" in text else text


def _without_those_of_urls(text: str) -> Iterator[str]:
    done, at = 0, text.find("://")
    while at >= 0:
        begin, end = _begin_of_url(text, done, at), at + 3
        if begin < at:
            rest = _REST.match(text, end)
            end = rest.end() if rest is not None else end
            url = text[begin:end].rstrip(_PUNCTUATION)
            yield text[done:begin]
            yield without_secrets(url)
            done = begin + len(url)
        at = text.find("://", end)
    yield text[done:]


def _without_those_of_halved(text: str) -> Iterator[str]:
    done = 0
    while (halved := _HALVED.search(text, done)) is not None:
        rest = _REST.match(text, halved.end())
        end = halved.end() if rest is None else rest.end()
        url = text[halved.end() : end].rstrip(_PUNCTUATION)
        yield text[done : halved.start()]
        yield _of_halved(halved[1], url)
        done = halved.end() + len(url)
    yield text[done:]


def _begin_of_url(text: str, least: int, at: int) -> int:
    """Where the URL with ``://`` at a place begins, with the schemes chained before it; that place if it has none."""
    begin = end = at
    for _ in range(_LINKS + 1):
        scheme = _LAST_SCHEME.search(text[max(least, end - 31) : end])
        if scheme is None:
            break
        begin = end - len(scheme[0])
        end = begin - 2
        if end <= least or text[end:begin] != "::":
            break
    return begin


def _unsigned(parameters: re.Match[str]) -> str:
    text = parameters[0]
    begins = [0 if text[one.start()] == "&" else one.start() for one in _SIGNATURE.finditer(text)]
    return f"{text[: min(begins)]}?…" if begins else text


def _shown(link: str) -> str:
    scheme, user, place, query = _parts(link)
    name, colon, _ = user.partition(":")
    return f"{scheme}{name}{':***' if colon else ''}{'@' * bool(user)}{place}{_written(query)}"


def _identity(link: str) -> str:
    scheme, user, place, query = _parts(link)
    kept = user and ":" not in user and scheme.partition("://")[0].lower() not in _HOSTS
    written = _written(query)
    return f"{scheme}{user}@{place}" if kept else f"{scheme}{place}{'' if written == '?…' else written}"


def _parts(link: str) -> tuple[str, str, str, str]:
    """The scheme, the user and the password, the host and the path, and the query of a URL."""
    before, mark, rest = link.partition("://")
    scheme = before.lower()
    if not mark:
        return link, "", "", ""
    begins = re.search(r"[?#]", rest) if scheme in ("http", "https") else _QUERY.search(rest)
    place, query = (rest, "") if begins is None else (rest[: begins.start()], rest[begins.start() :])
    if scheme in _NO_USERS:
        return before + mark, "", place, query
    host, slash, path = place.partition("/")
    user, at, host = host.rpartition("@")
    if not at and scheme in _HOSTS and _NO_PORT.match(host):  # the password has a slash, or the rest is cut off
        user, at, rest = place.rpartition("@")
        return before + mark, user if at else place, rest if at else "", query
    return before + mark, user, f"{host}{slash}{path}", query


def _written(query: str) -> str:
    if not query or _WRITTEN.fullmatch(query):
        return query
    return "?…" + "".join(f"&{name}={_digest(value)}" for name, value in _choosing(query[1:].split("&")))


def _choosing(parameters: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The names and values of the parameters that may choose a file."""
    pairs = [one.partition("=") for one in parameters if one]
    of_azure = any(name.lower() == "sig" for name, _, _ in pairs)
    for name, mark, value in pairs:
        if not mark or not _NAME.fullmatch(name):
            yield "", f"{name}{mark}{value}"
        elif not (_SIGNS.fullmatch(name) or (of_azure and name.lower() in _OF_AZURE)):
            yield name, value


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="surrogateescape"), digest_size=8).hexdigest()
