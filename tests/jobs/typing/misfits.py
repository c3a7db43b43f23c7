"""Calls of the typed API that type checkers must refuse: each line with a comment, no other."""

from __future__ import annotations

from tambomq.jobs import Context, Jobs

mail = Jobs("mail")


@mail.job
async def welcome(to: str, *, lang: str = "en") -> int:
    return len(to + lang)


@mail.job(attempts=3)
def with_context(ctx: Context, to: str) -> str:
    return ctx.name + to


async def main() -> None:
    await welcome.add(5)  # refused
    await welcome.add()  # refused
    await welcome.add("ada", "de")  # refused
    await welcome.add(to="ada", language="de")  # refused
    welcome.add_sync(to=None)  # refused
    await welcome.options(delay_s=60).add(to=b"ada")  # refused
    await welcome.options(later=60).add(to="ada")  # refused
    welcome.call(lang="de")  # refused
    await with_context.add(to="ada", ctx=None)  # refused
    length: str = await (await welcome.add("ada")).result()  # refused
    assert length
    (await with_context.add("ada")).result_sync().bit_length()  # refused
    mail.job(retries=3)  # refused
