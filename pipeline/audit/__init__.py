"""Whether topics are whole: every batch, index, epoch and transaction of data directories, checked by Spark's tasks."""
