//! Two traces of hosts that talk TCP, as LTTng records them, with clocks whose truth is known.

use std::{fs, path::Path};

/// As lttng-modules' `instrumentation/events/net.h` describes a packet, and a tick that has the true time in it.
const METADATA: &str = "/* CTF 1.8 */
typealias integer { size = 8; } := u8;
typealias integer { size = 16; byte_order = be; } := be16;
typealias integer { size = 32; byte_order = be; } := be32;
typealias integer { size = 64; } := u64;
trace { major = 1; minor = 8; byte_order = le; };
env { hostname = \"HOST\"; domain = \"kernel\"; tracer_name = \"lttng-modules\"; };
clock { name = \"monotonic\"; freq = 1000000000; offset_s = OFFSET; absolute = TRUE; };
typealias integer { size = 64; map = clock.monotonic.value; } := time;
stream { event.header := struct { u8 id; time t; }; };
struct headers {
    u64 _skbaddr; integer { size = 32; } _len; string _name;
    enum : u8 { \"_unknown\" = 0, \"_ipv4\" = 1 } _network_header_type;
    variant <_network_header_type> {
        struct {} _unknown;
        struct {
            u8 _ttl; u8 _saddr[4]; u8 _daddr[4];
            enum : u8 { \"_unknown\" = 0, \"_tcp\" = 6 } _transport_header_type;
            variant <_transport_header_type> {
                struct {} _unknown;
                struct { be16 _source_port; be16 _dest_port; be32 _seq; be32 _ack_seq; be16 _flags; } _tcp;
            } _transport_header;
        } _ipv4;
    } _network_header;
};
event { id = 1; name = \"net_dev_queue\"; fields := struct { struct headers _h; }; };
event { id = 2; name = \"net_if_receive_skb\"; fields := struct { struct headers _h; }; };
event { id = 3; name = \"tick\"; fields := struct { u64 _truth; }; };
";

/// The seconds from 1970 to the zero of the client's clock. The server's clock shows half a second more, and its offset is a
/// second less: its wall-clock time is half a second behind.
pub(crate) const CLIENT_OFFSET: u64 = 1_795_171_000;
const SERVER_OFFSET: u64 = CLIENT_OFFSET - 1;

/// One of the two hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// An event at a host, at a true time in nanoseconds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct HostEvent {
    truth: u64,
    id: u8,
    fields: Vec<u8>,
}

/// Ids of events.
const SEND: u8 = 1;
const RECEIVE: u8 = 2;
const TICK: u8 = 3;

/// A span of true time, in nanoseconds, in which the server's clock runs faster, by parts per million.
pub(crate) struct Slew {
    pub(crate) from: u64,
    pub(crate) duration: u64,
    pub(crate) ppm: u64,
}

/// A jump of the server's clock ahead, at a true time; both in nanoseconds.
pub(crate) struct Step {
    pub(crate) time: u64,
    pub(crate) jump: u64,
}

/// What both hosts recorded.
#[derive(Default)]
pub(crate) struct Talk {
    client: Vec<HostEvent>,
    server: Vec<HostEvent>,
    pub(crate) slew: Option<Slew>,
    pub(crate) step: Option<Step>,
}

impl Talk {
    fn events_of(&mut self, side: Side) -> &mut Vec<HostEvent> {
        if side == Side::Client { &mut self.client } else { &mut self.server }
    }

    /// A segment that one side sends and the other receives, at true times; `None`: it was not recorded there.
    pub(crate) fn segment(&mut self, from: Side, seq: u32, sent: Option<u64>, received: Option<u64>) {
        let to = if from == Side::Client { Side::Server } else { Side::Client };
        let fields = segment(from, seq);
        let event = |truth: u64, id: u8| HostEvent { truth, id, fields: fields.clone() };
        self.events_of(from).extend(sent.map(|truth| event(truth, SEND)));
        self.events_of(to).extend(received.map(|truth| event(truth, RECEIVE)));
    }

    /// An event of both sides that has the true time in it.
    pub(crate) fn tick(&mut self, truth: u64) {
        for side in [Side::Client, Side::Server] {
            self.events_of(side).push(HostEvent { truth, id: TICK, fields: truth.to_le_bytes().to_vec() });
        }
    }

    /// A conversation: requests and answers 5 ms apart, `count` of them, and ticks between.
    pub(crate) fn of_exchanges(count: u32) -> Talk {
        let mut talk = Talk::default();
        let mut random = 12_345u64;
        let mut delay = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // 40 µs at least, and up to 100 µs more.
            40_000 + (random >> 33) % 100_000
        };
        for index in 0..count {
            let asked = 1_000_000_000 + u64::from(index) * 5_000_000;
            let arrived = asked + delay();
            let answered = arrived + 300_000;
            let back = answered + delay();
            talk.segment(Side::Client, 100 * index, Some(asked), Some(arrived));
            talk.segment(Side::Server, 7 + 100 * index, Some(answered), Some(back));
            talk.tick(asked + 2_500_000);
        }
        talk
    }

    /// Writes both traces below a folder: `client` and `server`.
    pub(crate) fn write(&self, folder: &Path) {
        write(&folder.join("client"), "one", CLIENT_OFFSET, &self.client, |truth| truth);
        write(&folder.join("server"), "two", SERVER_OFFSET, &self.server, |truth| {
            let slewed =
                |slew: &Slew| truth.saturating_sub(slew.from).min(slew.duration) * slew.ppm / 1_000_000;
            let slewed = self.slew.as_ref().map_or(0, slewed);
            let stepped = self.step.as_ref().filter(|step| truth >= step.time).map_or(0, |step| step.jump);
            server_clock(truth) + slewed + stepped
        });
    }
}

/// What the server's clock shows: 37 ppm fast at first, and up to 1 ppm more in the middle of 10 s, half a second ahead.
fn server_clock(truth: u64) -> u64 {
    let seconds = truth as f64 / 1e9;
    let wander = 1_000.0 * seconds * (10.0 - seconds) / 10.0;
    truth + truth * 37 / 1_000_000 + 500_000_000 + wander.max(0.0) as u64
}

/// The headers of a segment.
fn segment(from: Side, seq: u32) -> Vec<u8> {
    let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let (source, destination, ports) = match from {
        Side::Client => (client, server, [40_000u16, 80]),
        Side::Server => (server, client, [80, 40_000]),
    };
    let mut bytes = vec![0; 8];
    bytes.extend(1_500u32.to_le_bytes());
    bytes.extend(b"eth0\0\x01\x40");
    bytes.extend(source);
    bytes.extend(destination);
    bytes.push(6);
    ports.iter().for_each(|port| bytes.extend(port.to_be_bytes()));
    bytes.extend(seq.to_be_bytes());
    bytes.extend(9u32.to_be_bytes());
    bytes.extend(0x18u16.to_be_bytes());
    bytes
}

fn write(folder: &Path, host: &str, offset: u64, events: &[HostEvent], clock: impl Fn(u64) -> u64) {
    fs::create_dir_all(folder).unwrap();
    let metadata = METADATA.replace("HOST", host).replace("OFFSET", &offset.to_string());
    fs::write(folder.join("metadata"), metadata).unwrap();
    let mut events = events.to_vec();
    events.sort();
    let mut stream = Vec::new();
    for HostEvent { truth, id, fields } in events {
        stream.push(id);
        stream.extend(clock(truth).to_le_bytes());
        stream.extend(fields);
    }
    fs::write(folder.join("channel0_0"), stream).unwrap();
}
