"""The `format("kafka_log")` for a Spark that is too old: it raises an error that says so."""

from collections.abc import MutableMapping

from pyspark import __version__
from pyspark.sql.datasource import DataSource


class SourceForOlderSpark(DataSource):
    """A data source that raises an error, because this Spark is too old."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        raise RuntimeError(f"kafka_log needs Spark 4.2, and this is {__version__}: pip install 'ottla[spark]'")

    @classmethod
    def name(cls) -> str:
        """The data source's name, as in `format(...)`."""
        return "kafka_log"
