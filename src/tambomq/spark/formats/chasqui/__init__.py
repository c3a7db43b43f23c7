"""The data source ``chasqui``."""
