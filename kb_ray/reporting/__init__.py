"""The report: a trace store as one HTML page, and its plots as files."""
