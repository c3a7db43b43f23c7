"""Benchmarks: the throughput of TamboMQ compared with other implementations (``make bench``)."""
