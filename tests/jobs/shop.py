"""Typed jobs for tests: found by name, also in other processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import TypedDict
from uuid import UUID

import msgspec

from tambomq.jobs import Context, Jobs


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


@shop.job(process=True)
async def awaited(number: int) -> int:
    await asyncio.sleep(0)
    return number + 1


@shop.job(process=True, timeout_s=0.3, attempts=1)
def hang() -> None:
    threading.Event().wait(600)


@shop.job(process=True, attempts=1)
def leave(how: str) -> None:
    if how == "exit":
        sys.exit(3)
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
