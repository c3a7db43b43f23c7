"""The gRPC status of each error."""

from __future__ import annotations

import grpc
import pytest

from tambomq import errors
from tambomq.gomq.server.status import Code, status_of


@pytest.mark.parametrize("code", list(Code))
def test_a_code_has_its_number_in_grpc(code: Code) -> None:
    assert getattr(grpc.StatusCode, code.name).value[0] == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidFormat("key", "", "it must not be empty"), Code.INVALID_ARGUMENT),
        (errors.InvalidValue("n", 0, "more"), Code.INVALID_ARGUMENT),
        (errors.MessageTooLong("k", 9, 8), Code.RESOURCE_EXHAUSTED),
        (errors.StoreFull("out of memory"), Code.RESOURCE_EXHAUSTED),
        (errors.AlarmRaised("memory is nearly full"), Code.RESOURCE_EXHAUSTED),
        (errors.WrongType(("QUEUE_k",)), Code.FAILED_PRECONDITION),
        (errors.SettingsError("a cluster"), Code.FAILED_PRECONDITION),
        (errors.StoreUnavailable("gone"), Code.UNAVAILABLE),
        (errors.ReplyLost("gone in between"), Code.UNAVAILABLE),
        (errors.StoreRefused("NOAUTH"), Code.UNAVAILABLE),
        (errors.StoreError("ERR"), Code.UNAVAILABLE),
    ],
)
def test_an_error_becomes_a_status_with_its_text(error: Exception, code: Code) -> None:
    assert status_of(error) == (code, str(error))


def test_a_refusal_says_its_status_itself() -> None:
    refusal = errors.BrokerRefused("call", "UNAUTHENTICATED", "a token is needed")
    assert status_of(refusal) == (Code.UNAUTHENTICATED, "a token is needed")


def test_internal_errors_are_not_shown_to_clients() -> None:
    code, text = status_of(KeyError("/etc/secret"))
    assert code is Code.INTERNAL
    assert "secret" not in text
