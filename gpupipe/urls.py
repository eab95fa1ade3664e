"""urls: what of a URL is shown and written down, and what of it identifies the file.

A URL may hold a password, and the signature that a storage asks for. Neither is ever shown or written: errors, logs,
states, reports and pages have ``https://user:***@host/path?…``. So it is with a URL in the path of another one, as
proxies have it, also where it is percent-encoded. Nor are they part of a file's identity, which random numbers, states,
caches and lists of bad records depend on: a file that is signed anew is the same file. Any other parameter of a query
may choose another file; it is shown and written as a digest: ``https://host/get?…&id=`` and 16 hexadecimal digits. And
so is what may be a password or a part of a path (``https://minio:9000/a@b/c``), behind ``***``. So what was written
still identifies the file.

A URL may be chained, as fsspec has it: ``simplecache::https://host/path``.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from urllib.parse import quote, unquote

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

_HOSTS = frozenset(
    "adl cos ftp ftps gcs gs hdfs http https oci oss r2 s3 s3a s3n sftp smb ssh webdav webdavs webhdfs".split()
)
"""Schemes whose URLs begin with a host or a bucket, and with a user before it."""

_CONTAINERS = frozenset("abfs abfss az git github".split())
"""Schemes that name a container or a repository before the @."""

_REPOSITORIES = frozenset("git github".split())
"""Those that name an organization or a branch before it, behind a colon."""

_PATHS = frozenset("data dir file libarchive local memory reference tar zip".split())
"""Schemes without a host."""

_TOKENS = frozenset("http https webdav webdavs".split())
"""Schemes with which a user that has no password is one."""

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

_QUERY = re.compile(r"\?(?=&*[\w.~%-]+=|…|\\u2026)")
"""Where the query begins in a URL of another scheme than HTTP, whose names may have question marks."""

_NO_PORT = re.compile(r"(?!arn:)[^@:\[\]]*:(?!\d+$)")
"""A host, or a user, before something that is no port; the names of Amazon's resources have colons."""

_DIGEST = r"\*{3}[0-9a-f]{16}"

_UNSURE = re.compile(
    # A host that has a dot is one, as is this machine; and a file has a name behind its host.
    rf"(?!(?:arn|localhost):|[^@:/]*\.[^@:/]*:\d+/)([^@:/\[\]]+):(?!{_DIGEST}@)(\d+/.*(?=@[^@/]+/)|(?!\d+/).*)@",
    re.DOTALL,
)
"""What may be a user and a password, or a host with its port and a path, or a repository and its branch."""

_UNSURE_SHOWN = re.compile(rf"[^@:/\[\]]+:{_DIGEST}")

_INNER = re.compile(rf"(?<=[/=])(?:({_SCHEME})://|({'|'.join(sorted(_HOSTS, reverse=True))}):/)", re.IGNORECASE)
"""Where a URL begins in the path of another one."""

