"""Traces: finished episodes as Parquet parts in a folder or an S3 prefix, written once and never changed."""
