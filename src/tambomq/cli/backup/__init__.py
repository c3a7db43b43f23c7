"""``tambo backup`` and ``tambo restore``."""
