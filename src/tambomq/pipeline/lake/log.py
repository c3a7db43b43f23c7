"""The commit log of a lake: numbered entries, written atomically, that add and remove files.

An entry has the changes to all tables, and the batch and query that made them. So a batch is in all
tables or in none, and readers see one consistent version. A writer claims the next number with a
hard link that must not exist: of two writers, one wins and the other retries. Every `WHOLE_EVERY`
entries a snapshot of the whole version is written, so that readers need not read all entries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tambomq.errors import LakeConflict, LakeError, SettingsError
from tambomq.pipeline.lake.files import DRAFT, put, sync
from tambomq.pipeline.lake.locks import exclusive_lock, shared_lock

log = logging.getLogger(__name__)

FORMAT: Final = 1
WHOLE_EVERY: Final = 20
"""Entries between two snapshots of the whole version."""
_ENTRY, _WHOLE = ".json", ".whole.json"
_LOCK: Final = "lock"
_DIGITS: Final = 12


class LakeFile(msgspec.Struct, frozen=True):
    """A file of a table; *path* is relative to the lake."""

    path: str
    rows: int
    bytes: int


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One atomic change."""

    format: int = FORMAT
    at_ms: int
    by: str
    """The query whose batch it is, or the operation, such as ``compact``."""
    batch: int | None = None
    add: dict[str, list[LakeFile]] = {}
    """By table."""
    remove: dict[str, list[str]] = {}
    """Paths by table."""
    offset: dict[str, Any] = {}
    """The offset of the query after the batch."""
    facts: dict[str, int] = {}
    """Numbers for the next batch."""


class LakeVersion(msgspec.Struct, kw_only=True):
    """The files of all tables after entry *number*."""

    format: int = FORMAT
    number: int = 0
    files: dict[str, dict[str, LakeFile]] = {}
    """By table, then by path."""
    batches: dict[str, int] = {}
    """The last batch of each query."""
    offset: dict[str, Any] = {}
    facts: dict[str, int] = {}

    def of(self, table: str) -> list[LakeFile]:
        """Return the files of *table*."""
        return list(self.files.get(table, {}).values())

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for files in self.files.values() for file in files.values())

    def after(self, entry: LogEntry) -> LakeVersion:
        """Return this version with *entry* applied; raise `LakeConflict` if it does not fit."""
        files = {table: dict(found) for table, found in self.files.items()}
        for table, paths in entry.remove.items():
            for path in paths:
                if files.get(table, {}).pop(path, None) is None:
                    raise LakeConflict(f"{path} was removed from the lake by another process")
        for table, added in entry.add.items():
            files.setdefault(table, {}).update((file.path, file) for file in added)
        batches = self.batches if entry.batch is None else {**self.batches, entry.by: entry.batch}
        return LakeVersion(
            number=self.number + 1,
            files=files,
            batches=batches,
            offset=entry.offset or self.offset,
            facts={**self.facts, **entry.facts},
        )


class TableLog:
    """The log in one directory.

    A number is given to one entry only, also after that entry was dropped: a commit holds a shared
    lock from reading the latest version to the link, and entries are dropped under an exclusive
    one. Entries up to the newest snapshot may be missing; those after it may not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: LakeVersion | None = None

    def version(self) -> LakeVersion:
        """Return the latest version. Raises `LakeError` if entries are missing."""
        return self._latest()[0]

    def commit(self, entry: LogEntry) -> LakeVersion:
        """Append *entry*, after entries of other writers; raise `LakeConflict` if it does not fit.

        Returns the new version. No failure is raised once the entry is written, but a
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
        """Return those of *paths* that are in the latest version or in a kept entry.

        Reads the log from the disk again. The writer of these files must not delete them.
        """
        fresh = TableLog(self.path)
        known = {path for files in fresh.version().files.values() for path in files}
        for entry in fresh.entries():
            known.update(file.path for files in entry.add.values() for file in files)
            known.update(path for removed in entry.remove.values() for path in removed)
        return known.intersection(paths)

    def entries(self) -> Iterator[LogEntry]:
        """Yield the entries that are kept, the oldest first."""
        for number in sorted(_numbers(self.path, _ENTRY)):
            if (entry := self._entry(number)) is not None:
                yield entry

    def last_entries(self, count: int) -> list[LogEntry]:
        """Return at most *count* of the newest entries, the oldest first."""
        numbers = sorted(_numbers(self.path, _ENTRY))[-count:]
        found = (self._entry(number) for number in numbers)
        return [entry for entry in found if entry is not None]

    def forget_before(self, at_ms: int) -> int:
        """Drop entries from before *at_ms* that a snapshot includes; return how many.

        Drops none while another process commits: the next call does.
        """
        with exclusive_lock(self.path / _LOCK) as is_alone:
            return self._forget_before(at_ms) if is_alone else 0

    def _forget_before(self, at_ms: int) -> int:
        whole = self._whole()
        if not whole.number:
            return 0
        # The snapshot must be on the disk before the entries are dropped.
        sync(self.path)
        dropped = 0
        for number in sorted(_numbers(self.path, _ENTRY)):
            entry = self._entry(number)
            if number > whole.number or entry is None or entry.at_ms >= at_ms:
                break
            self._path(number, _ENTRY).unlink(missing_ok=True)
            dropped += 1
        # Another process may be about to read the second newest.
        for number in sorted(_numbers(self.path, _WHOLE))[:-2]:
            self._path(number, _WHOLE).unlink(missing_ok=True)
        for path in self.path.glob(f"{DRAFT}*"):
            # Left by a process that was killed: drafts live for milliseconds.
            if path.stat().st_mtime * 1000 < at_ms:
                path.unlink(missing_ok=True)
        return dropped

    def _path(self, number: int, ending: str) -> Path:
        return self.path / f"{number:0{_DIGITS}}{ending}"

    def _latest(self) -> tuple[LakeVersion, int]:
        """Return the latest version, and the number of the newest snapshot."""
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
            # Entries were dropped meanwhile, since a newer snapshot has them; or they are lost.
            if tried == found.number:
                raise LakeError(
                    f"{self._path(found.number + 1, _ENTRY)} is missing and later entries are "
                    "there: restore the lake from a backup, or choose another --lake"
                )
            tried = found.number

    def _whole(self) -> LakeVersion:
        while numbers := sorted(_numbers(self.path, _WHOLE), reverse=True):
            path = self._path(numbers[0], _WHOLE)
            # If it was dropped since it was listed, there is a newer one.
            if (raw := _read(path)) is not None:
                found: LakeVersion = _decoded(raw, LakeVersion, path)
                return found
        return LakeVersion()

    def _entry(self, number: int) -> LogEntry | None:
        path = self._path(number, _ENTRY)
        raw = _read(path)
        return None if raw is None else _decoded(raw, LogEntry, path)

    def _put_whole(self, version: LakeVersion) -> None:
        try:
            put(self._path(version.number, _WHOLE), msgspec.json.encode(version))
        except (OSError, SettingsError) as error:
            # The entry is committed; the next commit tries to write a snapshot again.
            log.warning("%s: no snapshot of the log could be written: %s", self.path, error)


def by_table(files: Mapping[str, Iterable[LakeFile]]) -> dict[str, list[str]]:
    """Return the paths of *files* by table, for `LogEntry.remove`."""
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
            f"{path} has format {found.format}, this TamboMQ reads {FORMAT}: use a matching version"
        )
    return found
