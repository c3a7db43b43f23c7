"""Fills the lake: reads events and journals into bronze, derives silver and gold."""
