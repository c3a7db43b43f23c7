"""What the console can change: queues, messages, dead letters, schedules. All audited."""
