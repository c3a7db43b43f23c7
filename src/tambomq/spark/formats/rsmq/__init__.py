"""The data source ``rsmq``."""
