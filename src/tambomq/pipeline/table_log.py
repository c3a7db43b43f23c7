"""Which files a lake's tables have: a log of numbered entries, each made at once or not at all.

An entry says what was added and removed, in all tables, and which batch of which query that was.
So a batch is in all tables or in none, readers see one version, and nobody sees half of anything.
The number of an entry is taken by a hard link that must not exist: of two writers, one is first.
Now and then the whole is written as well, so that nobody has to read all entries.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec

from tambomq.errors import LakeConflict, SettingsError

FORMAT: Final = 1
WHOLE_EVERY: Final = 20
"""So many entries are read at most to know a version."""
_ENTRY, _WHOLE = ".json", ".whole.json"
_DIGITS: Final = 12


class File(msgspec.Struct, frozen=True):
    """A file of a table; *path* begins at the lake."""

    path: str
    rows: int
    bytes: int


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changed at once."""

    format: int = FORMAT
    at_ms: int
    by: str
    """The query whose batch it is, or what else was done."""
    batch: int | None = None
    add: dict[str, list[File]] = {}
    """By table."""
    remove: dict[str, list[str]] = {}
    """Paths by table."""
    offset: dict[str, Any] = {}
    """How far the query has come."""
    facts: dict[str, int] = {}
    """What the next batch wants to know."""


class Version(msgspec.Struct, kw_only=True):
    """All files there are after entry *number*."""

    format: int = FORMAT
    number: int = 0
    files: dict[str, dict[str, File]] = {}
    """By table, then by path."""
    batches: dict[str, int] = {}
    """The last batch of each query."""
    offset: dict[str, Any] = {}
    facts: dict[str, int] = {}

    def of(self, table: str) -> list[File]:
        """Return the files of *table*."""
        return list(self.files.get(table, {}).values())

    @property
    def bytes(self) -> int:
        """How large all files are together."""
        return sum(file.bytes for files in self.files.values() for file in files.values())

    def after(self, entry: Entry) -> Version:
        """Return the version that *entry* makes of this one; raise `LakeConflict` if it cannot."""
        files = {table: dict(found) for table, found in self.files.items()}
        for table, paths in entry.remove.items():
            for path in paths:
                if files.get(table, {}).pop(path, None) is None:
                    raise LakeConflict(f"{path} was removed from the lake by another")
        for table, added in entry.add.items():
            files.setdefault(table, {}).update((file.path, file) for file in added)
        batches = self.batches if entry.batch is None else {**self.batches, entry.by: entry.batch}
        return Version(
            number=self.number + 1,
            files=files,
            batches=batches,
            offset=entry.offset or self.offset,
            facts={**self.facts, **entry.facts},
        )


class Log:
    """The log in one directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: Version | None = None

    def version(self) -> Version:
        """Return what there is now."""
        found = self._seen or self._whole()
        while (entry := self._entry(found.number + 1)) is not None:
            found = found.after(entry)
        self._seen = found
        return found

    def commit(self, entry: Entry) -> Version:
        """Make *entry* the next one, whatever others did before; raise `LakeConflict` if it cannot.

        Returns the version there is then.
        """
        raw = msgspec.json.encode(entry)
        while True:
            after = self.version().after(entry)
            if self._put(self._path(after.number, _ENTRY), raw):
                break
        self._seen = after
        if after.number % WHOLE_EVERY == 0:
            self._put(self._path(after.number, _WHOLE), msgspec.json.encode(after))
        return after

    def entries(self) -> Iterator[Entry]:
        """Yield the entries that are kept, the oldest first."""
        for number in sorted(_numbers(self.path, _ENTRY)):
            if (entry := self._entry(number)) is not None:
                yield entry

    def forget_before(self, at_ms: int) -> int:
        """Drop entries from before *at_ms* that are in a whole; return how many."""
        wholes = sorted(_numbers(self.path, _WHOLE))
        if not wholes:
            return 0
        dropped = 0
        for number in sorted(_numbers(self.path, _ENTRY)):
            entry = self._entry(number)
            if number > wholes[-1] or entry is None or entry.at_ms >= at_ms:
                break
            self._path(number, _ENTRY).unlink(missing_ok=True)
            dropped += 1
        for number in wholes[:-1]:
            self._path(number, _WHOLE).unlink(missing_ok=True)
        return dropped

    def _path(self, number: int, ending: str) -> Path:
        return self.path / f"{number:0{_DIGITS}}{ending}"

    def _whole(self) -> Version:
        numbers = sorted(_numbers(self.path, _WHOLE), reverse=True)
        for number in numbers:
            raw = _read(self._path(number, _WHOLE))
            if raw is not None:
                found: Version = _decoded(raw, Version, self._path(number, _WHOLE))
                return found
        return Version()

    def _entry(self, number: int) -> Entry | None:
        path = self._path(number, _ENTRY)
        raw = _read(path)
        return None if raw is None else _decoded(raw, Entry, path)

    def _put(self, path: Path, raw: bytes) -> bool:
        """Write *path* as a whole; false if it is there."""
        made = self.path / f".{uuid4().hex}"
        try:
            with made.open("xb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            os.link(made, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
                raise SettingsError(
                    f"{self.path} knows no hard links: put the lake on another file system"
                ) from error
            raise
        finally:
            made.unlink(missing_ok=True)
        sync(self.path)
        return True


def sync(path: Path) -> None:
    """Return when *path*, a file or a directory, is on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def by_table(files: Mapping[str, Iterable[File]]) -> dict[str, list[str]]:
    """Return the paths of *files*, to be removed."""
    return {table: [file.path for file in found] for table, found in files.items()}


def _numbers(path: Path, ending: str) -> Iterator[int]:
    for each in path.iterdir() if path.exists() else ():
        head = each.name.removesuffix(ending)
        if head != each.name and head.isdecimal():
            yield int(head)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _decoded(raw: bytes, kind: Any, path: Path) -> Any:
    try:
        found = msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    if found.format != FORMAT:
        raise SettingsError(
            f"{path} is of format {found.format}, this TamboMQ reads {FORMAT}: use one that fits"
        )
    return found
