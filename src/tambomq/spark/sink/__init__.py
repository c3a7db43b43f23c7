"""Writes rows to queues, each exactly once per batch."""
