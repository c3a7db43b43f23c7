"""Bulk operations on RSMQ queues, for Spark, the pipeline and audits."""
