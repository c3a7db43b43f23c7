"""GOMQ's calls of users: what each right and each queue allows, on both transports."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import grpc
import pytest
import redis

from tambomq.access.decisions import Grant
from tambomq.access.denials import Denial
from tambomq.access.directory import AccessOptions, UserDirectory
from tambomq.errors import AccessDenied, NotAuthenticated
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.server.auth import Caller
from tambomq.gomq.server.guarded_service import GuardedService
from tambomq.gomq.server.service import Service
from tambomq.store.aio import AsyncStore
from tambomq.tls import ServerTls
from tests.access.users import Users
from tests.gomq import transports
from tests.gomq.transports import WITHIN_S, Broker, Client, Dial, Serve
from tests.servers import Server, eventually
from tests.servers.tls import certificate

brokers, transport, serve, dial = (
    transports.brokers,
    transports.transport,
    transports.serve,
    transports.dial,
)

OK, DENIED, UNKNOWN = (
    grpc.StatusCode.OK,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
)


@pytest.fixture
def users(tmp_path: Path) -> Users:
    return Users(tmp_path / "users.toml")


@pytest.fixture
def guarded(serve: Serve, users: Users) -> Broker:
    users.add("first", ["look"])
    return serve(access=AccessOptions(str(users.path)), token="of-the-settings")


def bearer(token: str) -> dict[str, Any]:
    return {"authorization": f"Bearer {token}"}


def publish(client: Client, key: str, **words: Any) -> grpc.StatusCode:
    return client.status("Publish", pb.PublishRecord(key=key, payload=b"x"), **words)


def observed(client: Client, **words: Any) -> list[bytes]:
    """What consumer c gets, as soon as there is something."""
    found: list[bytes] = []

    def has_some() -> bool:
        found.extend(client.observe("c", **words))
        return bool(found)

    eventually(has_some, within_s=WITHIN_S)
    return found


def subscription(key: str, consumer: str = "c") -> pb.Subscription:
    return pb.Subscription(key=key, consumerID=consumer)


def added(users: Users, client: Client, *args: Any, **words: Any) -> str:
    """Add a user, and wait until the server knows it."""
    token = users.add(*args, **words)

    def is_known() -> bool:
        return publish(client, "", **bearer(token)) is not UNKNOWN

    eventually(is_known, within_s=WITHIN_S)
    return token


def test_each_method_needs_its_right_for_its_keys(
    guarded: Broker, dial: Dial, users: Users
) -> None:
    client = dial(guarded)
    sender = bearer(added(users, client, "sender", ["send"], ["gomq:a*"]))
    receiver = bearer(added(users, client, "receiver", ["receive"], ["gomq:a*"]))
    both = pb.PublishRecords(
        records=[pb.PublishRecord(key=key, payload=b"x") for key in ("a", "b")]
    )
    own = pb.PublishRecords(records=both.records[:1])
    expected = [
        ("Publish", pb.PublishRecord(key="a", payload=b"x"), OK, DENIED),
        ("Publish", pb.PublishRecord(key="b", payload=b"x"), DENIED, DENIED),
        ("PublishMany", own, OK, DENIED),
        ("PublishMany", both, DENIED, DENIED),
        ("Subscribe", subscription("a"), DENIED, OK),
        ("Subscribe", subscription("b"), DENIED, DENIED),
        ("Observe", pb.Identification(consumerID="c"), DENIED, OK),
        ("Unsubscribe", subscription("b"), DENIED, DENIED),
        ("Unsubscribe", subscription("a"), DENIED, OK),
    ]
    for name, message, to_send, to_receive in expected:
        found = [client.status(name, message, **words) for words in (sender, receiver)]
        assert found == [to_send, to_receive], (name, message)
    # The refused call has published nothing of its other key either.
    assert guarded.watchers() == 0
    assert guarded.server.stats.published == 2


def test_a_consumer_of_others_keys_cannot_be_observed(
    guarded: Broker, dial: Dial, users: Users
) -> None:
    client = dial(guarded)
    own = bearer(added(users, client, "own", ["send", "receive"], ["secret", "a"]))
    other = bearer(added(users, client, "other", ["receive"], ["a"]))
    client.subscribe("secret", "c", **own)
    client.subscribe("a", "c", **own)
    client.start("Publish", pb.PublishRecord(key="secret", payload=b"s"), **own).result()
    for name in ("Observe", "Watch"):
        call = client.start(name, pb.Identification(consumerID="c"), **other)
        assert call.code() is DENIED
        assert call.details() == "user other does not have the right to receive for gomq:secret"
    assert observed(client, **own) == [b"s"]


def test_a_watch_ends_when_its_user_is_removed_and_no_message_is_lost(
    guarded: Broker, dial: Dial, users: Users
) -> None:
    client, admin = dial(guarded), bearer("of-the-settings")
    words = bearer(added(users, client, "a", ["receive"], ["a"]))
    client.subscribe("a", "c", **words)
    watch = client.watch("c", x_gomq_peer="w", **words)
    eventually(lambda: guarded.watchers() == 1, within_s=WITHIN_S)
    users.remove("a")
    eventually(
        lambda: client.status("Subscribe", subscription("a"), **words) is UNKNOWN,
        within_s=WITHIN_S,
    )
    client.start("Publish", pb.PublishRecord(key="a", payload=b"kept"), **admin).result()
    with pytest.raises(grpc.RpcError) as ended:
        list(watch)
    assert ended.value.code() is UNKNOWN
    assert observed(client, x_gomq_peer="w", **admin) == [b"kept"]


@pytest.mark.parametrize(
    "token", ["", "tambo_", "x" * 5000, "tambo_AAAAAAAA_" + "A" * 43, "OF-THE-SETTINGS"]
)
def test_wrong_tokens_are_refused(guarded: Broker, dial: Dial, token: str) -> None:
    client = dial(guarded)
    assert publish(client, "a", **bearer(token)) is UNKNOWN
    assert publish(client, "a", authorization=token) is UNKNOWN
    assert publish(client, "a") is UNKNOWN


def test_the_token_of_the_settings_may_do_everything(guarded: Broker, dial: Dial) -> None:
    client, words = dial(guarded), bearer("of-the-settings")
    client.subscribe("any", "c", **words)
    assert publish(client, "any", **words) is OK
    assert observed(client, **words) == [b"x"]


def test_denied_calls_are_counted_and_logged_without_what_they_carry(
    serve: Serve, dial: Dial, users: Users, caplog: pytest.LogCaptureFixture
) -> None:
    token = users.add("a", ["send"], ["a"])
    broker = serve(access=AccessOptions(str(users.path)))
    client = dial(broker)
    with caplog.at_level(logging.WARNING):
        record = pb.PublishRecord(key="b", payload=b"s3cret-body")
        assert client.status("Publish", record, **bearer(token)) is DENIED
        assert publish(client, "b", **bearer("s3cret-token")) is UNKNOWN

        def counted() -> bool:
            # A check brings Envoy's numbers up to date.
            broker.watchers()
            expected = [Denial("a", "send", 1), Denial("_unknown", "login", 1)]
            return list(broker.server.denials) == expected

        eventually(counted, within_s=WITHIN_S)
        eventually(lambda: "right to send for gomq:b" in caplog.text, within_s=WITHIN_S)
    assert "s3cret" not in caplog.text


def test_the_names_of_a_client_certificate_are_its_user(
    serve: Serve, dial: Dial, users: Users, tmp_path: Path
) -> None:
    for folder in ("server", "known", "spiffe", "foreign", "sly", "unknown"):
        (tmp_path / folder).mkdir()
    ours = certificate(tmp_path / "server")
    known = certificate(tmp_path / "known", "billing", "DNS:billing.example.com")
    spiffe = certificate(tmp_path / "spiffe", "nobody", "URI:spiffe://example/nightly")
    foreign = certificate(tmp_path / "foreign", "Zoë, Söhne", "DNS:z")
    # Names that look like more than one where they are written one after the other.
    sly = certificate(tmp_path / "sly", "nobody", 'URI:x";DNS=b.example.com;URI=spiffe://b')
    unknown = certificate(tmp_path / "unknown", "stranger", "DNS:x")
    ca = tmp_path / "clients.pem"
    ca.write_text("".join(each.cert.read_text() for each in (known, spiffe, foreign, sly, unknown)))
    users.add(
        "billing", ["send"], ["orders"], tls=["CN:billing", "DNS:b.example.com", "URI:spiffe://b"]
    )
    users.add("nightly", ["send"], ["reports"], tls=["URI:spiffe://example/nightly"])
    users.add("zoe", ["send"], ["orders"], tls=["CN:Zoë, Söhne"])
    tls = ServerTls(ours.cert, ours.key, client_ca=ca)
    broker = serve(tls=tls, access=AccessOptions(str(users.path)))
    expected = [(known, OK, DENIED), (spiffe, DENIED, OK)]
    expected += [(foreign, OK, DENIED), (sly, UNKNOWN, UNKNOWN), (unknown, UNKNOWN, UNKNOWN)]
    for found, to_orders, to_reports in expected:
        credentials = grpc.ssl_channel_credentials(
            ours.cert.read_bytes(), found.key.read_bytes(), found.cert.read_bytes()
        )
        client = dial(broker, credentials=credentials)
        # What a client claims about its certificate is not believed.
        claimed = {"x-forwarded-client-cert": 'Subject="CN=billing"'}
        for words in ({}, claimed):
            assert publish(client, "orders", **words) is to_orders
            assert publish(client, "reports", **words) is to_reports
        assert publish(client, "orders", **bearer("wrong")) is UNKNOWN


def test_a_certificate_that_is_only_claimed_is_not_believed(
    guarded: Broker, dial: Dial, users: Users
) -> None:
    client = dial(guarded)
    added(users, client, "billing", ["send"], tls=["CN:billing"])
    words = {"x-forwarded-client-cert": 'Subject="CN=billing"'}
    assert publish(client, "a", **words) is UNKNOWN


async def test_a_caller_that_was_not_authenticated_is_refused() -> None:
    service: Any = None
    guarded = GuardedService(service, service)
    with pytest.raises(NotAuthenticated):
        await guarded.publish(pb.PublishRecord(key="a"), Caller("127.0.0.1:1"))
    with pytest.raises(NotAuthenticated):
        await guarded.observe(pb.Identification(consumerID="c"), Caller("127.0.0.1:1"))


def test_a_consumer_of_others_keys_cannot_be_joined_nor_given_a_key(
    guarded: Broker, dial: Dial, users: Users, db: redis.Redis
) -> None:
    client = dial(guarded)
    own = bearer(added(users, client, "own", ["receive"], ["secret"]))
    other = bearer(added(users, client, "other", ["receive"], ["a"]))
    client.subscribe("secret", "c", x_gomq_peer="mine", **own)
    words = {"x_gomq_peer": "theirs", **other}
    assert client.status("Subscribe", subscription("a"), **words) is DENIED
    # Its messages would wait for that peer too, and its user could observe it no more.
    assert db.smembers("PEERS_c") == {b"mine"}
    assert client.status("Observe", pb.Identification(consumerID="c"), **own) is OK


@pytest.mark.parametrize("ack", [None, ""])
async def test_messages_of_a_key_that_joins_during_an_observe_need_the_right_too(
    server: Server, db: redis.Redis, ack: str | None
) -> None:
    store = AsyncStore(server.url)
    service = Service(store)

    class Meanwhile(Service):
        async def observe(self, *args: Any) -> pb.RecordSet:
            await service.subscribe(subscription("secret"), Caller("own"))
            return await service.observe(*args)

    directory = UserDirectory("GOMQ", AccessOptions(redis=True), store)
    session = directory.fixed(Grant("other", ["receive"], ["a"]))
    guarded = GuardedService(Meanwhile(store), store)
    await service.publish(pb.PublishRecord(key="secret", payload=b"s"), Caller("own"))
    caller = Caller("other", ack, address="127.0.0.1:1", session=session)
    with pytest.raises(AccessDenied):
        await guarded.observe(pb.Identification(consumerID="c"), caller)
    found = await service.observe(pb.Identification(consumerID="c"), Caller("own"))
    await service.stop()
    await store.close()
    assert [record.value.payload for record in found.records] == [b"s"]
    # The copy of the refused peer is as it was.
    assert db.llen("MESSAGES_secret_c_other") + db.exists("HANDED_c_other") == 1
