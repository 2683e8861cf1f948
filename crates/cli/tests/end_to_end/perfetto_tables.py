"""Prints what Perfetto's trace processor has in its tables, as JSON: of calls, or of a kernel."""
import json
import sys

from trace_processor import query

KERNEL = {
    "sched": "select count(*) from sched",
    "flows": "select count(*) from flow",
    "woken": "select count(*) from thread_state where waker_utid is not null",
    "sleeping": "select count(*) from thread_state where state = 'S'",
}
CALLS = {
    "instructions_of_fib": "select sum(extract_arg(arg_set_id, 'debug.instructions')) from slice where name = 'fib'",
    "last_counter": "select cast(max(value) as int) from counter",
}

kind, path = sys.argv[1:3]
queries = {"kernel": KERNEL, "calls": CALLS}[kind]
errors = "select name from stats where severity in ('error', 'data_loss') and value > 0"
*found, errors = query(path, *queries.values(), errors)
assert not errors, errors
print(json.dumps({name: rows[0][0] for name, rows in zip(queries, found)}))