_ENCODED = re.compile(rf"""{_SCHEME}%(25)?3A(?:%(?:25)?2F)+[^\s'"<>`/?&]*""", re.IGNORECASE)
"""A URL whose characters are percent-encoded, once or twice."""

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
        url: one that may be in it, with whatever characters, and as its parts.
    """
    for link in _LINK.split(url) if is_url(url) else ():
        hidden = list[str]()
        shown = _shown(link, hidden)
        if shown != link:
            for spelled in _spellings(link):
                text = text.replace(spelled, shown)
            for secret in sorted({spelled for one in hidden for spelled in _spellings(one)}, key=len, reverse=True):
                text = text.replace(secret, "***")
    if "://" in text:
        text = "".join(_without_those_of_urls(text))
    if ":/" in text:
        text = "".join(_without_those_of_halved(text))
    if "%" in text:
        text = _ENCODED.sub(lambda found: _of_encoded(found, []), text)
    return _PARAMETERS.sub(_unsigned, text) if "=" in text else text


def _spellings(text: str) -> Iterator[str]:
    """How clients may write what was asked for."""
    yield from (text, repr(text)[1:-1], unquote(text))
    yield from (quote(text, safe=safe, errors="surrogatepass") for safe in (_UNQUOTED, ""))


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


def _shown(link: str, hidden: list[str] | None = None) -> str:
    """What is shown of a link of a chain; what is not shown is added to `hidden`, if it is long enough to be known."""
    secrets = list[str]()
    scheme, user, place, query = _parts(link, secrets)
    if hidden is not None:
        choosing = {value for _, value in _choosing(query[1:].split("&"))}
        values = {one.partition("=")[2] for one in query[1:].split("&")} - choosing
        hidden += [one for one in secrets if len(one) >= 4]
        hidden += [one for one in values if len(one) >= 8]
    return f"{scheme}{user}{place}{_written(query)}"


def _identity(link: str) -> str:
    scheme, user, place, query = _parts(link, [])
    name, written = scheme.partition("://")[0].lower(), _written(query)
    if user and ":" not in user and name not in _HOSTS:
        return f"{scheme}{user}{place}"
    return f"{scheme}{_unsure(name, place, []) if user else place}{'' if written == '?…' else written}"


def _parts(link: str, hidden: list[str], encoded: bool = True) -> tuple[str, str, str, str]:
    """The scheme; what is shown of the user and the password, and of the host and the path; the query of a URL."""
    before, mark, rest = link.partition("://")
    if not mark:
        return link, "", "", ""
    begins = re.search(r"[?#]", rest) if before.lower() in ("http", "https") else _QUERY.search(rest)
    place, query = (rest, "") if begins is None else (rest[: begins.start()], rest[begins.start() :])
    slashes, user, place = _divided(before.lower(), place, hidden)
    if ":/" in place:
        inner = list(_INNER.finditer(place))
        ends = [*(one.end() for one in inner), len(place)]
        shown = [place[: ends[0]]]
        for one, (begin, end) in zip(inner, pairwise(ends), strict=True):
            scheme = (one[1] or one[2]).lower()
            more, its_user, rest = _divided(scheme, place[begin:end], hidden)
            shown += more, its_user, rest if its_user else _unsure(scheme, rest, hidden)
        place = "".join(shown)
    if encoded and "%" in place:
        place = _ENCODED.sub(lambda found: _of_encoded(found, hidden), place)
    if not user:
        place = _unsure(before.lower(), place, hidden)
    return f"{before}{mark}{slashes}", user, place, query


def _of_encoded(found: re.Match[str], hidden: list[str]) -> str:
    times = 2 if found[1] else 1
    plain = found[0]
    for _ in range(times):
        plain = unquote(plain)
    scheme, user, place, query = _parts(plain, hidden, encoded=False)
    shown = f"{scheme}{user}{place}{_written(query)}"
    if shown == plain:
        return found[0]
    for _ in range(times):
        shown = quote(shown, safe="*", errors="surrogatepass")
    return shown


def _divided(scheme: str, place: str, hidden: list[str]) -> tuple[str, str, str]:
    """Of what is behind a scheme: slashes too many; what is shown of the user and the password, and of the rest."""
    rest = place if scheme in _PATHS else place.lstrip("/")
    slashes = place[: len(place) - len(rest)]
    host, slash, path = rest.partition("/")
    user, at, name = host.rpartition("@")
    is_host = scheme in _TOKENS or not slashes  # hdfs:/// and a path
    is_name = scheme in _CONTAINERS and (":" not in user or scheme in _REPOSITORIES)
    if at and is_host and not is_name and not _UNSURE_SHOWN.fullmatch(user):
        return slashes, _masked(scheme, user, hidden), f"{name}{slash}{path}"
    if (
        not at and is_host and scheme in _HOSTS and _NO_PORT.match(host)
    ):  # the password has a slash, or the rest is cut off
        user, at, after = rest.rpartition("@")
        return slashes, _masked(scheme, user if at else rest, hidden), after if at else ""
    return slashes, "", rest


def _unsure(scheme: str, place: str, hidden: list[str]) -> str:
    """A place without a user, in which a digest stands for what may be a password."""
    if "@" not in place or scheme in _PATHS or scheme == "github":
        return place
    inner = _INNER.search(place)
    found = _UNSURE.match(place, 0, len(place) if inner is None else inner.start())
    if found is None:
        return place
    hidden.append(found[2])
    return f"{found[1]}:***{_digest(found[2])}@{place[found.end() :]}"


def _masked(scheme: str, user: str, hidden: list[str]) -> str:
    """What is shown of a user and a password."""
    if not user:
        return ""
    name, colon, password = user.partition(":")
    if scheme in _TOKENS and password in ("", "x-oauth-basic"):
        hidden.append(name)
        name = "***"
    if colon:
        hidden.append(password if len(password) >= 4 else f"{user}@")
        hidden.append(b64encode(unquote(user).encode(errors="surrogatepass")).decode().rstrip("="))  # as HTTP sends it
    return f"{name}{':***' if colon else ''}@"


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
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
