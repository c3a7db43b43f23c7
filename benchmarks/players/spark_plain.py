"""The same work without Spark, in one plain process: redis-py and pandas, or hiredis alone.

What a stream or a queue has is read by pages of 1,000, decoded, and becomes the same columns. With
redis-py they are a DataFrame for each page, all of them joined at the end would only take longer;
with hiredis they are lists.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import hiredis
import msgspec
import pandas as pd
import redis

from benchmarks.players.talk import play

_PAGE = 1000
_decode = msgspec.msgpack.decode


def about(_: Mapping[str, Any]) -> dict[str, str]:
    """What is measured here."""
    found = (f"{name} {version(name)}" for name in ("redis", "pandas", "hiredis"))
    return {"version": f"plain Python: {', '.join(found)}"}


# ── redis-py → pandas ────────────────────────────────────────────────────────


def read_jobs(order: Mapping[str, Any]) -> dict[str, float]:
    """Read a stream of jobs into DataFrames."""

    def row(id: bytes, fields: Mapping[bytes, bytes]) -> dict[str, Any]:
        job, payload, created, attempt, *_ = _decode(fields[b"d"])
        return {
            "entry_id": id.decode(),
            "id": job,
            "name": fields.get(b"n", b"").decode(),
            "payload": payload,
            "created_at": created,
            "attempt": attempt,
            "enqueued_at": int(id.partition(b"-")[0]),
        }

    return _read_stream(order, row, ("created_at", "enqueued_at"))


def read_events(order: Mapping[str, Any]) -> dict[str, float]:
    """Read a stream of events into DataFrames."""
    texts, numbers = (b"e", b"id", b"n", b"reason"), (b"ts", b"attempt", b"duration_us")

    def row(id: bytes, fields: Mapping[bytes, bytes]) -> dict[str, Any]:
        return {
            "entry_id": id.decode(),
            **{name.decode(): fields[name].decode() for name in texts if name in fields},
            **{name.decode(): int(fields[name]) for name in numbers if name in fields},
            "recorded_at": int(id.partition(b"-")[0]),
        }

    return _read_stream(order, row, ("ts", "recorded_at"))


def _read_stream(
    order: Mapping[str, Any],
    row: Callable[[bytes, Mapping[bytes, bytes]], dict[str, Any]],
    times: Sequence[str],
) -> dict[str, float]:
    server, low = _server(order), "-"

    def pages() -> Iterator[int]:
        nonlocal low
        while page := server.xrange(order["key"], low, "+", _PAGE):
            low = f"({page[-1][0].decode()}"
            yield len(_frame([row(*each) for each in page], times))

    return _rate(order, pages())


def read_messages(order: Mapping[str, Any]) -> dict[str, float]:
    """Read a queue of RSMQ into DataFrames."""
    server, now = _server(order), int(time.time() * 1000)

    def row(id: bytes, score: float, found: Sequence[bytes | None]) -> dict[str, Any]:
        body, rc, first = found
        seen = int(rc or 0)
        return {
            "id": id.decode(),
            "body": body,
            "sent_at": int(id[:10], 36) // 1000,
            "visible_at": int(score),
            "state": "visible" if score <= now else "hidden" if seen else "delayed",
            "rc": seen,
            "first_received_at": int(first) if first else None,
        }

    def pages() -> Iterator[int]:
        for first in range(0, order["count"], _PAGE):
            found = server.zrange(order["key"], first, first + _PAGE - 1, withscores=True)
            names = [name for id, _ in found for name in (id, id + b":rc", id + b":fr")]
            values = iter(server.hmget(f"{order['key']}:Q", names))
            rows = [row(id, score, [*islice(values, 3)]) for id, score in found]
            yield len(_frame(rows, ("sent_at", "visible_at", "first_received_at")))

    return _rate(order, pages())


def _server(order: Mapping[str, Any]) -> Any:
    return redis.Redis.from_url(order["url"])


def _frame(rows: list[dict[str, Any]], times: Sequence[str]) -> Any:
    frame = pd.DataFrame(rows)
    for name in times:
        frame[name] = pd.to_datetime(frame[name], unit="ms", utc=True)
    return frame


# ── hiredis ──────────────────────────────────────────────────────────────────


class _Connection:
    """One connection, one command at a time."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._socket = socket.create_connection((place.hostname, place.port or 6379))
        self._reader = hiredis.Reader()

    def ask(self, *words: Any) -> Any:
        self._socket.sendall(hiredis.pack_command(words))
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(1 << 16))
        return reply


