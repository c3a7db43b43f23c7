"""Starts Spark sessions: Java, configuration, caches, code for the workers."""
