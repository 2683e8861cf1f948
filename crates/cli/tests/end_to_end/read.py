"""Reads a table from an Arrow file and a Parquet file with pyarrow, polars and DuckDB; prints what each found."""

import json
import sys

import duckdb
import polars
import pyarrow.ipc
import pyarrow.parquet

arrow, parquet = sys.argv[1:]


def of_pyarrow(table, footer):
    """A table, and the metadata of the file's footer, which has what is known only behind the rows."""
    types = [str(field.type) for field in table.schema]
    decode = lambda metadata: {key.decode(): value.decode() for key, value in (metadata or {}).items()}
    fields = [decode(field.metadata) for field in table.schema]
    return {
        "names": table.column_names,
        "types": types,
        "rows": [list(row.values()) for row in table.to_pylist()],
        "metadata": decode(table.schema.metadata) | decode(footer),
        "units": [field.get("hodo.unit", "") for field in fields],
    }


def of_polars(frame):
    names = polars.selectors.categorical() | polars.selectors.enum()
    frame = frame.with_columns(names.cast(polars.String))
    return {"names": frame.columns, "rows": [list(row) for row in frame.rows()]}


def of_duckdb(relation):
    return {"names": relation.columns, "rows": [list(row) for row in relation.fetchall()]}


with pyarrow.ipc.open_file(arrow) as file:
    table = file.read_all()
    footer = file.metadata
found = {
    "pyarrow of arrow": of_pyarrow(table, footer),
    "pyarrow of parquet": of_pyarrow(pyarrow.parquet.read_table(parquet), pyarrow.parquet.read_metadata(parquet).metadata),
    "polars of arrow": of_polars(polars.read_ipc(arrow)),
    "polars of parquet": of_polars(polars.read_parquet(parquet)),
    "duckdb of arrow": of_duckdb(duckdb.from_arrow(table)),
    "duckdb of parquet": of_duckdb(duckdb.read_parquet(parquet)),
}
json.dump(found, sys.stdout)
