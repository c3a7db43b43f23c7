"""The data source ``tambo``: journals."""
