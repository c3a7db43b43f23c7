"""Streams a server's data as an RDB file, as of one moment, the way a new replica gets it (SYNC).

The server forks, so the copy is of a moment between two commands or scripts, and its clients go on.
It works on any Redis or Valkey and needs no access to its files; the user needs the right to SYNC.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import hiredis

from tambomq.errors import StoreError, StoreUnavailable
from tambomq.store.endpoint import Endpoint
from tambomq.store.primary.sync import primary_finder
from tambomq.store.server_errors import translate
from tambomq.store.sync import Store
from tambomq.store.sync_connection import SyncConnection

# "eof": the server may stream a copy whose length it does not know, without a file of its own.
# "rdb-only": it need not keep the writes that follow. Servers that do not know a word refuse it,
# which does no harm.
_OPTIONS: Final = (("REPLCONF", "capa", "eof"), ("REPLCONF", "rdb-only", "1"))
_MARKER_BYTES: Final = 40
_LONGEST_HEAD: Final = 1024


def stream_snapshot(server: Endpoint) -> Iterator[bytes]:
    """Yield the data of *server* as pieces of an RDB file. Raises `StoreError`.

    The moment of the copy is after the first call of ``next`` and before it returns.
    """
    connection = _primary(server)
    try:
        for words in _OPTIONS:
            connection.send(hiredis.pack_command(words))
            connection.read()
        connection.send(hiredis.pack_command(("SYNC",)))
        yield from rdb_pieces(iter(connection.receive, b""))
    except OSError as error:
        raise StoreUnavailable(f"{server}: the copy broke off: {error}") from error
    finally:
        connection.close()


def rdb_pieces(received: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the RDB file in the reply to SYNC, and end where it ends.

    Raises `StoreError`, `OSError`.

    The reply is line ends while the server prepares, then ``$<length>`` or ``$EOF:<marker>`` and a
    line end, then the file, then the marker if there is one.
    """
    data = b""
    while b"\n" not in (data := data.lstrip(b"\n")):
        if len(data) > _LONGEST_HEAD:
            raise StoreError("the reply to SYNC has no length: is it a Redis or Valkey?")
        data += _next(received)
    head, _, rest = data.partition(b"\n")
    head = head.rstrip(b"\r")
    if head.startswith(b"-"):
        raise translate(hiredis.ReplyError(head[1:].decode(errors="replace")))
    if head.startswith(b"$EOF:"):
        yield from _until_marker(head[5:], rest, received)
    elif head.startswith(b"$") and head[1:].isdigit():
        yield from _of_length(int(head[1:]), rest, received)
    else:
        raise StoreError("the reply to SYNC has no length: is it a Redis or Valkey?")


def _until_marker(marker: bytes, held: bytes, received: Iterator[bytes]) -> Iterator[bytes]:
    if len(marker) != _MARKER_BYTES:
        raise StoreError(
            f"the marker at the end of a copy has {_MARKER_BYTES} bytes, not {len(marker)}"
        )
    # The server sends nothing after the marker.
    while not held.endswith(marker):
        if len(held) > _MARKER_BYTES:
            yield held[:-_MARKER_BYTES]
            held = held[-_MARKER_BYTES:]
        held += _next(received)
    yield held[:-_MARKER_BYTES]


def _of_length(length: int, piece: bytes, received: Iterator[bytes]) -> Iterator[bytes]:
    while length:
        piece = piece[:length]
        length -= len(piece)
        yield piece
        if length:
            piece = _next(received)


def _next(received: Iterator[bytes]) -> bytes:
    piece = next(received, b"")
    if not piece:
        raise ConnectionResetError("the server closed the connection")
    return piece


def _primary(server: Endpoint) -> SyncConnection:
    finder = primary_finder(server, partial(Store, patience_s=0))
    try:
        _, connection = finder.connect(partial(SyncConnection, server), ())
    finally:
        finder.close()
    if connection.is_replica:
        connection.close()
        raise StoreUnavailable(f"{server}: none of the nodes is a primary")
    return connection
