"""Calls our GOMQ server over one transport: ``python -m benchmarks.players.gomq_transports envoy``.

The generator of unary calls is written in C: a Python client would be busier than the server. Each
turn has a server of its own, and the messages that must have arrived are counted in Redis.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import uvloop
from google.protobuf.message import Message

from benchmarks.loadgen import program
from benchmarks.players import gomq_frames
from benchmarks.players.gomq_frames import PREFIX
from benchmarks.players.talk import play
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq import keys, wire
from tambomq.gomq.async_client import AsyncGomqClient
from tambomq.gomq.model import OBSERVE_LIMIT, Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.server.auth import PEER
from tambomq.ids import letters
from tambomq.store.call import Call
from tambomq.store.sync import Store

Values: TypeAlias = Mapping[str, Any]
Calls: TypeAlias = Iterable[tuple[str, Message, Mapping[str, str]]]

PACKAGES = {"grpc": "grpcio", "envoy": "pyvoy"}
CONNECTIONS, FLIGHTS = 4, 80
MANY = 100
_TURN_WITHIN_S = 60.0
_FILL = 500
_ONE, _FAN, _MANY_KEY = f"{PREFIX}one", f"{PREFIX}fan", f"{PREFIX}many"
_WATCHED, _WATCHER = f"{PREFIX}watched", f"{PREFIX}watcher"


class TransportTasks:
    """The benchmark tasks over one transport."""

    def __init__(self, name: str) -> None:
        self._name = name

    def about(self, _: Values) -> dict[str, str]:
        """What is measured here."""
        program("grpcgen")
        package = PACKAGES[self._name]
        return {"version": f"{package} {version(package)}"}

    def publish(self, order: Values) -> Values:
        """Unary calls to Publish."""
        with self._server(order) as (port, store):
            return _publish(port, store, f"{PREFIX}publish", order["size"], order["count"])

    def survey(self, order: Values) -> Values:
        """All kinds of unary calls, one after the other, with payloads of several sizes."""
        values: dict[str, float] = {}
        with self._server(order) as (port, store):
            for size, (publishes, observes) in zip(order["sizes"], order["counts"], strict=True):
                name = f"observe {size}"
                key = f"{PREFIX}{size}"
                values[f"publish {size}"] = _publish(port, store, key, size, publishes)["rate"]
                values[name] = _observe(port, store, key, size, observes)
            values["publish many"] = _publish_many(port, store, order)
            values["observe nothing"] = _observe_nothing(port, store, order)
            values["deliver"] = _deliver(port, store, order)
        return values

    def watch(self, order: Values) -> Values:
        """From the call of Publish until the watcher has the record, at a given rate."""
        with self._server(order) as (port, _):
            return uvloop.run(_watch(f"127.0.0.1:{port}", order))

    @contextmanager
    def _server(self, order: Values) -> Iterator[tuple[int, Store]]:
        command = [sys.executable, "-m", "benchmarks.players.gomq_server", self._name, order["url"]]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            store = Store(order["url"])
            try:
                if not (port := server.stdout.readline()):
                    raise RuntimeError(f"the server with the transport {self._name} did not start")
                yield int(port), store
            finally:
                store.close()
                server.stdin.close()
                server.wait(_TURN_WITHIN_S)


def _publish(port: int, store: Store, key: str, size: int, count: int) -> Values:
    record = pb.PublishRecord(key=key, payload=bytes(size))
    values = _generate(port, [("Publish", record, {})], count)
    _expect(store, key, values["calls"])
    return values


def _publish_many(port: int, store: Store, order: Values) -> float:
    record = pb.PublishRecord(key=_MANY_KEY, payload=bytes(order["size"]))
    request = pb.PublishRecords(records=[record] * MANY)
    values = _generate(port, [("PublishMany", request, {})], order["many"])
    _expect(store, _MANY_KEY, MANY * values["calls"])
    return float(MANY * values["rate"])


def _observe(port: int, store: Store, key: str, size: int, count: int) -> float:
    """Return how many messages of a full dedicated queue are observed in a second."""
    consumer, peer, element = (
        f"{PREFIX}of-{key}",
        _ONE,
        wire.encode("x" * 20, "x" * 28, bytes(size)),
    )
    store.run(message_ops.subscribe(key, consumer, peer, Options()))
    target, left = keys.messages(key, consumer, peer), OBSERVE_LIMIT * (count + count // 10)
    while left > 0:
        store.run(Call("RPUSH", (target,), (element,) * min(left, _FILL), decode=int))
        left -= _FILL
    call = ("Observe", pb.Identification(consumerID=consumer), {PEER: peer})
    values = _generate(port, [call], count)
    value = pb.Message(id="x" * 20, timestamp="x" * 28, payload=bytes(size))
    record = pb.RecordSet(records=[pb.Record(key=key, value=value)]).ByteSize()
    store.follow(leave_ops.unsubscribe(key, consumer))
    return float((values["bytes"] - 5 * count) / record / values["seconds"])


def _observe_nothing(port: int, store: Store, order: Values) -> float:
    idle = f"{PREFIX}idle"
    store.run(message_ops.subscribe(f"{PREFIX}nothing", idle, _ONE, Options()))
    call = ("Observe", pb.Identification(consumerID=idle), {PEER: _ONE})
    return float(_generate(port, [call], order["idle"])["rate"])


def _deliver(port: int, store: Store, order: Values) -> float:
    """Return how many copies of what is published are observed in a second, with all consumers."""
    names = [f"{PREFIX}{n}" for n in range(order["consumers"])]
    for name in names:
        store.run(message_ops.subscribe(_FAN, name, _ONE, Options()))
    record = pb.PublishRecord(key=_FAN, payload=bytes(order["size"]))
    many: Calls = [("PublishMany", pb.PublishRecords(records=[record] * OBSERVE_LIMIT), {})]
    each: Calls = [("Observe", pb.Identification(consumerID=name), {PEER: _ONE}) for name in names]
    batches: int = order["batches"]
    began = time.perf_counter()
    _generate(port, many, batches, warm=0)
    _generate(port, each, batches * len(names), warm=0)
    took_s = time.perf_counter() - began
    for name in names:
        if left := store.run(_length(keys.messages(_FAN, name, _ONE))):
            raise RuntimeError(f"{left} messages were not observed by {name}")
    return batches * OBSERVE_LIMIT * len(names) / took_s


def _generate(port: int, calls: Calls, count: int, *, warm: int | None = None) -> dict[str, Any]:
    warm = count // 10 if warm is None else warm
    with tempfile.NamedTemporaryFile() as file:
        gomq_frames.write(Path(file.name), calls)
        words = [port, CONNECTIONS, FLIGHTS, warm, count]
        done = subprocess.run(
            [program("grpcgen"), file.name, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=_TURN_WITHIN_S,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"the generator ended with {done.returncode}")
    return {**json.loads(done.stdout), "calls": warm + count}


def _length(key: str) -> Call[int]:
    return Call("LLEN", (key,), (), decode=int)


def _expect(store: Store, key: str, count: int) -> None:
    """See that all is in its main queue, and empty that."""
    stored = store.run(_length(keys.queue(key)))
    if stored != count:
        raise RuntimeError(f"{count} messages were published, {stored} are there")
    store.run(Call("UNLINK", (keys.queue(key),), (), decode=int))


async def _watch(address: str, order: Values) -> Values:
    took_ms: list[float] = []
    async with _client(address) as publisher, _client(address) as reader:
        await reader.subscribe(_WATCHED, _WATCHER)

        async def read() -> None:
            async for record in reader.watch(_WATCHER):
                took_ms.append(1e3 * (time.perf_counter() - float(record.text)))
                if len(took_ms) == order["count"] + order["warm"]:
                    return

        reading = asyncio.create_task(read())
        begin = time.perf_counter()
        for place in range(order["count"] + order["warm"]):
            await asyncio.sleep(begin + place / order["per_s"] - time.perf_counter())
            await publisher.publish(_WATCHED, repr(time.perf_counter()))
        await asyncio.wait_for(reading, _TURN_WITHIN_S)
    cuts = statistics.quantiles(took_ms[order["warm"] :], n=100)
    return {"p50": cuts[49], "p99": cuts[98]}


def _client(address: str) -> AsyncGomqClient:
    return AsyncGomqClient(address, peer=f"{PREFIX}{letters(12)}")


if __name__ == "__main__":
    transport = TransportTasks(sys.argv[1])
    tasks = {"publish": transport.publish, "survey": transport.survey, "watch": transport.watch}
    play({"about": transport.about, **tasks})
