"""Builds of the product with one guarantee broken each, which the chaos suite must find."""
