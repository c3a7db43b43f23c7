"""Test helpers for typed jobs: run due jobs, run one function, inspect the queue. No pytest."""
