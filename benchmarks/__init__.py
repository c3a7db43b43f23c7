"""What TamboMQ does in a second, beside what others do. ``make bench`` runs it."""
