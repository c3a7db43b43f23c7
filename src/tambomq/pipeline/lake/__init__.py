"""The lake: tables of Parquet files with a commit log."""
