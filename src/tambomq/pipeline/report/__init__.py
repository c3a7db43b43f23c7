"""The report: figures and charts of a lake, as one HTML page."""
