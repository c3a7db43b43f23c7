"""Leased streams: a streaming query claims messages, reads them, and acknowledges them.

Read `reader` first (a micro-batch is a claim), then `holder` (who may claim), `leased_source` (what
a protocol provides), `verdicts` (retry or dead-letter single rows) and `admin` (for operators).
"""
