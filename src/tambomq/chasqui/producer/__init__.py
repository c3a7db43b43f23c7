"""Adds jobs and waits for their results."""
