"""Encodes and decodes the bytes of ChasquiMQ."""
