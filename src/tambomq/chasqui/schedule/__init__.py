"""Cron expressions and fire times of recurring jobs. No Redis."""
