"""Typed jobs for tests: found by name, also in other processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import TypedDict
from uuid import UUID

import msgspec

from tambomq.jobs import Jobs


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
def pid_of(what: str) -> tuple[str, int]:
    return what, os.getpid()
