//! Cuts a trace at PSBs, as if the thread had been scheduled out at each.

use hodo_intel_pt::packet::{Decoder, Packet, find_psb};

/// The trace of a thread from one PSB to the next.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// The TSC of its PSB+.
    pub(crate) since: u64,
    /// The packets: tracing is enabled after PSB+ and disabled at the end.
    pub(crate) bytes: Vec<u8>,
}

/// TIP.PGD without an IP: tracing is disabled.
const DISABLED: u8 = 0x01;
/// First bytes of FUP and TIP.PGE with the whole IP.
const FUP: u8 = 0xdd;
const TIP_PGE: u8 = 0xd1;

/// Cuts a trace at its PSBs.
pub(crate) fn segments(trace: &[u8]) -> Vec<Segment> {
    let mut starts = Vec::new();
    let mut from = 0;
    while let Some(psb) = find_psb(&trace[from..]) {
        starts.push(from + psb);
        from += psb + 16;
    }
    let ends = starts.iter().skip(1).copied().chain([trace.len()]);
    let segments: Vec<Status> =
        starts.iter().zip(ends).map(|(&start, end)| status(&trace[start..end])).collect();
    let next = segments.iter().skip(1).map(|next| next.ip).chain([None]);
    segments.iter().zip(next).map(|(segment, next)| segment.closed(next)).collect()
}

/// A segment of the trace: the content of its PSB+, and the packets after it.
struct Status<'a> {
    since: u64,
    /// The IP if tracing is enabled.
    ip: Option<u64>,
    /// PSB+ without its FUP.
    status: Vec<u8>,
    rest: &'a [u8],
}

fn status(segment: &[u8]) -> Status<'_> {
    let mut packets = Decoder::new(segment, 0);
    let mut found = Status { since: 0, ip: None, status: Vec::new(), rest: &[] };
    loop {
        let start = packets.position();
        let packet = packets.next_packet().expect("a packet").expect("PSB+ has an end");
        let bytes = &segment[start..packets.position()];
        match packet {
            Packet::Fup(_) => {
                let mut ip = [0; 8];
                ip[..bytes.len() - 1].copy_from_slice(&bytes[1..]);
                let beyond = 64 - 8 * (bytes.len() as u32 - 1);
                // The IP of PSB+ has eight bytes, or six bytes to be sign-extended.
                assert!(beyond == 0 || beyond == 16, "PSB+ has an IP of {} bytes", bytes.len() - 1);
                found.ip = Some((i64::from_le_bytes(ip) << beyond >> beyond) as u64);
                continue;
            }
            Packet::Tsc(tsc) => found.since = tsc,
            _ => {}
        }
        found.status.extend(bytes);
        if matches!(packet, Packet::PsbEnd) {
            found.rest = &segment[packets.position()..];
            return found;
        }
    }
}

impl Status<'_> {
    /// The segment with packets that enable tracing and disable it at `next`, where the next one continues.
    fn closed(&self, next: Option<u64>) -> Segment {
        let at = |kind: u8, ip: u64| [&[kind][..], &ip.to_le_bytes()].concat();
        let on = self.ip.map(|ip| at(TIP_PGE, ip)).unwrap_or_default();
        let off = next.map(|ip| [&at(FUP, ip)[..], &[DISABLED]].concat()).unwrap_or_default();
        Segment { since: self.since, bytes: [&self.status, &on, self.rest, &off].concat() }
    }
}
