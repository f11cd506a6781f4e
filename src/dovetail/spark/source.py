"""`format("dovetail")`: what Spark asks of a data source, handed on to those who know.

Spark makes a DataSource anew in every process that needs one, by keyword, and pickles it; it holds options and nothing that lives.
"""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamArrowWriter, DataSourceStreamReader, DataSourceWriter
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from dovetail.spark import facts, shape, typed
from dovetail.spark.batch import BatchReader
from dovetail.spark.competing import CompetingReader
from dovetail.spark.options import Options, options_of
from dovetail.spark.reader import Reader
from dovetail.spark.sink import BatchWriter, StreamWriter
from dovetail.spark.sinkoptions import sink_options_of
from dovetail.spark.stream import StreamReader


def schema_of(options: Options) -> str | StructType:
    """With `bodyFormat` the body is a struct of the schema that was given, and `_corrupt` has the bodies that it does not fit."""
    if options.facts:
        return facts.ddl(options)
    if options.bodies is None or not options.typed:
        return shape.ddl(options.columns)
    if options.bodies.format == "json":
        said = str(options.bodies.schema)
        fields = StructType.fromJson(json.loads(said)).simpleString() if said.lstrip().startswith("{") else f"STRUCT<{said}>"
        columns = [f"`{name}` {fields if name == 'body' else shape.SQL[name]}" for name in options.columns]
        return ", ".join([*columns, f"`{typed.CORRUPT}` BINARY"])
    kinds = {**shape.ARROW, "body": typed.kind_of(options.bodies), typed.CORRUPT: pa.binary()}
    made = from_arrow_schema(pa.schema([pa.field(name, kinds[name]) for name in (*options.columns, typed.CORRUPT)]))
    assert isinstance(made, StructType)
    return made


def stream_reader(options: Options, schema: pa.Schema) -> Reader:
    return CompetingReader(options, schema) if options.reservation else StreamReader(options, schema)


class DovetailSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "dovetail"

    def schema(self) -> str | StructType:
        return schema_of(options_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(*self._told(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return stream_reader(*self._told(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(sink_options_of(self.options), to_arrow_schema(schema, timezone="UTC"), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamWriter(sink_options_of(self.options), to_arrow_schema(schema, timezone="UTC"), overwrite)

    def _told(self, schema: StructType) -> tuple[Options, pa.Schema]:
        options, arrow = options_of(self.options), to_arrow_schema(schema, timezone="UTC")
        if options.bodies is not None and options.typed:
            typed.checked(options.bodies, arrow.field("body").type)
        return options, arrow

    def __repr__(self) -> str:
        # Spark's own shows the options, and among them a secret.
        return "DovetailSource()"
