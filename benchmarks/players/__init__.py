"""Who is measured: each file runs in a process, and an environment, of its own."""
