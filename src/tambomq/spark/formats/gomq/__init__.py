"""The data source ``gomq``."""
