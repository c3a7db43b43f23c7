"""Which files a lake's tables have: a log of numbered entries, each made at once or not at all.

An entry says what was added and removed, in all tables, and which batch of which query that was.
So a batch is in all tables or in none, readers see one version, and nobody sees half of anything.
The number of an entry is taken by a hard link that must not exist: of two writers, one is first.
Now and then the whole is written as well, so that nobody has to read all entries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tambomq.errors import LakeConflict, LakeError, SettingsError
from tambomq.pipeline.lake_files import DRAFT, put, sync
from tambomq.pipeline.lake_locks import exclusive_lock, shared_lock

log = logging.getLogger(__name__)

FORMAT: Final = 1
WHOLE_EVERY: Final = 20
"""So many entries are read at most to know a version."""
_ENTRY, _WHOLE = ".json", ".whole.json"
_LOCK: Final = "lock"
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
    """The log in one directory.

    A number is given to one entry only, also after that entry was dropped: a commit holds a shared
    lock from reading the latest version to the link, and entries are dropped under an exclusive
    one. Entries up to the newest whole may be missing; those after it may not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: Version | None = None

    def version(self) -> Version:
        """Return what there is now. Raises `LakeError` if entries are missing."""
        return self._latest()[0]

    def commit(self, entry: Entry) -> Version:
        """Make *entry* the next one, whatever others did before; raise `LakeConflict` if it cannot.

        Returns the version there is then. No failure is raised once the entry counts, but a
        KeyboardInterrupt may come at any time: before undoing anything, ask `named`.
        """
        raw = msgspec.json.encode(entry)
        with shared_lock(self.path / _LOCK):
            while True:
                before, whole = self._latest()
                after = before.after(entry)
                if put(self._path(after.number, _ENTRY), raw):
                    break
        self._seen = after
        if after.number - whole >= WHOLE_EVERY:
            self._put_whole(after)
        return after

    def named(self, paths: Iterable[str]) -> set[str]:
        """Return those of *paths* that the latest version or an entry that is kept names.

        Read from the disk anew. A file of these must not be deleted by who wrote it.
        """
        fresh = Log(self.path)
        known = {path for files in fresh.version().files.values() for path in files}
        for entry in fresh.entries():
            known.update(file.path for files in entry.add.values() for file in files)
            known.update(path for removed in entry.remove.values() for path in removed)
        return known.intersection(paths)

    def entries(self) -> Iterator[Entry]:
        """Yield the entries that are kept, the oldest first."""
        for number in sorted(_numbers(self.path, _ENTRY)):
            if (entry := self._entry(number)) is not None:
                yield entry

    def forget_before(self, at_ms: int) -> int:
        """Drop entries from before *at_ms* that are in a whole; return how many.

        None while anybody commits: the next time will do.
        """
        with exclusive_lock(self.path / _LOCK) as is_alone:
            return self._forget_before(at_ms) if is_alone else 0

    def _forget_before(self, at_ms: int) -> int:
        whole = self._whole()
        if not whole.number:
            return 0
        # What replaces the entries has to be on the disk before they go.
        sync(self.path)
        dropped = 0
        for number in sorted(_numbers(self.path, _ENTRY)):
            entry = self._entry(number)
            if number > whole.number or entry is None or entry.at_ms >= at_ms:
                break
            self._path(number, _ENTRY).unlink(missing_ok=True)
            dropped += 1
        # Somebody may be about to read the one before.
        for number in sorted(_numbers(self.path, _WHOLE))[:-2]:
            self._path(number, _WHOLE).unlink(missing_ok=True)
        for path in self.path.glob(f"{DRAFT}*"):
            # Of one that was killed: drafts live for milliseconds.
            if path.stat().st_mtime * 1000 < at_ms:
                path.unlink(missing_ok=True)
        return dropped

    def _path(self, number: int, ending: str) -> Path:
        return self.path / f"{number:0{_DIGITS}}{ending}"

    def _latest(self) -> tuple[Version, int]:
        """Return the latest version, and the number of the newest whole."""
        tried = -1
        while True:
            whole = max(_numbers(self.path, _WHOLE), default=0)
            last = max(_numbers(self.path, _ENTRY), default=0)
            found = self._seen
            if found is None or found.number < whole:
                found = self._whole()
            while (entry := self._entry(found.number + 1)) is not None:
                found = found.after(entry)
            if found.number >= max(whole, last):
                self._seen = found
                return found, whole
            # Entries were dropped meanwhile, since a newer whole has them; or they are lost.
            if tried == found.number:
                raise LakeError(
                    f"{self._path(found.number + 1, _ENTRY)} is missing and later entries are "
                    "there: restore the lake from a backup, or choose another --lake"
                )
            tried = found.number

    def _whole(self) -> Version:
        while numbers := sorted(_numbers(self.path, _WHOLE), reverse=True):
            path = self._path(numbers[0], _WHOLE)
            # Dropped since it was listed: there is a newer one.
            if (raw := _read(path)) is not None:
                found: Version = _decoded(raw, Version, path)
                return found
        return Version()

    def _entry(self, number: int) -> Entry | None:
        path = self._path(number, _ENTRY)
        raw = _read(path)
        return None if raw is None else _decoded(raw, Entry, path)

    def _put_whole(self, version: Version) -> None:
        try:
            put(self._path(version.number, _WHOLE), msgspec.json.encode(version))
        except (OSError, SettingsError) as error:
            # The entry counts already, and the next commit tries again.
            log.warning("%s: the log could not be summed up: %s", self.path, error)


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
