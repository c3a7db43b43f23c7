"""The data sources, one folder for each format."""
