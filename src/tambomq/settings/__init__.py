"""Settings: their names, types, defaults and sources."""
