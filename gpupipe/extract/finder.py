"""finder: the data files that a path means, of which kind they are, and what is left out.

One rule for `image_folder` and for every command. A folder means, of these, the first that it has: TFRecord files by
their names; tar archives or Parquet files by their names; other files that start like a TFRecord file; the images of
its class folders, at any depth; the images in it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal, NamedTuple, TypeAlias

from gpupipe.errors import DataError, PlanError, shown_name
from gpupipe.extract.kinds import IMAGE_SUFFIXES, is_image_name, kind_at, starts_with_record, what_is
from gpupipe.extract.storage.glob import INDEX_SUFFIX, is_wild, unescaped_name
from gpupipe.extract.storage.patterns import expand, is_url, stable_names
from gpupipe.extract.storage.remote import files_below
from gpupipe.urls import chosen_by

from ..classes import dataclass

__all__ = [
    "LOOKED_AT",
    "LOOSE",
    "WANTED",
    "DataFile",
    "Form",
    "Found",
    "ImagesBelow",
    "called",
    "find",
    "images_below",
    "in_words",
]

Form: TypeAlias = Literal["TFRecord files", "images", "tar archives", "Parquet files"]

WANTED = "TFRecord files, images, tar archives or Parquet files"

LOOKED_AT = 1000
"""Most files of a folder with one suffix that are opened to find out whether some of them are TFRecord files."""

_HIDDEN = "hidden files and folders"
_LINKS = "links to folders"
_FOLDERS = "folders"
LOOSE = "images beside the class folders"
_EMPTY = "class folders without images"
_GIF = "GIF images, which no decoder reads"


class DataFile(NamedTuple):
    """A file to look into.

    Attributes:
        path: as it was given, or matched.
        name: what identifies it in any directory, as in `Dataset.list_files`; of an image, its path below the folder.
    """

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Found:
    """What some paths mean.

    Attributes:
        files: sorted, each once; images of class folders by class and name.
        forms: what each file is.
        classes: the names of the class folders, sorted; none where the images do not lie in such folders.
        labels: of images in class folders, the index of each one's class.
        left_out: how many of what lies there, or matches, are not among the files.
    """

    files: tuple[DataFile, ...]
    forms: Sequence[Form]
    classes: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        """The paths of the files."""
        return [file.path for file in self.files]

    def only(self, who: str, *forms: Form) -> Form:
        """Return what all files are.

        Raises:
            PlanError: they are of several kinds, or of none of `forms`.
        """
        counts = Counter(self.forms)
        first = self.forms[0]
        if len(counts) > 1 or first not in forms:
            got = " and ".join(f"{form} ({count:,})" for form, count in sorted(counts.items()))
            also = f"; left out were {in_words(self.left_out)}" if self.left_out else ""
            one = "files of one kind, " if len(forms) > 1 and len(counts) > 1 else ""
            raise PlanError(
                f"{who} needs {one}{_or(forms)}, got {got}, such as {shown_name(self.files[0].path)!r}{also}; "
                "name those that are meant, with a wildcard in quotes where there are several"
            )
        return first

    @property
    def left_out_text(self) -> str:
        """What is left out, in words: "left out: .json files (2), ..."; "" if nothing is."""
        return f"left out: {in_words(self.left_out)}" if self.left_out else ""


def in_words(left_out: Mapping[str, int]) -> str:
    """What is left out, and how often: ".json files (2), hidden files and folders (1)"; the most of it first."""
    return ", ".join(f"{what} ({count:,})" for what, count in sorted(left_out.items(), key=lambda one: (-one[1], one)))


def _or(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def find(given: str | Sequence[str], who: str) -> Found:
    """Find the files that paths, URLs, wildcards and folders mean.

    A name means that file. A wildcard means what it matches, but folders, hidden files and, where it matches data as
    well, files that are none. For a folder see the top of this page: files whose names start with a dot are left out,
    a link to a class folder is followed, one below a class is not. A file with the name of an image is not opened
    unless it is named alone. Of more than `LOOKED_AT` files of a folder with one suffix so many are, evenly spread, and
    the others if one of them starts like a TFRecord file.

    Args:
        given: as typed.
        who: needs files, for messages.

    Raises:
        PlanError: nothing matches, a folder has no such files, or a folder cannot be read.
    """
    parts = [_meant(one, who) for one in ([given] if isinstance(given, str) else given)]
    if len(parts) == 1:
        (one,) = parts
        return one
    left_out: Counter[str] = Counter()
    of: dict[DataFile, Form] = {}
    for part in parts:
        left_out.update(part.left_out)
        of.update(zip(part.files, part.forms, strict=True))
    explicit = [file for part, one in zip(parts, given, strict=True) if not is_wild(one) for file in part.files]
    names = dict(zip(explicit, stable_names([file.path for file in explicit]), strict=True))
    form_of: dict[str, tuple[DataFile, Form]] = {
        file.path: (DataFile(file.path, names.get(file, file.name)), form) for file, form in of.items()
    }
    files = [form_of[path] for path in sorted(form_of, key=lambda path: os.fsencode(unescaped_name(path)))]
    return Found(tuple(file for file, _ in files), [form for _, form in files], left_out=left_out)


def _meant(typed: str, who: str) -> Found:
    """What one path, wildcard, folder or URL means."""
    pattern = typed if is_url(typed) else os.path.expanduser(typed)
    if os.path.isdir(pattern):
        return _in_folder(pattern, who)
    needs = f"{who} needs {WANTED}, got {shown_name(typed)!r}"
    hits = [DataFile(*hit) for hit in expand(pattern)]
    files = [hit for hit in hits if not os.path.isdir(hit.path)]
    if not files:
        wild = is_wild(pattern)
        problem = "only folders match it" if hits else "no file matches it" if wild else "it does not exist"
        quotes = ", and quote wildcards so that the shell leaves them alone" if wild else ""
        raise PlanError(f"{needs}: {problem}; check the path{quotes}")
    if hits[0].path == pattern:
        if os.path.exists(pattern) and not os.path.isfile(pattern):  # a pipe would be waited for
            raise PlanError(f"{needs}, which is no file")
        form, kind = _form_of(pattern, alone=True)
        if form is None:
            raise PlanError(f"{needs}, which is {kind}")
        return _of_one(form, hits, {})
    left_out = Counter({_FOLDERS: len(hits) - len(files)})
    shown = os.path.basename(pattern).startswith(".")
    seen: list[DataFile] = []
    forms: list[Form] = []
    for file in files:
        base = os.path.basename(file.path)
        if base.startswith(".") and not shown:
            left_out[_HIDDEN] += 1
        elif (form := _form_in_many(file.path)) is None:
            left_out[called(base)] += 1
        else:
            seen.append(file)
            forms.append(form)
    if not seen:
        raise PlanError(f"{needs}: what it matches is {in_words(+left_out)}")
    return Found(tuple(seen), forms, left_out=+left_out)


def _form_by_name(name: str) -> Form | None:
    """What a file is that says so by its name."""
    lower = name.lower()
    if is_image_name(lower):
        return "images"
    if lower.endswith((".tar", ".tar.gz", ".tgz")):
        return "tar archives"
    if lower.endswith(".parquet"):
        return "Parquet files"
    return "TFRecord files" if ".tfrecord" in lower and not lower.endswith(INDEX_SUFFIX) else None


def _form_of(path: str, alone: bool = False) -> tuple[Form | None, str]:
    """What a file is, and the name of its kind: by its name, of records and an image named alone by the first bytes."""
    named = _form_by_name(os.path.basename(path))
    if named is not None and (is_url(path) or not (named == "TFRecord files" or (alone and named == "images"))):
        return named, ""
    kind = kind_at(path)
    known: dict[str, Form] = {
        "TFRecord": "TFRecord files",
        "a tar archive": "tar archives",
        "a Parquet file": "Parquet files",
    }
    return "images" if kind.is_image else known.get(kind.name), kind.name


def _form_in_many(path: str) -> Form | None:
    """The same of one of many files; None of a text and of a GIF."""
    if path.lower().endswith(".gif"):
        return None
    form, _ = _form_of(path)
    if form != "TFRecord files" or is_url(path) or _form_by_name(os.path.basename(path)) is not None:
        return form
    try:
        return None if what_is(path) == "a text file" else form
    except DataError:  # its reader says what is wrong
        return form


def called(name: str) -> str:
    """What a file is called that is left out: by its suffix, if that is one."""
    suffix = os.path.splitext(name)[1].lower()
    if suffix == ".gif":
        return _GIF
    return f"{suffix} files" if suffix[1:].isalnum() and len(suffix) < 12 else "other files"


def _in_folder(folder: str, who: str) -> Found:
    with os.scandir(folder) as entries:
        every = sorted((entry.name, _is_folder(entry)) for entry in entries)
    hidden = sum(name.startswith(".") for name, _ in every)
    inside = [name for name, is_folder in every if not is_folder and not name.startswith(".")]
    folders = len(every) - hidden - len(inside)
    named: dict[Form, list[str]] = {}
    for name in inside:
        if (by_name := _form_by_name(name)) not in (None, "images"):
            named.setdefault(by_name, []).append(name)
    if not named:
        alike = _by_suffix(inside)
        records = sorted(name for names in alike for name in _records_among(folder, names))
        if not records:
            return _images(folder, who, any(len(names) > LOOKED_AT for names in alike))
        named["TFRecord files"] = records
    form: Form = "TFRecord files" if "TFRecord files" in named else next(iter(named))
    if form != "TFRecord files" and len(named) > 1:
        raise PlanError(
            f"{who} needs files of one kind, got the folder {shown_name(folder)!r} with tar archives "
            f"({len(named['tar archives']):,}) and Parquet files ({len(named['Parquet files']):,}); name one kind, as "
            f"in '{os.path.join(folder, '*.tar')}'"
        )
    chosen = set(named[form])
    left_out = Counter(called(name) for name in inside if name not in chosen)
    left_out += Counter({_HIDDEN: hidden, _FOLDERS: folders})
    files = [DataFile(os.path.join(folder, name), name) for name in sorted(named[form], key=os.fsencode)]
    return _of_one(form, files, left_out)


def _of_one(form: Form, files: Sequence[DataFile], left_out: Mapping[str, int]) -> Found:
    return Found(tuple(files), (form,) * len(files), left_out=left_out)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder, or a link to one. The listing says it of all but links, without another call."""
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()


