"""`format("dovetail")`: what Spark asks of a data source, handed on to those who know.

Spark makes a DataSource anew in every process that needs one, by keyword, and pickles it; it holds options and nothing that lives.
"""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamArrowWriter, DataSourceStreamReader, DataSourceWriter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from dovetail.spark import shape, typed
from dovetail.spark.batch import BatchReader
from dovetail.spark.options import Options, options_of
from dovetail.spark.sink import BatchWriter, StreamWriter
from dovetail.spark.sinkoptions import sink_options_of
from dovetail.spark.stream import StreamReader


def ddl(options: Options) -> str:
    """With `bodyFormat` the body is a struct of the schema that was given, and `_corrupt` has the bodies that it does not fit."""
    if not options.typed:
        return shape.ddl(options.columns)
    said = options.body_schema
    fields = StructType.fromJson(json.loads(said)).simpleString() if said.lstrip().startswith("{") else f"STRUCT<{said}>"
    columns = [f"`{name}` {fields if name == 'body' else shape.SQL[name]}" for name in options.columns]
    return ", ".join([*columns, f"`{typed.CORRUPT}` BINARY"])


class DovetailSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "dovetail"

    def schema(self) -> str:
        return ddl(options_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(*self._told(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(*self._told(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(sink_options_of(self.options), to_arrow_schema(schema, timezone="UTC"), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamWriter(sink_options_of(self.options), to_arrow_schema(schema, timezone="UTC"), overwrite)

    def _told(self, schema: StructType) -> tuple[Options, pa.Schema]:
        options, arrow = options_of(self.options), to_arrow_schema(schema, timezone="UTC")
        if options.typed:
            typed.checked(arrow.field("body").type)
        return options, arrow

    def __repr__(self) -> str:
        # Spark's own shows the options, and among them a secret.
        return "DovetailSource()"
