"""A tour of KqueueMsgQ: a producer, a consumer of one queue, and one of all.

It brings its own server, on a free port, as a program may that needs a broker for itself.
"""

from __future__ import annotations

import asyncio

from tambomq.kqueue import AsyncConsumer, AsyncProducer, KqueueServer


async def main() -> None:
    async with KqueueServer(port=0) as server:
        host, port = server.address
        async with (
            AsyncProducer(host, port) as producer,
            AsyncConsumer(host, port) as orders,
            AsyncConsumer(host, port) as everything,
        ):
            await orders.subscribe("orders")
            await everything.subscribe_all()
            # No frame is answered, so the server is asked whether it has read these two.
            while server.stats.subscriptions < len(("orders", "everything")):  # noqa: ASYNC110  (it tells nobody)
                await asyncio.sleep(0.001)

            count = await producer.send_many(("orders", f"order {n}") for n in range(1000))
            await producer.send("letters", "Dear Ada")
            print("sent", count + 1)

            for _ in range(count - 1):
                await orders.receive()
            last = await orders.receive()
            print("the last order:", last.text if last else None)

            for _ in range(count):
                await everything.receive()
            letter = await everything.receive()
            print("and then:", letter.text if letter else None)
        print("delivered", server.stats.delivered)
    print("done")


asyncio.run(main())
