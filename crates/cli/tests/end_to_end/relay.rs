//! Sessions of a relay daemon whose answers are valid but inconvenient. LTTng's own daemon is tested in `live.rs`.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use crate::{
    events::{METADATA, packet},
    run::hodo,
};

/// Stream ids.
const METADATA_STREAM: u64 = 1;
const DATA_STREAM: u64 = 2;
/// More requests than a viewer needs; then the daemon closes the connection.
const MOST_REQUESTS: u32 = 300;

/// Optional behaviour of a daemon.
#[derive(Clone, Copy, Default)]
struct Habits {
    /// Maximum number of bytes of a packet in an answer; the first answer has none.
    most: Option<usize>,
    /// Number of times the viewer must request new streams before there is a packet.
    streams_first: u32,
    /// Whether the first packet is already deleted.
    is_gone: bool,
}

/// A relay daemon with one session of one data stream, and the number of requests to it.
struct Relay {
    address: String,
    requests: Arc<AtomicU32>,
}

impl Relay {
    fn start(habits: Habits, packets: Vec<Vec<u8>>) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("net://127.0.0.1:{}/host/h/s", listener.local_addr().unwrap().port());
        let requests = Arc::new(AtomicU32::new(0));
        let relay = Relay { address, requests: Arc::clone(&requests) };
        thread::spawn(move || {
            let mut daemon = Daemon { habits, packets, next: 0, asked_for_streams: 0, sent: 0, requests };
            // Serves one viewer; later connections fail.
            let (viewer, _) = listener.accept().unwrap();
            drop(listener);
            let _ = daemon.serve(viewer);
        });
        relay
    }
}

struct Daemon {
    habits: Habits,
    packets: Vec<Vec<u8>>,
    /// The packet of the next index request.
    next: usize,
    asked_for_streams: u32,
    /// Number of answers with packet bytes or metadata.
    sent: u32,
    requests: Arc<AtomicU32>,
}

fn wide(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// Returns text in a field of `size` bytes.
fn text(text: &str, size: usize) -> Vec<u8> {
    let mut field = text.as_bytes().to_vec();
    field.resize(size, 0);
    field
}

impl Daemon {
    fn serve(&mut self, mut viewer: TcpStream) -> io::Result<()> {
        let mut has_metadata = false;
        while self.requests.fetch_add(1, Ordering::Relaxed) < MOST_REQUESTS {
            let mut head = [0; 16];
            viewer.read_exact(&mut head)?;
            let mut body = vec![0; head[7].into()];
            viewer.read_exact(&mut body)?;
            let answer = match head[11] {
                1 => [wide(&[1]), words(&[2, 4, 1])].concat(),
                2 => [words(&[1]), wide(&[9]), words(&[0, 0, 2]), text("h", 64), text("s", 255)].concat(),
                3 => {
                    let info = |id: u64, is_metadata: u32| {
                        [wide(&[id, 5]), words(&[is_metadata]), text("t", 4096), text("ch", 255)].concat()
                    };
                    [words(&[1, 2]), info(METADATA_STREAM, 1), info(DATA_STREAM, 0)].concat()
                }
                4 => self.next_index(),
                5 => self.packet(&body),
                6 if has_metadata => [wide(&[0]), words(&[2])].concat(),
                6 => {
                    has_metadata = true;
                    [&wide(&[METADATA.len() as u64])[..], &words(&[1]), METADATA.as_bytes()].concat()
                }
                7 => {
                    self.asked_for_streams += 1;
                    words(&[if self.next < self.packets.len() { 2 } else { 4 }, 0])
                }
                8 => words(&[1]),
                _ => return Ok(()),
            };
            viewer.write_all(&answer)?;
        }
        Ok(())
    }

    /// Returns the position of the next packet. Packets are contiguous.
    fn next_index(&mut self) -> Vec<u8> {
        let Some(packet) = self.packets.get(self.next) else {
            return [wide(&[0; 7]), words(&[3, 0])].concat();
        };
        let offset: usize = self.packets[..self.next].iter().map(Vec::len).sum();
        self.next += 1;
        let bits = packet.len() as u64 * 8;
        [wide(&[offset as u64, bits, bits, 10, 40, 0, 0]), words(&[1, 0])].concat()
    }

    fn packet(&mut self, body: &[u8]) -> Vec<u8> {
        /// Flag of answers: the session has new streams.
        const NEW_STREAMS: u32 = 2;
        if self.asked_for_streams < self.habits.streams_first {
            return words(&[3, 0, NEW_STREAMS]);
        }
        if self.habits.is_gone && self.next == 1 {
            return words(&[3, 0, 0]);
        }
        let offset = u64::from_be_bytes(body[8..16].try_into().unwrap()) as usize;
        let length = u32::from_be_bytes(body[16..20].try_into().unwrap()) as usize;
        let most = self.habits.most.map_or(length, |most| if self.sent == 0 { 0 } else { most });
        self.sent += 1;
        let all = self.packets.concat();
        let bytes = &all[offset..offset + length.min(most)];
        [&words(&[1, bytes.len() as u32, 0])[..], bytes].concat()
    }
}

fn packets() -> Vec<Vec<u8>> {
    let first = packet(0, 0, 10..40, 0, &[&[1, 10, 7, 0xab, b'h', b'i', 0], &[2, 30, 7, 2]]);
    vec![first, packet(0, 1, 50..60, 0, &[&[2, 55, 8, 1]])]
}

/// What a viewer does.
struct View {
    /// The names of the events that it prints.
    names: String,
    code: i32,
    messages: String,
    requests: u32,
}

fn view(habits: Habits) -> View {
    let relay = Relay::start(habits, packets());
    let ran = hodo(&["script", "--events", "--format", "jsonl", "-q", &relay.address]);
    let names = ran.stdout.lines().filter_map(|line| line.split("\"name\":\"").nth(1)?.split('"').next());
    let names = names.collect::<Vec<_>>().join(" ");
    let requests = relay.requests.load(Ordering::Relaxed);
    View { names, code: ran.code, messages: ran.stderr, requests }
}

#[test]
fn a_packet_may_come_in_pieces() {
    let whole = view(Habits::default());
    assert_eq!((whole.names.as_str(), whole.code), ("a:one b:two b:two", 0), "{}", whole.messages);
    let pieces = view(Habits { most: Some(7), ..Habits::default() });
    assert_eq!((pieces.names, pieces.code), (whole.names, 0), "{}", pieces.messages);
    let (more, fewer) = (pieces.requests, whole.requests);
    assert!(more > fewer && more < MOST_REQUESTS / 4, "{more} requests, {fewer} of whole packets");
}

#[test]
fn new_streams_are_asked_for_before_the_packet_that_waits_for_them() {
    let View { names, code, messages, requests } = view(Habits { streams_first: 4, ..Habits::default() });
    assert_eq!((names.as_str(), code), ("a:one b:two b:two", 0), "{messages}");
    assert!(requests < MOST_REQUESTS / 4, "{requests} requests");
}

#[test]
fn a_packet_that_the_daemon_has_no_more_is_a_loss() {
    let View { names, code, messages, .. } = view(Habits { is_gone: true, ..Habits::default() });
    assert_eq!((names.as_str(), code), ("b:two", 0), "{messages}");
    assert!(messages.contains("the relay daemon does not have this packet any more"), "{messages}");
}
