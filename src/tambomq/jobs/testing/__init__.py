"""Tests of typed jobs: run what is due, run one function alone, look into the queue. No pytest."""