def raw_jobs(order: Mapping[str, Any]) -> dict[str, float]:
    """Read a stream of jobs into lists."""

    def columns(page: Sequence[Any]) -> None:
        jobs = [_decode(fields[1]) for _, fields in page]
        [[job[at] for job in jobs] for at in range(4)]
        [(id, int(id.partition(b"-")[0]), fields[3]) for id, fields in page]

    return _raw_stream(order, columns)


def raw_events(order: Mapping[str, Any]) -> dict[str, float]:
    """Read a stream of events into lists."""

    def columns(page: Sequence[Any]) -> None:
        entries = [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in page]
        for name in (b"e", b"id", b"n", b"reason"):
            [each.get(name) for each in entries]
        for name in (b"ts", b"attempt", b"duration_us"):
            [int(each[name]) if name in each else None for each in entries]
        [(id, int(id.partition(b"-")[0])) for id, _ in page]

    return _raw_stream(order, columns)


def _raw_stream(
    order: Mapping[str, Any], columns: Callable[[Sequence[Any]], None]
) -> dict[str, float]:
    connection, low = _Connection(order["url"]), b"-"

    def pages() -> Iterator[int]:
        nonlocal low
        while page := connection.ask("XRANGE", order["key"], low, "+", "COUNT", _PAGE):
            low = b"(" + page[-1][0]
            columns(page)
            yield len(page)

    return _rate(order, pages())


def raw_messages(order: Mapping[str, Any]) -> dict[str, float]:
    """Read a queue of RSMQ into lists."""
    connection = _Connection(order["url"])

    def pages() -> Iterator[int]:
        for first in range(0, order["count"], _PAGE):
            found = connection.ask("ZRANGE", order["key"], first, first + _PAGE - 1, "WITHSCORES")
            ids, scores = found[::2], [int(float(each)) for each in found[1::2]]
            names = [name for id in ids for name in (id, id + b":rc", id + b":fr")]
            values = connection.ask("HMGET", f"{order['key']}:Q", *names)
            [int(id[:10], 36) // 1000 for id in ids]
            [int(each or 0) for each in values[1::3]]
            yield len(scores)

    return _rate(order, pages())


# ── a pipeline of redis-py ───────────────────────────────────────────────────


def write(order: Mapping[str, Any]) -> dict[str, float]:
    """Write the bytes that our sink writes, a thousand rows at a time; ids are merely counted."""
    server = _server(order)
    put, body = _PUTS[order["format"]], order["body"].encode()

    def pages() -> Iterator[int]:
        for first in range(0, order["count"], _PAGE):
            with server.pipeline(transaction=False) as pipe:
                for place in range(first, min(first + _PAGE, order["count"])):
                    put(pipe, order["key"], place, body)
                yield len(pipe.execute())

    return {"rate": order["count"] / _timed(pages())[0]}


def _send(pipe: Any, key: str, place: int, body: bytes) -> None:
    now = time.time()
    id = f"{int(now * 1e6):010x}"[-10:] + f"{place:022d}"
    pipe.zadd(key, {id: int(now * 1000)})
    pipe.hset(f"{key}:Q", id, body)
    pipe.hincrby(f"{key}:Q", "totalsent", 1)


def _add(pipe: Any, key: str, place: int, body: bytes) -> None:
    payload = msgspec.msgpack.encode(body.decode())
    job = msgspec.msgpack.encode((f"{place:026d}", payload, int(time.time() * 1000), 0))
    pipe.xadd(key, {"d": job})


def _publish(pipe: Any, key: str, place: int, body: bytes) -> None:
    date = "Mon Jan  2 15:04:05 UTC 2006"
    message = {"id": f"{place:020d}", "timestamp": date, "payload": body}
    pipe.rpush(key, msgspec.json.encode(message))


_PUTS = {"rsmq": _send, "chasqui": _add, "gomq": _publish}


def _rate(order: Mapping[str, Any], pages: Iterator[int]) -> dict[str, float]:
    took_s, found = _timed(pages)
    if found != order["count"]:
        raise RuntimeError(f"{found} rows of {order['count']}")
    return {"rate": found / took_s}


def _timed(pages: Iterator[int]) -> tuple[float, int]:
    began = time.perf_counter()
    found = sum(pages)
    return time.perf_counter() - began, found


if __name__ == "__main__":
    play(
        {
            "about": about,
            "read jobs": read_jobs,
            "read events": read_events,
            "read messages": read_messages,
            "raw jobs": raw_jobs,
            "raw events": raw_events,
            "raw messages": raw_messages,
            "write": write,
        }
    )
