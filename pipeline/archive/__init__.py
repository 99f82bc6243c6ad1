"""The archive: topics as Parquet files, each record once for every reader, and what a restore needs beside them."""
