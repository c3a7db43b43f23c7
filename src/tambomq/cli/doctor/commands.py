"""The Redis commands that each protocol needs, with keys of a queue that does not exist.

For checking the permissions of a user; none of them is run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from tambomq.chasqui import keys as chasqui_keys
from tambomq.gomq import keys as gomq_keys
from tambomq.journal.keys import JournalKeys
from tambomq.rsmq.keys import NAMESPACE, Keys
from tambomq.store.call import Call, load_script

_PERMITTED: Final = load_script("tambomq.cli.doctor", "permitted")
_QUEUE: Final = "tambo-doctor"

Words = tuple[str, ...]


def needed(rsmq_ns: str = NAMESPACE) -> dict[str, list[Words]]:
    """Return the commands of each protocol, by its name."""
    return {
        "every protocol": [("TIME",), ("SCAN", "0"), ("EVALSHA", "0" * 40, "0"), ("PING",)],
        "RSMQ": list(_rsmq(Keys(rsmq_ns))),
        "ChasquiMQ": list(_chasqui(chasqui_keys.Keys(_QUEUE))),
        "GOMQ": list(_gomq()),
        "journals": list(_journal(JournalKeys("rsmq", _QUEUE))),
    }


def permitted(commands: list[Words]) -> Call[list[bool]]:
    """Return which of *commands* the user of the connection may run."""
    words = tuple(json.dumps(each) for each in commands)
    return Call(_PERMITTED, (), words, lambda reply: [bool(n) for n in reply], repeatable=True)


def _rsmq(keys: Keys) -> Iterator[Words]:
    messages, data = keys.messages(_QUEUE), keys.data(_QUEUE)
    yield from (("SADD", keys.queues, _QUEUE), ("SMEMBERS", keys.queues))
    yield from (("HSET", data, "a", "b"), ("HMGET", data, "a"), ("HDEL", data, "a"))
    yield from (("HINCRBY", data, "a", "1"), ("ZADD", messages, "1", "a"), ("ZREM", messages, "a"))
    yield from (("ZRANGEBYSCORE", messages, "0", "1"), ("ZCARD", messages), ("DEL", messages))


def _chasqui(keys: chasqui_keys.Keys) -> Iterator[Words]:
    stream, group = keys.stream, chasqui_keys.GROUP
    yield from (("XADD", stream, "*", "a", "b"), ("XLEN", stream), ("XRANGE", stream, "-", "+"))
    yield ("XREADGROUP", "GROUP", group, "a", "STREAMS", stream, ">")
    yield from (("XACK", stream, group, "1-1"), ("XDEL", stream, "1-1"))
    yield ("XCLAIM", stream, group, "a", "1", "1-1")
    yield from (("XPENDING", stream, group), ("XINFO", "STREAM", stream))
    yield ("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
    yield from (("XADD", keys.dlq, "*", "a", "b"), ("XADD", keys.events, "*", "a", "b"))
    yield from (("ZADD", keys.delayed, "1", "a"), ("ZRANGE", keys.repeat, "0", "1"))
    yield from (("SET", keys.promoter_lock, "a"), ("PEXPIRE", keys.promoter_lock, "1"))
    yield from (("GET", keys.paused), ("HSET", keys.limiter, "a", "b"), ("DEL", keys.paused))


def _gomq() -> Iterator[Words]:
    queue, consumers = gomq_keys.queue(_QUEUE), gomq_keys.consumers(_QUEUE)
    yield from (("RPUSH", queue, "a"), ("LRANGE", queue, "0", "1"), ("LTRIM", queue, "0", "1"))
    yield from (("LLEN", queue), ("SADD", consumers, "a"), ("SMEMBERS", consumers))
    yield from (("SREM", consumers, "a"), ("HSET", gomq_keys.tally(_QUEUE), "a", "b"))
    yield from (("SET", gomq_keys.last_action("a"), "b"), ("GET", gomq_keys.last_action("a")))
    yield from (("UNLINK", queue), ("SADD", gomq_keys.SUBSCRIBED_KEYS, "a"))
    yield ("PUBLISH", gomq_keys.channel("a"), "")


def _journal(keys: JournalKeys) -> Iterator[Words]:
    yield from (("XADD", keys.journal, "*", "a", "b"), ("XTRIM", keys.journal, "MAXLEN", "1"))
    yield from (("XRANGE", keys.journal, "-", "+"), ("HINCRBY", keys.state, "a", "1"))
