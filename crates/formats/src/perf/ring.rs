//! Records of a kernel ring buffer, without a file around them.

use hodo_clock::Nanos;

use super::{
    events::{Attr, Events},
    layout::{attr_flag, sample},
    records::{Record, Records},
    sideband::{self, Known},
};
use crate::{
    Error,
    recording::{Sideband, Thread},
};

/// The required `perf_event_attr.sample_type` of the records' event, with `sample_id_all`.
pub const SAMPLE_TYPE: u64 = sample::TID | sample::TIME | sample::CPU | sample::IDENTIFIER;

/// A record.
#[derive(Clone, Debug)]
pub struct RingRecord<'a> {
    /// The type; see [`super::layout::record`].
    pub kind: u32,
    /// The header's `misc` bits.
    pub misc: u16,
    /// The bytes between header and trailer.
    pub body: &'a [u8],
    /// The running thread, from the trailer.
    pub thread: Thread,
    /// The timestamp.
    pub time: Option<Nanos>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// The sideband record, if it is one.
    pub sideband: Option<Sideband<'a>>,
}

/// Reads the records of a ring.
///
/// # Errors
/// The first unreadable record, at its offset in `bytes`.
pub fn ring_records(bytes: &[u8]) -> Result<Vec<RingRecord<'_>>, Error> {
    let flags = attr_flag::SAMPLE_ID_ALL;
    let events = Events::new(vec![Attr { sample_type: SAMPLE_TYPE, flags, ..Attr::default() }]);
    let guests = Default::default();
    let known = Known { events: &events, guests: &guests };
    let records = Records::new(bytes, 0..bytes.len() as u64, Vec::new());
    records.map(|record| split(&record?, &events, &known)).collect()
}

fn split<'a>(record: &Record<'a>, events: &Events, known: &Known<'_>) -> Result<RingRecord<'a>, Error> {
    let cut = |eof| Error::cut_short("record", eof);
    let (mut body, sample) = events.split(record).map_err(cut)?;
    let own = body.clone().rest();
    let sideband = sideband::read(record, &mut body, sample, known).map_err(cut)?;
    Ok(RingRecord {
        kind: record.kind,
        misc: record.misc,
        body: own,
        thread: sample.thread.unwrap_or(Thread { pid: 0, tid: 0 }),
        time: sample.time,
        cpu: sample.cpu,
        sideband,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::SidebandKind;

    #[test]
    fn records_are_split_from_their_trailers() {
        // SWITCH_CPU_WIDE, out: next_prev_pid 7, next_prev_tid 8; trailer of thread 5/6, time 9, CPU 1.
        let words: [u32; 12] = [15, 48 << 16 | 1 << 13, 7, 8, 5, 6, 9, 0, 1, 0, 3, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let records = ring_records(&bytes).unwrap();
        let [record] = &records[..] else { panic!("{records:?}") };
        assert_eq!((record.body.len(), record.cpu, record.time), (8, Some(1), Some(Nanos(9))));
        let next = Some(Thread { pid: 7, tid: 8 });
        let sideband = record.sideband.as_ref().map(|sideband| (sideband.thread, sideband.kind.clone()));
        let expected = SidebandKind::SwitchOut { preempted: false, next };
        assert_eq!(sideband, Some((Thread { pid: 5, tid: 6 }, expected)));
        assert!(ring_records(&bytes[..40]).is_err());
    }
}
