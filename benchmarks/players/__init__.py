"""The contenders of benchmarks. Each file runs in a process, and an environment, of its own."""
