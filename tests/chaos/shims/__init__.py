"""Libraries that are loaded into a process before its C library, and inject faults."""
