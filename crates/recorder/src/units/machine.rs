//! Makes the trace of a machine's processor, part by part: a machine's packets may not fit into memory.

use std::io::{self, Read, Write};

use hodo_emulator::Target;
use hodo_intel_pt::packet::PSB;

use super::{Clock, Encoded, Unit, arm, code::Code, riscv, walk::Walk};

/// Bytes of packets in memory, at least.
const PART: usize = 8 << 20;

/// A machine's processor.
#[derive(Clone, Copy)]
pub(crate) struct Ran<'r> {
    pub(crate) number: u32,
    /// The threads that it ran: since when, in nanoseconds, and their IDs.
    pub(crate) threads: &'r [(u64, u32)],
}

/// Encodes what a machine's processor ran, by its packets, and writes it. The bytes of the result are the last ones.
///
/// # Errors
/// `packets` can't be read, or `out` can't be written.
pub(crate) fn encode_processor(
    target: Target,
    cpu: Ran<'_>,
    packets: impl Read,
    code: &mut Code<'_>,
    clock: Clock<'_>,
    out: &mut impl Write,
) -> io::Result<Encoded> {
    match target {
        Target::Riscv64 => follow(Walk::new(code, riscv::Hart::new(None), 0, clock), packets, out),
        _ => follow(
            Walk::new(code, arm::Processor::of_machine(cpu.number, cpu.threads), 0, clock),
            packets,
            out,
        ),
    }
}

fn follow<U: Unit>(
    mut walk: Walk<'_, '_, U>,
    mut packets: impl Read,
    out: &mut impl Write,
) -> io::Result<Encoded> {
    let mut bytes = Vec::new();
    loop {
        let read = packets.by_ref().take(PART as u64).read_to_end(&mut bytes)?;
        // Each part but the first begins with a PSB.
        let end = match read {
            0 => bytes.len(),
            _ => last_synchronization(&bytes),
        };
        out.write_all(&walk.part(&bytes[..end]))?;
        bytes.drain(..end);
        if read == 0 {
            return Ok(walk.finish());
        }
    }
}

/// Where the last PSB begins; 0 if there is none.
fn last_synchronization(bytes: &[u8]) -> usize {
    memchr::memmem::rfind(bytes, &PSB).unwrap_or(0)
}
