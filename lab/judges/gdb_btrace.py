"""gdb's own decoding of Intel PT with two libraries: its branch tracing reads a stored trace from a stub of the remote protocol.

    gdb_btrace.py OURS TRACE FILE:OFFSET:SIZE@ADDRESS…

OURS is the folder of our libipt.so.2. The stub serves the trace as the target's, and the code as its memory. What gdb prints
with Intel's library and with ours must be the same.
"""

import os
import socket
import subprocess
import sys
import threading

FEATURES = (
    "PacketSize=8000;qXfer:btrace:read+;qXfer:btrace-conf:read+;Qbtrace:pt+;Qbtrace:off+;Qbtrace-conf:pt:size+;"
    "QStartNoAckMode+"
)
COMMANDS = [
    "set confirm off",
    "set pagination off",
    "set height 0",
    "set record instruction-history-size unlimited",
    "set record function-call-history-size unlimited",
    "set architecture i386:x86-64",
    "target remote {address}",
    "record btrace pt",
    "info record",
    "record instruction-history /r",
    "record instruction-history -",
    "record function-call-history /c",
    "maint info btrace",
    "maint btrace packet-history 0,100000",
    "reverse-stepi",
    "reverse-stepi 20",
    "info record",
    "record goto begin",
    "stepi 10",
    "info record",
]


class Stub:
    """Answers gdb as a stopped target with a trace."""

    def __init__(self, trace, sections):
        raw = trace.hex()
        cpu = '<cpu vendor="GenuineIntel" family="6" model="79" stepping="1"/>'
        self.trace = f'<btrace version="1.0"><pt><pt-config>{cpu}</pt-config><raw>{raw}</raw></pt></btrace>'
        self.conf = '<btrace-conf version="1.0"><pt size="4096"/></btrace-conf>'
        self.sections = sections
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.server.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        connection, _ = self.server.accept()
        with connection, connection.makefile("rwb") as stream:
            while byte := stream.read(1):
                if byte != b"$":
                    continue
                packet = bytearray()
                while (byte := stream.read(1)) != b"#":
                    packet += byte
                stream.read(2)
                answer = self.answer(packet.decode("latin-1"))
                stream.write(b"+$%s#%02x" % (answer.encode(), sum(answer.encode()) & 0xFF))
                stream.flush()

    def answer(self, packet):
        if packet.startswith("qSupported"):
            return FEATURES
        if packet == "?":
            return "T05thread:1;"
        if packet == "g":
            return "0" * 16 * 17
        if packet.startswith("m"):
            return self.memory(*(int(word, 16) for word in packet[1:].split(",")))
        if packet.startswith("qXfer:btrace:read:"):
            # The whole trace once; nothing is new after it.
            kind = packet.split(":")[3]
            return self.part(self.trace if kind == "all" else '<btrace version="1.0"></btrace>', packet)
        if packet.startswith("qXfer:btrace-conf:read:"):
            return self.part(self.conf, packet)
        if packet.startswith(("Qbtrace", "H", "QStartNoAckMode", "T")):
            return "OK"
        return {"qfThreadInfo": "m1", "qsThreadInfo": "l", "qC": "QC1", "qAttached": "1"}.get(packet, "")

    @staticmethod
    def part(text, packet):
        offset, length = (int(word, 16) for word in packet.rsplit(":", 1)[1].split(","))
        kind = "l" if offset + length >= len(text) else "m"
        return kind + text[offset : offset + length]

    def memory(self, address, length):
        for begin, content in self.sections:
            if begin <= address < begin + len(content):
                return content[address - begin :][:length].hex()
        return "E01"


def parse_section(text):
    place, address = text.rsplit("@", 1)
    path, offset, size = place.rsplit(":", 2)
    with open(path, "rb") as file:
        file.seek(int(offset, 0))
        return int(address, 0), file.read(int(size, 0))


def run(trace, sections, library):
    stub = Stub(trace, sections)
    arguments = [word for command in COMMANDS for word in ("-ex", command.format(address=stub.address))]
    environment = dict(os.environ)
    if library:
        environment["LD_LIBRARY_PATH"] = library
    done = subprocess.run(
        ["gdb", "-nx", "-batch", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        timeout=300,
        check=False,
        text=True,
    )
    # Our version names us.
    return done.stdout.replace(stub.address, "ADDRESS").replace("-hodoscope", "")


def main():
    ours, path, *places = sys.argv[1:]
    with open(path, "rb") as file:
        trace = file.read()
    sections = [parse_section(place) for place in places]
    expected, found = run(trace, sections, None), run(trace, sections, ours)
    lines = expected.splitlines()
    if "Recorded" not in expected:
        sys.exit("gdb recorded nothing:\n" + expected[-2000:])
    if expected == found:
        print(f"gdb prints the same {len(lines)} lines with both libraries")
        return
    for number, (left, right) in enumerate(zip(lines, found.splitlines())):
        if left != right:
            sys.exit(f"line {number}:\n- {left}\n+ {right}")
    sys.exit(f"{len(lines)} lines, and {len(found.splitlines())} with ours")


if __name__ == "__main__":
    main()
