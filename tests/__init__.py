"""The tests, laid out like the source."""
