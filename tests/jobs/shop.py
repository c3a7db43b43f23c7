"""Typed jobs for tests: found by name, also in other processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID

import msgspec

from tambomq.jobs import INJECTED, Context, Jobs, RetryIn, UnrecoverableError


class Tone(Enum):
    WARM = "warm"
    COLD = "cold"


@dataclass
class Receipt:
    to: str
    at: datetime | None = None


class Address(TypedDict):
    street: str


class Item(msgspec.Struct):
    sku: UUID
    price: Decimal
    tags: list[str] = []


shop = Jobs("shop")


@shop.job
async def welcome(to: str, *, lang: str = "en") -> Receipt:
    return Receipt(f"{to} in {lang}")


@shop.job
def add_up(numbers: list[int]) -> int:
    return sum(numbers)


@shop.job
async def order(
    items: list[Item], when: datetime, tone: Tone, ship_to: Address, note: str | None = None
) -> dict[str, list[Item]]:
    assert isinstance(when, datetime)
    assert tone in Tone
    return {ship_to["street"]: items}


# ── in processes ─────────────────────────────────────────────────────────────


@shop.job(process=True)
def pid_of(ctx: Context, what: str) -> tuple[str, int]:
    ctx.progress(40)
    ctx.log(f"run {ctx.attempt}")
    return what, os.getpid()


@shop.job(process=True, attempts=1)
def refused(ctx: Context) -> str:
    try:
        ctx.progress("x" * 10_000)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


@shop.job(process=True)
async def awaited(number: int) -> int:
    await asyncio.sleep(0)
    return number + 1


class Till:
    """What a worker has one of, and each process too."""

    def __init__(self) -> None:
        self.pid, self.sales = os.getpid(), 0
        self.note: Path | None = None


class Sale:
    """What each run has one of."""

    def __init__(self, till: Till) -> None:
        self.till = till


@shop.provide(scope="worker")
async def open_till() -> AsyncIterator[Till]:
    till = Till()
    yield till
    if till.note is not None:
        till.note.with_name("till").write_text(f"{till.pid} {till.sales}")


@shop.provide
def open_sale(till: Till) -> Iterator[Sale]:
    yield Sale(till)
    till.sales += 1


@shop.on_start
def open_shop(state: dict[str, Any]) -> None:
    state["opened_in"] = os.getpid()


@shop.on_stop
async def close_shop(state: dict[str, Any]) -> None:
    if (note := state.get("note")) is not None:
        note.with_name("hook").write_text(str(os.getpid()))


@shop.job(process=True)
def sell(ctx: Context, folder: str, sale: Sale = INJECTED) -> tuple[int, int, int]:
    """Return in which processes the hook, the provider and the function ran."""
    sale.till.note = ctx.state["note"] = Path(folder, "note")
    return ctx.state["opened_in"], sale.till.pid, os.getpid()


@shop.job(process=True, timeout_s=0.3, attempts=1)
def hang() -> None:
    threading.Event().wait(600)


@shop.job(process=True, attempts=1)
def leave(how: str) -> None:
    if how == "exit":
        sys.exit(3)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "_exit":
        os._exit(4)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


@shop.job(process=True)
def fork() -> int:
    if (child := os.fork()) != 0:
        os.waitpid(child, 0)
    return os.getpid()


class Unpicklable(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


@shop.job(process=True, attempts=1)
def fail(kind: str) -> None:
    raise ValueError("no") if kind == "plain" else Unpicklable("not", "pickled")


class Declined(UnrecoverableError):
    def __init__(self, card: str, why: str) -> None:
        super().__init__(f"card {card}: {why}")


class Busy(RetryIn):
    def __init__(self, line: int, *, seconds: float) -> None:
        super().__init__(seconds, f"line {line} is busy")


@shop.job(process=True, attempts=3, backoff=1)
def decide(ctx: Context, what: str) -> int:
    if what == "decline":
        raise Declined("7", "expired")
    if ctx.attempt == 1:
        raise Busy(4, seconds=0.01)
    return ctx.attempt
