"""The data pipeline: topics read, archived, checked and restored with PySpark."""
