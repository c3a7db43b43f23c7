"""Excerpts of streams, sorted sets and lists, on every kind of server."""

from __future__ import annotations

import redis

from tambomq.bulk import excerpts
from tambomq.bulk.excerpts import Excerpt
from tambomq.store.sync import Store

BIG = b"a" * 3000 + b"z" * (2 << 20)


def test_of_a_long_value_both_ends_are_read(each: Store, each_db: redis.Redis) -> None:
    each_db.xadd("s", {"d": BIG, "n": "short"}, id="1-0")
    (entry,) = each.run(excerpts.entries("s")).entries
    assert entry.fields[b"d"] == Excerpt(b"a" * 2048, b"z" * 128, len(BIG))
    assert (entry.text(b"n"), entry.text(b"missing")) == ("short", "")
    assert not entry.fields[b"d"].is_whole
    assert entry.fields[b"n"].is_whole


def test_a_value_just_longer_than_its_head_has_no_byte_twice(
    each: Store, each_db: redis.Redis
) -> None:
    each_db.rpush("l", b"0123456789")
    assert each.run(excerpts.elements("l", 0, ends=8)) == [Excerpt(b"01234567", b"89", 10)]


def test_streams_are_read_both_ways_in_parts(each: Store, each_db: redis.Redis) -> None:
    for number in range(1, 8):
        each_db.xadd("s", {"id": f"{number % 2}"}, id=f"{number}-0")
    page = each.run(excerpts.entries("s", "2-0", count=3))
    assert ([e.id for e in page.entries], page.next) == (["3-0", "4-0", "5-0"], "5-0")
    page = each.run(excerpts.entries("s", page.next, count=3))
    assert ([e.id for e in page.entries], page.next) == (["6-0", "7-0"], None)
    back = each.run(excerpts.entries("s", "4-0", newest_first=True, until="2-0"))
    assert [e.id for e in back.entries] == ["3-0", "2-0"]
    odd = each.run(excerpts.entries("s", id="1"))
    assert ([e.id for e in odd.entries], odd.looked_at) == (["1-0", "3-0", "5-0", "7-0"], 7)
    assert each.run(excerpts.entries("nothing")).entries == []
    assert [e.id for e in each.run(excerpts.entry("s", "3-0")).entries] == ["3-0"]


def test_one_call_reads_a_bounded_part_of_large_values(each: Store, each_db: redis.Redis) -> None:
    for number in range(1, 6):
        each_db.xadd("s", {"d": BIG}, id=f"{number}-0")
        each_db.zadd("z", {BIG + b"%d" % number: number})
        each_db.rpush("l", BIG)
    page = each.run(excerpts.entries("s"))
    assert (page.looked_at, page.next) == (1, "1-0")
    members, is_end = each.run(excerpts.members("z", "-inf", "+inf", 0))
    assert (len(members), is_end) == (1, False)
    assert len(each.run(excerpts.elements("l", 0))) == 1


def test_members_come_by_score_and_say_whether_they_are_the_last(
    each: Store, each_db: redis.Redis
) -> None:
    each_db.zadd("z", {"a": 1, "b": 2.5, "c": 2.5})
    members, is_end = each.run(excerpts.members("z", "2", "+inf", 1))
    assert ([(m.head, score) for m, score in members], is_end) == ([(b"c", b"2.5")], True)
    some, is_end = each.run(excerpts.members("z", "-inf", "+inf", 0, 2))
    assert (len(some), is_end) == (2, False)


def test_an_entry_with_many_fields_is_cut(each: Store, each_db: redis.Redis) -> None:
    each_db.xadd("s", {f"field-{n}": "x" for n in range(500)})
    (entry,) = each.run(excerpts.entries("s")).entries
    assert len(entry.fields) == 64
