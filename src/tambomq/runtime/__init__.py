"""Heartbeats that renew leases, in a thread or a process of their own."""
