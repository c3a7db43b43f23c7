"""Samples of queues, protocol by protocol, and which queues there are."""
