from __future__ import annotations

from tambomq.backup.model import BackupCounts, ProtocolCount


def contents(keys: int = 5, expired: int = 0, messages: int = 7) -> BackupCounts:
    return BackupCounts(keys, expired, {"rsmq": ProtocolCount(1, messages)})


def test_equal_contents_have_no_difference() -> None:
    assert contents().difference(contents()) == ""


def test_missing_keys_and_messages_are_a_difference() -> None:
    assert contents(keys=4).difference(contents()) == "4 keys, not 5"
    assert contents(messages=6).difference(contents()) == "6 messages of rsmq, not 7"
    assert BackupCounts(5, 0, {}).difference(contents()) == "0 messages of rsmq, not 7"


def test_messages_are_not_compared_when_keys_have_expired_since() -> None:
    assert contents(expired=1, messages=6).difference(contents()) == ""
