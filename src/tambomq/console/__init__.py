"""The web console: what is in all queues, why a message is not running, and what to do about it.

`read` samples queues, `messages` reads and explains single messages, `actions` changes something,
`http` serves all of it as pages and JSON. Values that cross these borders are in `model`.
"""
