"""Moves messages between queues: migrate and replay."""
