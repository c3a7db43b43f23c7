"""Histories of what processes did to queues while faults happened, and their checker."""
