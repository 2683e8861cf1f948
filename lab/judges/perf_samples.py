"""Prints each sample that `perf script` passes to Python, as one JSON list per line.

perf script -s perf_samples.py -i FILE
"""

import json
import sys

# Fields that perf adds to those of a tracepoint.
ADDED = {"common_cpu", "common_s", "common_ns", "common_comm", "common_callchain"}


def plain(value):
    return list(value) if isinstance(value, (bytes, bytearray)) else value


def show(name, sample, fields):
    fields = {field: plain(value) for field, value in fields.items() if field not in ADDED}
    line = [name, sample["time"], sample["cpu"], sample["pid"], sample["tid"], sample["ip"], sample["period"], fields]
    sys.stdout.write(json.dumps(line) + "\n")


def trace_unhandled(name, context, fields, sample):
    show(sample["ev_name"], sample["sample"], fields)


def process_event(event):
    show(event["ev_name"], event["sample"], {})
