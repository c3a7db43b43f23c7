"""A GOMQ or KqueueMsgQ server cannot do what was asked, as its clients see it."""

from __future__ import annotations

from tambomq.errors.common import TamboError


class BrokerError(TamboError):
    """A GOMQ or KqueueMsgQ server cannot do what was asked."""


class BrokerUnavailable(BrokerError):
    """A server cannot be reached, or it went away; what was under way may be lost."""

    def __init__(self, address: str, why: object) -> None:
        super().__init__(f"no server at {address}: {why}")
        self.address = address


class BrokerRefused(BrokerError):
    """A server answers with a status that is not OK; *status* is its name in gRPC."""

    def __init__(self, call: str, status: str, details: str) -> None:
        super().__init__(f"{call}: {status}: {details}")
        self.call, self.status, self.details = call, status, details
