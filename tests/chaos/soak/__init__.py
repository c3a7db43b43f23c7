"""The soak: all protocols under load for hours, with a fault now and then."""