def _by_suffix(names: Sequence[str]) -> list[list[str]]:
    """Names of a folder by their suffixes, if these are letters; without those of images."""
    alike: dict[str, list[str]] = {}
    for name in names:
        suffix = os.path.splitext(name)[1].lower()
        if not is_image_name(name) and suffix != ".gif":
            alike.setdefault(suffix if suffix[1:].isalpha() else "", []).append(name)
    return list(alike.values())


def _records_among(folder: str, names: Sequence[str]) -> list[str]:
    """Those of some names alike whose files start like a TFRecord file."""

    def starts(name: str) -> bool:
        return starts_with_record(os.path.join(folder, name))

    if len(names) > LOOKED_AT and not any(starts(names[i * len(names) // LOOKED_AT]) for i in range(LOOKED_AT)):
        return []
    return list(filter(starts, names))


def _images(folder: str, who: str, many: bool) -> Found:
    below = images_below(folder, who)
    classes = sorted(below.classes)
    files = [file for name in classes for file in below.classes[name]]
    if files:
        labels = [label for label, name in enumerate(classes) for _ in below.classes[name]]
        return replace(_of_one("images", files, below.all_left_out()), classes=tuple(classes), labels=tuple(labels))
    if below.loose:
        return _of_one("images", below.loose, below.left_out + Counter({"folders without images": len(classes)}))
    some = f"; up to {LOOKED_AT:,} files with each suffix were looked into" if many else ""
    has = in_words(below.left_out + Counter({_FOLDERS: len(classes)})) or "nothing"
    raise PlanError(
        f"{who} needs {WANTED}, and the folder {shown_name(folder)!r} has no such files in it, and no images below it: "
        f"it has {has}{some}; for files in folders below it write '{os.path.join(folder, '**')}'"
    )


@dataclass(frozen=True, slots=True)
class ImagesBelow:
    """The images in a folder and below it.

    Attributes:
        loose: those in the folder itself, sorted by name.
        classes: those below each folder in it, at any depth, sorted by name.
        left_out: how many of what lies there are no such images.
    """

    loose: list[DataFile]
    classes: dict[str, list[DataFile]]
    left_out: Counter[str]

    def all_left_out(self) -> Counter[str]:
        """What is left out where the folders are classes."""
        empty = sum(not files for files in self.classes.values())
        return self.left_out + Counter({LOOSE: len(self.loose), _EMPTY: empty})


def images_below(
    folder: str, who: str, suffixes: Sequence[str] = IMAGE_SUFFIXES, follow_links: bool = False
) -> ImagesBelow:
    """List the images of a folder and of the folders in it, which are classes; nothing is opened.

    Args:
        folder: a folder, or the URL of one.
        who: needs it, for messages.
        suffixes: of images, in lower case.
        follow_links: also enter folders below a class that are links, each once.

    Raises:
        PlanError: there is no such folder, or one cannot be read.
    """
    loose: list[DataFile] = []
    classes: dict[str, list[DataFile]] = {}
    left_out: Counter[str] = Counter()
    ends = tuple(suffixes)
    local, chosen = local_path(folder), chosen_by(folder)
    lists = _remote(folder, who) if local is None else _local(local, who, left_out, follow_links)
    for here, files in lists:
        top = here.partition("/")[0]
        images = classes.setdefault(top, []) if here else loose
        for path, base in files:
            if base.startswith("."):
                left_out[_HIDDEN] += 1
            elif base.lower().endswith(ends):
                images.append(DataFile(path, f"{here}/{base}{chosen}" if here else f"{base}{chosen}"))
            else:
                left_out[called(base)] += 1
    for images in (loose, *classes.values()):
        images.sort(key=lambda file: file.name)
    return ImagesBelow(loose, classes, +left_out)


_Listed: TypeAlias = Iterator[tuple[str, Iterable[tuple[str, str]]]]
"""(a folder, "" or its path below the first one; (path, base name) of files in it)."""


def local_path(folder: str) -> str | None:
    """The path of a folder of this machine, also where a URL names it; None for that of another one."""
    return folder.removeprefix("file://") if re.match(r"file:///[^/:]", folder) or not is_url(folder) else None


def _remote(url: str, who: str) -> _Listed:
    hits = files_below(url)
    if not hits:
        raise PlanError(f"{who} needs a folder, and nothing lies below {shown_name(url)!r}")
    for path, name in hits:
        here, _, base = name.rpartition("/")
        if not any(part.startswith(".") for part in here.split("/")):
            yield here, [(path, base)]


def _local(folder: str, who: str, left_out: Counter[str], follow_links: bool) -> _Listed:
    if not os.path.isdir(folder):
        found = "a file" if os.path.exists(folder) else "nothing of that name"
        raise PlanError(f"{who} needs a folder, got {shown_name(folder)!r}: {found}")

    def failed(error: OSError) -> None:  # os.walk would leave the folder out
        raise PlanError(f"{who} cannot read the folder {shown_name(str(error.filename))!r}: {error.strerror}")

    try:
        with os.scandir(folder) as entries:
            every = [(entry.name, _is_folder(entry)) for entry in entries]
    except OSError as error:
        failed(error)
        raise
    yield "", [(os.path.join(folder, name), name) for name, is_folder in every if not is_folder]
    entered: set[tuple[int, int]] = set()
    for top, is_folder in every:
        if not is_folder:
            continue
        if top.startswith("."):
            left_out[_HIDDEN] += 1
            continue
        entered.clear()  # a link to another class is that class again
        for here, folders, files in os.walk(os.path.join(folder, top), onerror=failed, followlinks=follow_links):
            if follow_links and _again(here, entered):  # a link that leads back
                folders.clear()
                continue
            shown = [name for name in folders if not name.startswith(".")]
            left_out[_HIDDEN] += len(folders) - len(shown)
            if not follow_links:
                left_out[_LINKS] += sum(os.path.islink(os.path.join(here, name)) for name in shown)
            folders[:] = sorted(shown)
            yield os.path.relpath(here, folder).replace(os.sep, "/"), [(os.path.join(here, x), x) for x in files]


def _again(folder: str, entered: set[tuple[int, int]]) -> bool:
    """Whether a folder was entered before; it is from now on."""
    at = os.stat(folder)
    key = at.st_dev, at.st_ino
    known = key in entered
    entered.add(key)
    return known
