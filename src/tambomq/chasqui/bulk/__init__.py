"""Bulk operations on ChasquiMQ queues, for Spark, the pipeline and audits."""
