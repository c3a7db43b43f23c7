"""Alarms: levels of memory, disk and queue length at which producers are stopped."""
