"""``tambo gomq``, against a real server on a real store."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from tambomq.cli.brokers.gomq import _Publisher, default_peer
from tambomq.cli.main import tambo
from tambomq.errors import BrokerRefused
from tambomq.gomq import keys
from tambomq.gomq.client import GomqClient
from tambomq.tls import ServerTls
from tests.cli.running import COMMAND, WITHIN_S, Start, on_a_terminal, starting
from tests.cli.transcript import Done, call
from tests.gomq.fakes import Served, serving
from tests.gomq.server_process import gomq_process
from tests.serve.processes import clean_environment
from tests.servers import Server, eventually
from tests.servers.tls import certificate

Gomq = Callable[..., Done]

_BINARY = b"\xff\x00\x1b[31m"


@pytest.fixture
def served(server: Server) -> Iterator[Served]:
    """A GOMQ server on an empty store."""
    with serving(server.url) as running:
        yield running


@pytest.fixture
def gomq(served: Served, server: Server) -> Gomq:
    """``tambo gomq --address …`` in this process."""

    def run(*args: str, stdin: bytes = b"") -> Done:
        words = ("gomq", "--address", served.address, *args)
        return call(tambo, "tambo", *words, url=server.url, stdin=stdin)

    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


def observed(done: Done) -> list[dict[str, Any]]:
    """The records that ``observe --json`` printed."""
    assert done.err == ""
    return [json.loads(line) for line in done.out.splitlines()]


def payloads(done: Done) -> list[Any]:
    return [record["payload"] for record in observed(done)]


# ── publish, subscribe, observe ──────────────────────────────────────────────


def test_observe_prints_messages_of_an_earlier_subscribe_command(gomq: Gomq) -> None:
    result = gomq("subscribe", "greetings", "alice")
    assert result == Done(0, "the consumer alice receives the key greetings\n")
    result = gomq("publish", "greetings", "hello", "hello again")
    assert result == Done(0, "published 2 payloads to the key greetings\n")
    first, second = gomq("observe", "alice").out.splitlines()
    key, id, _, payload = first.split("  ", 3)
    assert (key, len(id), payload) == ("greetings", 20, "hello")
    assert second.endswith("  hello again")
    assert gomq("observe", "alice") == Done(3, "", "tambo: nothing waits for the consumer alice\n")


def test_json_is_an_object_for_each_record_and_for_each_command(gomq: Gomq) -> None:
    result = json.loads(gomq("subscribe", "a", "alice", "--peer", "one", "--json").out)
    assert result == {"key": "a", "consumer": "alice", "peer": "one"}
    assert json.loads(gomq("publish", "a", "x", "--json").out) == {"key": "a", "published": 1}
    (record,) = observed(gomq("observe", "alice", "--peer", "one", "--json"))
    assert list(record) == ["key", "id", "timestamp", "payload"]
    assert (record["key"], record["payload"]) == ("a", "x")
    assert gomq("observe", "alice", "--peer", "one", "--json") == Done(3, "", "")


def test_peers_by_other_names_get_a_copy_each(gomq: Gomq) -> None:
    for peer in ("one", "two"):
        gomq("subscribe", "a", "alice", "--peer", peer)
    gomq("publish", "a", "x")
    for peer in ("one", "two"):
        assert payloads(gomq("observe", "alice", "--json", "--peer", peer)) == ["x"]


def test_the_default_peer_name_is_valid_for_any_user_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "corp:jürgen\n")
    assert default_peer().startswith("tambo-corp-j-rgen-@")
    assert ":" not in default_peer()
    monkeypatch.setenv("LOGNAME", "x" * 300)
    assert len(default_peer()) == 128


def test_unsubscribed_consumer_receives_no_more(gomq: Gomq) -> None:
    gomq("subscribe", "a", "alice")
    result = gomq("unsubscribe", "a", "alice")
    assert result == Done(0, "the consumer alice no longer receives the key a\n")
    gomq("publish", "a", "x")
    assert gomq("observe", "alice").code == 3


@pytest.mark.parametrize("dash", [[], ["-"]])
def test_lines_of_standard_input_are_payloads(gomq: Gomq, dash: list[str]) -> None:
    gomq("subscribe", "a", "alice")
    result = gomq("publish", "a", *dash, stdin=b"one\n\ntwo\nthree")
    assert result.out == "published 3 payloads to the key a\n"
    assert payloads(gomq("observe", "alice", "--json")) == ["one", "two", "three"]


def test_many_lines_arrive_in_order(gomq: Gomq) -> None:
    gomq("subscribe", "a", "alice")
    lines = [f"line {number}" for number in range(10_000)]
    result = gomq("publish", "a", stdin="\n".join(lines).encode())
    assert result.out == "published 10000 payloads to the key a\n"
    assert payloads(gomq("observe", "alice", "--json")) == lines


def test_bytes_stay_what_they_are(gomq: Gomq, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(_BINARY)
    gomq("subscribe", "a", "alice")
    gomq("publish", "a", "--file", str(tmp_path / "body"))
    gomq("publish", "a", os.fsdecode(b"\xff\xfe"), "")
    assert payloads(gomq("observe", "alice", "--json")) == [
        {"base64": "/wAbWzMxbQ=="},
        {"base64": "//4="},
        "",
    ]


def test_control_characters_of_a_payload_are_escaped_except_with_raw(gomq: Gomq) -> None:
    gomq("subscribe", "a", "alice")
    gomq("publish", "a", "\x1b[31m\nred")
    assert gomq("observe", "alice").out.endswith("  \\x1b[31m\\nred\n")
    gomq("publish", "a", "\x1b[31m\nred")
    assert gomq("observe", "alice", "--raw").out == "\x1b[31m\nred\n"


def test_observe_stops_at_its_count_and_the_remaining_messages_wait(gomq: Gomq) -> None:
    gomq("subscribe", "a", "alice")
    gomq("publish", "a", "1", "2", "3")
    assert payloads(gomq("observe", "alice", "--json", "-c", "2")) == ["1", "2"]
    assert payloads(gomq("observe", "alice", "--json", "--follow", "-c", "1")) == ["3"]


def test_records_that_could_not_be_printed_are_delivered_again(gomq: Gomq, served: Served) -> None:
    gomq("subscribe", "a", "alice")
    gomq("publish", "a", "x")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, "gomq", "observe", "alice", "--address", served.address],
        env=clean_environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=WITHIN_S,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
    assert payloads(gomq("observe", "alice", "--json")) == ["x"]


# ── follow ───────────────────────────────────────────────────────────────────


def test_follow_prints_what_comes_until_ctrl_c(gomq: Gomq, served: Served, start: Start) -> None:
    gomq("subscribe", "a", "alice")
    gomq("publish", "a", "waited")
    following = start("gomq", "observe", "alice", "-f", "--address", served.address)
    following.says("  waited\n")
    gomq("publish", "a", "came")
    following.says("  came\n")
    assert following.stop() == 0
    assert following.err == ""


def test_follow_ends_with_the_last_subscription(gomq: Gomq, served: Served, start: Start) -> None:
    gomq("subscribe", "a", "alice")
    gomq("publish", "a", "x")
    following = start("gomq", "observe", "alice", "-f", "--address", served.address)
    following.says("  x\n")
    gomq("unsubscribe", "a", "alice")
    assert following.process.wait(WITHIN_S) == 0
    assert gomq("observe", "nobody", "--follow").code == 3


def test_follow_waits_for_a_server_that_went_away(
    server: Server, db: redis.Redis, start: Start
) -> None:
    with gomq_process(server.url) as broker:
        place = ("--address", broker.address)
        call(tambo, "tambo", "gomq", "subscribe", "a", "alice", *place, url=server.url)
        following = start("gomq", "observe", "alice", "--follow", "--raw", *place)
        # Nothing has come yet: it was there, and that is enough.
        channel = keys.channel("alice")
        eventually(lambda: db.pubsub_numsub(channel)[0][1] == 1, within_s=WITHIN_S)
        broker.kill()
        following.says("still trying\n", "err")
        broker.start()
        call(tambo, "tambo", "gomq", "publish", "a", "after", *place, url=server.url)
        following.says("after\n")
        assert following.stop() == 0
    assert following.out == "after\n"


# ── stats ────────────────────────────────────────────────────────────────────


def test_stats_show_what_waits_for_each_consumer(gomq: Gomq, server: Server) -> None:
    assert gomq("stats") == Done(3, "", "tambo: there are no keys\n")
    gomq("subscribe", "a", "alice", "--peer", "one")
    gomq("publish", "a", "x", "y")
    gomq("publish", "nobody's", "z")
    expected = [
        {"name": "a", "waiting": 0, "consumers": [{"name": "alice", "peers": {"one": 2}}]},
        {"name": "nobody's", "waiting": 1, "consumers": []},
    ]
    eventually(lambda: json.loads(gomq("stats", "--json").out) == expected)
    rows = [line.split() for line in gomq("stats", "-r", server.url).out.splitlines()]
    assert rows[1:] == [["a", "0", "alice", "one", "2"], ["nobody's", "1", "-", "-", "-"]]


def test_stats_show_a_consumer_without_peers(gomq: Gomq, db: redis.Redis) -> None:
    db.sadd(keys.SUBSCRIBED_KEYS, keys.queue("a"))
    db.sadd(keys.consumers("a"), "alice")
    assert gomq("stats").out.splitlines()[1].split() == ["a", "0", "alice", "-", "-"]


# ── faults ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("words", [("publish", "a", "x"), ("observe", "alice", "--follow")])
def test_server_that_is_not_there_is_one_line(server: Server, words: tuple[str, ...]) -> None:
    done = call(tambo, "tambo", "gomq", "--address", "127.0.0.1:1", *words, url=server.url)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith("tambo: no server at 127.0.0.1:1: ")
    assert done.err.endswith(": is it running? `tambo serve` starts one\n")


@pytest.mark.parametrize(
    "words",
    [
        ("publish", "a", "x", "--address", "nowhere"),
        ("publish", "a", "x", "--address", "::1:10001"),
        ("publish", "a", "x", "--address", "127.0.0.1:70000"),
        ("publish", "a", "x", "--file", "/dev/null"),
        ("publish", "a", "x", "--tls-key", "key.pem"),
        ("observe", "a", "--raw", "--json"),
        ("observe", "a", "--count", "0"),
        ("publish",),
    ],
)
def test_wrong_usage_is_exit_2(gomq: Gomq, words: tuple[str, ...]) -> None:
    assert gomq(*words).code == 2


@pytest.mark.parametrize("words", [("publish", "", "x"), ("observe", ""), ("subscribe", "a", "")])
def test_empty_names_are_refused(gomq: Gomq, words: tuple[str, ...]) -> None:
    done = gomq(*words)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "must not be empty" in done.err


def test_the_token_comes_from_a_flag_or_variable(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(server.url, token="s3cret") as served:

        def publish(*args: str) -> Done:
            words = ("gomq", "publish", "--address", served.address, *args, "a", "x")
            return call(tambo, "tambo", *words, url=server.url)

        refused = publish()
        assert refused.code == 1
        assert "UNAUTHENTICATED" in refused.err
        assert publish("--token", "s3cret").code == 0
        monkeypatch.setenv("TAMBO_GOMQ_TOKEN", "s3cret")
        assert publish().code == 0
        assert publish("--token", "wrong").code == 1


def test_tls_needs_to_be_asked_for(server: Server, tmp_path: Path) -> None:
    made = certificate(tmp_path)
    with serving(server.url, tls=ServerTls(made.cert, made.key, made.cert)) as served:

        def publish(*args: str) -> Done:
            words = ("gomq", "publish", "--address", served.address, *args, "a", "x")
            return call(tambo, "tambo", *words, url=server.url)

        files = ("--tls-cert", str(made.cert), "--tls-key", str(made.key))
        assert publish("--tls-ca", str(made.cert), *files).code == 0
        assert publish().code == 1
        assert publish("--tls-ca", str(made.key)).code == 2


def test_line_that_is_too_long_stops_those_after_it(gomq: Gomq, db: redis.Redis) -> None:
    result = gomq("publish", "a", stdin=b"one\ntwo\n" + b"x" * (5 << 20) + b"\nfour\n")
    assert (result.code, result.out) == (1, "")
    assert result.err.endswith("; 2 published, up to line 2; the next 1 may have been\n")
    assert db.llen(keys.queue("a")) == 2


def test_server_that_knows_no_batches_gets_one_after_the_other() -> None:
    class Old:
        published: list[tuple[str, bytes]] = []  # noqa: RUF012  (one object)
        asked = 0

        def publish(self, key: str, payload: bytes) -> None:
            self.published.append((key, payload))

        def publish_many(self, _: object) -> None:
            self.asked += 1
            raise BrokerRefused("PublishMany", "UNIMPLEMENTED", "unknown method")

    old = Old()
    publisher = _Publisher(cast("GomqClient", old), "a")
    publisher.send([b"1", b"2"])
    publisher.send([b"3", b"4"])
    assert old.published == [("a", b"1"), ("a", b"2"), ("a", b"3"), ("a", b"4")]
    assert old.asked == 1


def test_terminal_sees_a_bar(served: Served, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"x" * 99 + b"\n" + b"line\n" * 20_000)
    words = ("gomq", "publish", "a", "--address", served.address)
    code, drawn = on_a_terminal(*words, stdin=tmp_path / "lines")
    assert code == 0
    assert "sending" in drawn
    assert "published 20001 payloads to the key a" in drawn
