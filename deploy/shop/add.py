"""Adds a job and prints its result: ``python -m shop.add ada@example.com``."""

from __future__ import annotations

import sys

from shop.jobs import welcome


def main() -> None:
    """Greet the address on the command line."""
    job = welcome.add_sync(to=sys.argv[1])
    print(job.result_sync(timeout_s=30))


if __name__ == "__main__":
    main()
