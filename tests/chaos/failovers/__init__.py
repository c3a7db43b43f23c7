"""Failovers under load: what is lost of confirmed sends, and how long nothing is confirmed."""
