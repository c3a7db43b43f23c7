"""`JournalReader`: reads the entries of one queue's journal, and commits its position.

Entries that all named readers of a journal have committed are trimmed. Entries that one of them has
not committed stay, up to the journal's bounds.
"""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple, Self

from tambomq.errors import InvalidValue
from tambomq.journal import ops
from tambomq.journal.keys import JournalKeys, check_entry_id, check_reader
from tambomq.journal.wire import JournalRecord, record_of
from tambomq.store.sync import Store


class JournalEntry(NamedTuple):
    """An entry of a journal."""

    id: str
    record: JournalRecord


class JournalReader:
    """Reads the journal of *queue* of *protocol* on the server at *url*.

    *name* is the reader's own, the same after every restart; only `commit` and `forget` need it.
    Raises `InvalidFormat` for a protocol, a queue or a name that cannot be one.
    """

    def __init__(self, url: str, protocol: str, queue: str, *, name: str | None = None) -> None:
        self.keys = JournalKeys(protocol, queue)
        self.name = None if name is None else check_reader(name)
        self._store = Store(url)

    def read(self, after: str = "0-0", *, count: int = ops.COUNT) -> list[JournalEntry]:
        """Return up to *count* entries that follow the entry *after*; none at the end."""
        page = self._store.run(ops.read(self.keys, f"({check_entry_id(after)}", count=count))
        return [JournalEntry(id.decode(), record_of(fields)) for id, fields in page]

    def commit(self, id: str) -> int:
        """Commit all entries up to *id*; return how many entries were trimmed.

        ``0-0`` registers the reader before it has read anything. An id before its last commit
        changes nothing, so a commit may be repeated.
        """
        commit = ops.commit(self.keys, self._own_name(), id)
        return self._store.follow(ops.commit_and_trim((commit,)))

    def forget(self) -> bool:
        """Delete this reader, so that trimming does not wait for it; false if it was not known."""
        return self._store.run(ops.forget(self.keys, self._own_name()))

    def last_id(self) -> str | None:
        """Return the id of the last entry; `None` without entries."""
        return self._store.run(ops.last_id(self.keys))

    def state(self) -> ops.State | None:
        """Return the journal's counters and its readers' positions; `None` without a journal."""
        return self._store.run(ops.state(self.keys))

    def close(self) -> None:
        """Close the connection; the next call would open another."""
        self._store.close()

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def _own_name(self) -> str:
        if self.name is None:
            raise InvalidValue("name", None, "given to a JournalReader that commits")
        return self.name
