#!/usr/bin/python3
"""Prints every event that babeltrace2 reads from a trace, in the format of `hodo script --events --format jsonl`.

usage: events.py FOLDER [FROM TO]

FROM (inclusive) and TO (exclusive) are times in nanoseconds, or `-` for no limit. Lines of events lack the member
`trace`. Lost events are lines with the members `stream` and `lost_events`.

Creating Python objects for fields takes most of the time of babeltrace2's module. So objects are used only for field
classes, and values are read with the library's C functions.
"""

import json
import os
import sys

import bt2
from bt2 import field_class, native_bt


def structure_reader(cls):
    borrow = native_bt.field_structure_borrow_member_field_by_index_const
    members = [(name, index, reader(member.field_class)) for index, (name, member) in enumerate(cls.items())]
    return lambda field: {name: read(borrow(field, index)) for name, index, read in members}


def array_reader(cls):
    borrow, length = native_bt.field_array_borrow_element_field_by_index_const, native_bt.field_array_get_length
    read = reader(cls.element_field_class)
    return lambda field: [read(borrow(field, index)) for index in range(length(field))]


def option_reader(cls):
    borrow, read = native_bt.field_option_borrow_field_const, reader(cls.field_class)

    def option(field):
        held = borrow(field)
        return None if held is None else read(held)

    return option


def variant_reader(cls):
    borrow = native_bt.field_variant_borrow_selected_option_field_const
    selected = native_bt.field_variant_get_selected_option_index
    reads = [reader(option.field_class) for option in cls.values()]
    return lambda field: reads[selected(field)](borrow(field))


# Functions that make a reader, by field class; enumerations are integers.
READERS = [
    (bt2._StructureFieldClassConst, structure_reader),
    (bt2._ArrayFieldClassConst, array_reader),
    (bt2._OptionFieldClassConst, option_reader),
    (bt2._VariantFieldClassConst, variant_reader),
    (bt2._BoolFieldClassConst, lambda _: lambda field: bool(native_bt.field_bool_get_value(field))),
    (bt2._UnsignedIntegerFieldClassConst, lambda _: native_bt.field_integer_unsigned_get_value),
    (bt2._SignedIntegerFieldClassConst, lambda _: native_bt.field_integer_signed_get_value),
    (field_class._SinglePrecisionRealFieldClassConst, lambda _: native_bt.field_real_single_precision_get_value),
    (field_class._DoublePrecisionRealFieldClassConst, lambda _: native_bt.field_real_double_precision_get_value),
    (bt2._StringFieldClassConst, lambda _: native_bt.field_string_get_value),
]


def reader(cls):
    """Returns a function from a field of this class to its JSON value; without a class, to an empty object."""
    if cls is None:
        return lambda _: {}
    return next(make for kind, make in READERS if isinstance(cls, kind))(cls)


class Stream:
    """The properties of a stream."""

    def __init__(self, stream):
        cls = stream.cls
        self.name = os.path.basename(stream.name)
        self.has_packets = cls.supports_packets
        self.has_clock = cls.default_clock_class is not None
        self.packet_context = reader(cls.packet_context_field_class if cls.supports_packets else None)
        self.common_context = reader(cls.event_common_context_field_class)
        # The context of the current packet; None until it is read.
        self.context = None


class Events:
    """Reads events."""

    def __init__(self, begin, end):
        self.begin, self.end = begin, end
        self.streams = {}
        self.classes = {}

    def stream(self, message, stream):
        found = self.streams.get(int(stream))
        if found is None:
            found = self.streams[int(stream)] = Stream(message.event.stream)
        return found

    def cls(self, message, cls):
        found = self.classes.get(int(cls))
        if found is None:
            of = message.event.cls
            found = (of.name, reader(of.specific_context_field_class), reader(of.payload_field_class))
            self.classes[int(cls)] = found
        return found

    def is_wanted(self, time):
        return (self.begin is None or self.begin <= time) and (self.end is None or time < self.end)

    def line(self, message):
        """Returns an event as an object; None if it is outside the selected time."""
        event = native_bt.message_event_borrow_event_const(message._ptr)
        stream = self.stream(message, native_bt.event_borrow_stream_const(event))
        time = None
        if stream.has_clock:
            clock = native_bt.message_event_borrow_default_clock_snapshot_const(message._ptr)
            status, time = native_bt.clock_snapshot_get_ns_from_origin(clock)
            if status != 0:
                raise OverflowError("a time beyond 64 bits")
            if not self.is_wanted(time):
                return None
        name, specific, payload = self.cls(message, native_bt.event_borrow_class_const(event))
        if stream.context is None:
            packet = native_bt.event_borrow_packet_const(event) if stream.has_packets else None
            field = packet and native_bt.packet_borrow_context_field_const(packet)
            stream.context = stream.packet_context(field)
        context = dict(stream.context)
        context.update(stream.common_context(native_bt.event_borrow_common_context_field_const(event)))
        context.update(specific(native_bt.event_borrow_specific_context_field_const(event)))
        fields = payload(native_bt.event_borrow_payload_field_const(event))
        return {"ts": time, "stream": stream.name, "name": name, "fields": fields, "context": context}

    def packet(self, message):
        """Begins a packet, whose context is read later."""
        stream = self.streams.get(int(native_bt.packet_borrow_stream_const(message.packet._ptr)))
        if stream is not None:
            stream.context = None

    def lost(self, message):
        """Returns lost events as an object; None if they are outside the selected time."""
        has_times = message.stream.cls.discarded_events_have_default_clock_snapshots
        if has_times and not self.is_wanted(message.beginning_default_clock_snapshot.ns_from_origin):
            return None
        return {"stream": os.path.basename(message.stream.name), "lost_events": message.count}


def main():
    times = [None if time == "-" else int(time) for time in sys.argv[2:]] or [None, None]
    events = Events(*times)
    kinds = {
        bt2._EventMessageConst: events.line,
        bt2._PacketBeginningMessageConst: events.packet,
        bt2._DiscardedEventsMessageConst: events.lost,
    }
    write = sys.stdout.write
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    for message in bt2.TraceCollectionMessageIterator(sys.argv[1]):
        take = kinds.get(type(message))
        line = take and take(message)
        if line is not None:
            write(encode(line) + "\n")


if __name__ == "__main__":
    main()
