"""A tour of GOMQ: publish, subscribe, observe, watch, come back.

Start a server with `make run`, then run this file. GOMQ_ADDRESS names another one.
"""

from __future__ import annotations

import os

from tambomq.gomq import GomqClient

KEY = "example-tour"


def main(address: str) -> None:
    with GomqClient(address, peer="example-tour-ada") as ada, GomqClient(address) as bob:
        # Nobody listens yet: it waits for the first who does.
        bob.publish(KEY, "one")
        ada.subscribe(KEY, "ada")
        print("ada:", [record.text for record in ada.observe("ada")])

        # From now on everybody who has subscribed gets everything.
        bob.subscribe(KEY, "bob")
        bob.publish_many([(KEY, "two"), (KEY, "three")])
        for name, client in (("ada", ada), ("bob", bob)):
            print(f"{name}:", [record.text for record in client.observe(name)])

    # What is published meanwhile waits for her, since she comes back by her name.
    with GomqClient(address) as bob:
        bob.publish(KEY, "four")
    with GomqClient(address, peer="example-tour-ada") as ada:
        for record in ada.watch("ada"):
            print("ada, back:", record.text)
            break
        for name in ("ada", "bob"):
            ada.unsubscribe(KEY, name)
    print("done")


if __name__ == "__main__":
    main(os.environ.get("GOMQ_ADDRESS", "127.0.0.1:10001"))
