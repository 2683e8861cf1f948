//! Cuts a trace at PSBs, as if the thread had been scheduled out at each.

use hodo_intel_pt::packet::{Decoder, PSB, Packet, find_psb};

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
        from += psb + PSB.len();
    }
    let ends = starts.iter().skip(1).copied().chain([trace.len()]);
    let segments: Vec<OpenSegment> =
        starts.iter().zip(ends).map(|(&start, end)| open_segment(&trace[start..end])).collect();
    let next_ips = segments.iter().skip(1).map(|next| next.ip).chain([None]);
    segments.iter().zip(next_ips).map(|(segment, next_ip)| segment.closed(next_ip)).collect()
}

/// A segment as the trace has it, without packets that enable and disable tracing.
struct OpenSegment<'a> {
    since: u64,
    /// The IP of its PSB+ if tracing is enabled there.
    ip: Option<u64>,
    /// PSB+ without its FUP.
    psb_plus: Vec<u8>,
    /// The packets after PSB+.
    rest: &'a [u8],
}

fn open_segment(segment: &[u8]) -> OpenSegment<'_> {
    let mut packets = Decoder::new(segment, 0);
    let mut open = OpenSegment { since: 0, ip: None, psb_plus: Vec::new(), rest: &[] };
    loop {
        let start = packets.position();
        let packet = packets.next_packet().expect("a packet").expect("PSB+ has an end");
        let bytes = &segment[start..packets.position()];
        match packet {
            Packet::Fup(_) => {
                let mut ip = [0; 8];
                ip[..bytes.len() - 1].copy_from_slice(&bytes[1..]);
                let missing_bits = 64 - 8 * (bytes.len() as u32 - 1);
                // The IP of PSB+ has eight bytes, or six bytes to be sign-extended.
                assert!([0, 16].contains(&missing_bits), "PSB+ has an IP of {} bytes", bytes.len() - 1);
                open.ip = Some((i64::from_le_bytes(ip) << missing_bits >> missing_bits) as u64);
                continue;
            }
            Packet::Tsc(tsc) => open.since = tsc,
            _ => {}
        }
        open.psb_plus.extend(bytes);
        if matches!(packet, Packet::PsbEnd) {
            open.rest = &segment[packets.position()..];
            return open;
        }
    }
}

impl OpenSegment<'_> {
    /// The segment with packets that enable tracing, and disable it at `next_ip`, where the next segment continues.
    fn closed(&self, next_ip: Option<u64>) -> Segment {
        let packet = |kind: u8, ip: u64| [&[kind][..], &ip.to_le_bytes()].concat();
        let enable = self.ip.map(|ip| packet(TIP_PGE, ip)).unwrap_or_default();
        let disable = next_ip.map(|ip| [&packet(FUP, ip)[..], &[DISABLED]].concat()).unwrap_or_default();
        Segment { since: self.since, bytes: [&self.psb_plus, &enable, self.rest, &disable].concat() }
    }
}
