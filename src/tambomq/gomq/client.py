"""GOMQ for threads. Its twin in `async_client` differs by `await` alone; keep them so."""

from __future__ import annotations

import time
import weakref
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc

from tambomq.errors import BrokerError
from tambomq.gomq import channel
from tambomq.gomq.channel import ADDRESS, OPTIONS, TIMEOUT_S, Ask, Batch, Line, Payload, Words
from tambomq.gomq.holding import Holding
from tambomq.gomq.model import Record
from tambomq.store.connect import Tls

T = TypeVar("T")

_LOOK_EVERY_S: Final = 0.25


class GomqClient:
    """A blocking GOMQ client, for any number of threads.

    The server knows it by *peer*, a random name unless given: who comes back by the same name
    finds what waited. *token* is sent as a bearer token. *timeout_s* bounds each call. A server
    that cannot be reached is waited for *patience_s* longer; by default not at all.

    Raises `BrokerUnavailable` when no answer came: what was to be published may have been, since
    nothing that may have been sent is sent twice. Any other status is `BrokerRefused`.
    """

    def __init__(
        self,
        address: str = ADDRESS,
        *,
        peer: str | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = 0.0,
    ) -> None:
        """Remember where the server is; the first call connects."""
        self._line = Line(address, peer, token, tls, timeout_s, patience_s)
        self._credentials = self._line.credentials()
        self._opening = Lock()
        self._keeper: Thread | None = None
        self._channel: grpc.Channel | None = None
        self._stubs: dict[str, Any] = {}
        self._batches: dict[str, str] = {}
        self._observing: dict[str, Lock] = {}
        self._holding = Holding()

    @property
    def peer(self) -> str:
        """The name that the server knows this client by."""
        return self._line.name

    def publish(self, key: str, payload: Payload) -> None:
        """Append *payload* to the queue of *key*, whether or not anybody listens."""
        self._run(channel.publish(key, payload))

    def publish_many(self, records: Iterable[tuple[str, Payload]]) -> int:
        """Publish pairs of key and payload, all or none, and return how many.

        They go in one message, which servers take up to 4 MiB unless told otherwise.
        """
        return self._run(channel.publish_many(records))

    def subscribe(self, key: str, consumer: str) -> None:
        """Let *consumer*, with this client as one of its peers, receive *key*.

        Every peer gets every payload. One that neither observes nor watches for 30 s is
        disconnected.
        """
        self._run(channel.subscribe(key, consumer))

    def unsubscribe(self, key: str, consumer: str) -> None:
        """Let *consumer*, with all its peers, receive *key* no more."""
        self._observed(channel.unsubscribe(key, consumer), consumer)

    def observe(self, consumer: str, *, limit: int | None = None) -> list[Record]:
        """Return what waits for this client, in order for each key; perhaps nothing.

        At most *limit* of each key, and never more than the server's own limit. What is returned
        is acknowledged by the next call, and by `close`; if its reply is lost, the next call
        returns the same. Until then the client says by itself that it is there, so handling it
        may take any time.
        """
        return self._observed(channel.observe(consumer, limit), consumer)

    def watch(self, consumer: str) -> Iterator[Record]:
        """Yield what waits for this client, then what comes.

        It observes whenever the server says that something waits. Of a batch that is not read to
        its end, all comes again. Ends when *consumer* has no subscription left, and at `close`.
        When the server goes away it raises `BrokerUnavailable`; watch again then.
        """
        return self._watch(channel.watch(consumer), consumer)

    def close(self) -> None:
        """Acknowledge what was observed, and hang up; a later call connects anew."""
        for consumer in [each for each, batch in list(self._batches.items()) if batch]:
            # Unheard, it costs a second delivery.
            with suppress(BrokerError):
                self._observed(channel.settle(consumer, hurry=True), consumer)
        self._hang_up()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; after an error hang up alone, so that what was observed last comes again."""
        if error is None:
            self.close()
        else:
            self._hang_up()

    def _run(self, ask: Ask[T]) -> T:
        return self._exchange(ask, self._line.words)[0]

    def _observed(self, ask: Ask[T], consumer: str) -> T:
        # Two at once would both be given what neither has acknowledged.
        with self._observing.setdefault(consumer, Lock()):
            words = self._line.observing(self._batches.get(consumer, ""))
            result, batch = self._exchange(ask, words)
            self._batches[consumer] = batch.name
            if self._holding.heard(consumer, batch.name, batch.timeout_s, time.monotonic()):
                self._keep()
        return result

    def _exchange(self, ask: Ask[T], words: Words) -> tuple[T, Batch]:
        """Return what the reply means, and the batch it speaks of."""
        try:
            reply, call = self._stub(ask).with_call(
                ask.message, metadata=(*words, *ask.words), **self._line.limits(ask)
            )
        except grpc.RpcError as error:
            raise self._line.failure(ask.method, error) from error
        except ValueError as error:
            # gRPC's word for a channel that was closed a moment ago.
            raise self._line.closed() from error
        result = ask.decode(reply)
        return result, channel.batch_of(call.initial_metadata()) if result else Batch()

    def _watch(self, ask: Ask[list[Record]], consumer: str) -> Iterator[Record]:
        words = self._line.observing(self._batches.get(consumer, ""))
        # It has patience with a server that is not there, which a call without end cannot have.
        self._exchange(channel.settle(consumer), words)
        opened = self._channel
        try:
            with closing(self._bells(ask)) as bells:
                for _ in bells:
                    while self._channel is opened and (records := self.observe(consumer)):
                        batch, self._batches[consumer] = self._batches[consumer], ""
                        yield from records[:-1]
                        self._batches[consumer] = batch
                        yield records[-1]
        finally:
            if not self._batches.get(consumer):
                # What was not read to its end comes again, to another if we are silent.
                self._holding.drop(consumer)

    def _bells(self, ask: Ask[list[Record]]) -> Generator[None, None, None]:
        """Yield at once, and whenever something waits."""
        stub, opened = self._stub(ask), self._channel
        try:
            call = stub(ask.message, metadata=(*self._line.words, *ask.words))
        except ValueError:
            return
        try:
            for _ in call:
                yield
        except grpc.RpcError as error:
            if self._channel is opened:
                raise self._line.failure(ask.method, error) from error
        finally:
            call.cancel()

    def _stub(self, ask: Ask[Any]) -> Any:
        with self._opening:
            if self._channel is None:
                self._channel = self._open()
            if ask.path not in self._stubs:
                make = self._channel.unary_stream if ask.streams else self._channel.unary_unary
                self._stubs[ask.path] = make(ask.path, *ask.codecs)
            return self._stubs[ask.path]

    def _open(self) -> grpc.Channel:
        address = self._line.address
        if self._credentials is None:
            return grpc.insecure_channel(address, OPTIONS)
        return grpc.secure_channel(address, self._credentials, OPTIONS)

    def _keep(self) -> None:
        """See to it that somebody says that we are there as long as a batch is handled."""
        with self._opening:
            if self._keeper is None or not self._keeper.is_alive():
                # It does not keep the client: whom nobody holds any more is silent.
                args = (weakref.ref(self),)
                self._keeper = Thread(target=_keep, args=args, name="gomq-keeper", daemon=True)
                self._keeper.start()

    def _say(self) -> float | None:
        """Say so if it is time to; return how long there is time then, if a batch is handled."""
        with self._opening:
            pause_s = self._holding.pause_s(time.monotonic())
            if pause_s is None:
                self._keeper = None
        for consumer in self._holding.due(time.monotonic()):
            ask = channel.still_here(consumer, self._holding.patience_s(consumer))
            opened = self._channel
            if opened and not self._said(opened, ask) and self._channel is opened:
                # It may have gone silent, as when a NAT forgets it: gRPC finds out too late.
                with self._open() as another:
                    self._said(another, ask)
        return pause_s

    def _said(self, opened: grpc.Channel, ask: Ask[Any]) -> bool:
        """Whether *ask* was answered on *opened*. What is lost is said again soon."""
        words = (*self._line.words, *ask.words)
        with suppress(grpc.RpcError, ValueError):
            stub = opened.unary_unary(ask.path, *ask.codecs)
            stub(ask.message, metadata=words, **self._line.limits(ask))
            return True
        return False

    def _hang_up(self) -> None:
        self._holding.clear()
        with self._opening:
            opened, self._channel = self._channel, None
            self._stubs.clear()
        if opened:
            opened.close()


def _keep(ref: weakref.ref[GomqClient]) -> None:
    """Say that a client is there as long as it is, and handles a batch."""
    while client := ref():
        pause_s = client._say()  # noqa: SLF001  (its own other half)
        del client
        if pause_s is None:
            return
        time.sleep(min(pause_s, _LOOK_EVERY_S))
