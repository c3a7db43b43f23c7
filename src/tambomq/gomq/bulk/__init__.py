"""Bulk operations on GOMQ keys, for Spark, the pipeline and audits."""
