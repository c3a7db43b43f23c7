"""Queues to read from, filled fast: by scripts that make what a producer would have sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tambomq.chasqui.keys import Keys
from tambomq.rsmq import Rsmq
from tambomq.store.call import Call
from tambomq.store.sync import Store

_PER_SCRIPT: Final = 200
_CALLS_AT_ONCE: Final = 50
_PER_SEND: Final = 5000
_BORN_MS: Final = 1_790_000_000_000

# A job as `Queue.add` writes it: an id of 26 letters, bytes, when it was added, no runs yet.
_JOBS: Final = """
for n = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do
  local envelope = '\\148\\186' .. string.format('%026d', n) .. ARGV[3]
  redis.call('XADD', KEYS[1], '*', 'd', envelope, 'n', 'charge')
end"""

# One that has run three times, and failed.
_LETTERS: Final = """
for n = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do
  local envelope = '\\148\\186' .. string.format('%026d', n) .. ARGV[3]
  redis.call('XADD', KEYS[1], '*', 'd', envelope, 'n', 'charge', 'source_id', '1-' .. n,
    'reason', 'retries_exhausted', 'detail', 'TimeoutError: no answer from card ' .. n)
end"""

# The events of a worker: each job is active, then completed.
_EVENTS: Final = """
for n = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do
  local id, ts = string.format('%026d', n - n % 2), string.format('%.0f', ARGV[3] + n)
  if n % 2 == 0 then
    redis.call('XADD', KEYS[1], '*', 'e', 'active', 'id', id, 'ts', ts, 'n', 'charge',
      'attempt', '1')
  else
    redis.call('XADD', KEYS[1], '*', 'e', 'completed', 'id', id, 'ts', ts, 'n', 'charge',
      'attempt', '1', 'duration_us', '1234')
  end
end"""


def jobs(url: str, queue: str, count: int, size: int) -> None:
    """Fill a queue up to *count* jobs with *size* bytes of data each."""
    body = b"\xc5" + (size + 3).to_bytes(2) + b"\xc5" + size.to_bytes(2) + b"x" * size
    behind = body + b"\xcf" + _BORN_MS.to_bytes(8) + b"\x00"
    _fill(url, Keys(queue).stream, _JOBS, count, behind)


def letters(url: str, queue: str, count: int, size: int) -> None:
    """Fill a dead-letter queue up to *count* letters with *size* bytes of data each."""
    body = b"\xc5" + (size + 3).to_bytes(2) + b"\xc5" + size.to_bytes(2) + b"x" * size
    behind = body + b"\xcf" + _BORN_MS.to_bytes(8) + b"\x02"
    _fill(url, Keys(queue).dlq, _LETTERS, count, behind)


def events(url: str, queue: str, count: int) -> None:
    """Fill a queue up to *count* events."""
    _fill(url, Keys(queue).events, _EVENTS, count, _BORN_MS)


def messages(url: str, queue: str, count: int, body: str) -> None:
    """Fill a queue of RSMQ up to *count* messages."""
    with Rsmq(url) as rsmq:
        if queue not in rsmq.list_queues():
            rsmq.create_queue(queue)
        missing = count - rsmq.get_queue_attributes(queue).msgs
        for first in range(0, missing, _PER_SEND):
            rsmq.send_messages(queue, [body] * min(_PER_SEND, missing - first))


def drop(url: str, *keys: str) -> None:
    """Delete *keys*."""
    _with(url, lambda store: store.run(_call("UNLINK", *keys)))


def _fill(url: str, key: str, script: str, count: int, last: bytes | int) -> None:
    def fill(store: Store) -> None:
        if store.run(_call("XLEN", key)) == count:
            return
        firsts = range(0, count, _PER_SCRIPT)
        calls = [
            _call("EVAL", script, 1, key, first, min(first + _PER_SCRIPT, count), last)
            for first in firsts
        ]
        for at in range(0, len(calls), _CALLS_AT_ONCE):
            store.run_all(calls[at : at + _CALLS_AT_ONCE])

    _with(url, fill)


def _with(url: str, act: Callable[[Store], Any]) -> None:
    store = Store(url)
    try:
        act(store)
    finally:
        store.close()


def _call(verb: str, *words: Any) -> Call[Any]:
    return Call(verb, (), words, decode=lambda reply: reply)
