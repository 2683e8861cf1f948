#!/usr/bin/python3
"""Every event that babeltrace2 reads of a trace, as `hodo script --events --format jsonl` writes them.

usage: events.py FOLDER

Lines of events lack the member `trace`. Lost events are lines with the members `stream` and `lost_events`.
"""

import json
import os
import sys

import bt2


def value(field):
    """A field as JSON has it."""
    if isinstance(field, bt2._VariantFieldConst):
        return value(field.selected_option)
    if isinstance(field, bt2._OptionFieldConst):
        return value(field.field) if field.has_field else None
    if isinstance(field, bt2._StructureFieldConst):
        return {name: value(field[name]) for name in field}
    if isinstance(field, bt2._ArrayFieldConst):
        return [value(field[index]) for index in range(len(field))]
    if isinstance(field, bt2._BoolFieldConst):
        return bool(field)
    if isinstance(field, bt2._IntegerFieldConst):
        return int(field)
    if isinstance(field, bt2._RealFieldConst):
        return float(field)
    if isinstance(field, bt2._StringFieldConst):
        return str(field)
    raise TypeError(type(field))


def members(field):
    return value(field) if field is not None else {}


def main():
    out = sys.stdout
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    for message in bt2.TraceCollectionMessageIterator(sys.argv[1]):
        if type(message) is bt2._EventMessageConst:
            event = message.event
            packet = event.packet if event.stream.cls.supports_packets else None
            context = members(packet.context_field) if packet is not None else {}
            context.update(members(event.common_context_field))
            context.update(members(event.specific_context_field))
            line = {
                "ts": message.default_clock_snapshot.ns_from_origin if message.default_clock_snapshot else None,
                "stream": os.path.basename(event.stream.name),
                "name": event.name,
                "fields": members(event.payload_field),
                "context": context,
            }
            out.write(encode(line) + "\n")
        elif type(message) is bt2._DiscardedEventsMessageConst:
            line = {"stream": os.path.basename(message.stream.name), "lost_events": message.count}
            out.write(encode(line) + "\n")


if __name__ == "__main__":
    main()
