//! Packets as text, with the architecture's names.

use std::fmt;

use super::{Address, Atoms, Context, Packet};

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Packet::Synchronization => f.write_str("A-SYNC"),
            Packet::TraceInfo(info) => {
                f.write_str("TRACE INFO")?;
                if info.cycle_counts {
                    write!(f, " cycles from {}", info.threshold)?;
                }
                if info.speculation > 0 { write!(f, " uncommitted {}", info.speculation) } else { Ok(()) }
            }
            Packet::TraceOn => f.write_str("TRACE ON"),
            Packet::Discard => f.write_str("DISCARD"),
            Packet::Overflow => f.write_str("OVERFLOW"),
            Packet::Timestamp { time, cycles } => {
                write!(f, "TIMESTAMP {time:x}")?;
                cycles.map_or(Ok(()), |cycles| write!(f, " cycles {cycles}"))
            }
            Packet::TimestampMarker => f.write_str("TIMESTAMP MARKER"),
            Packet::Exception(exception) => {
                let target = if exception.is_target { ", at the target of the branch before" } else { "" };
                write!(f, "EXCEPTION {:02x} ({}){target}", exception.kind, exception.name())
            }
            Packet::ExceptionReturn => f.write_str("EXCEPTION RETURN"),
            Packet::Cycles { commits, count } => {
                f.write_str("CYCLE COUNT ")?;
                match count {
                    Some(count) => write!(f, "{count}")?,
                    None => f.write_str("unknown")?,
                }
                if commits > 0 { write!(f, " commit {commits}") } else { Ok(()) }
            }
            Packet::Commit(count) => write!(f, "COMMIT {count}"),
            Packet::Cancel { atoms, count, mispredict } => {
                f.write_str("CANCEL")?;
                if atoms.count > 0 {
                    write!(f, " {atoms}")?;
                }
                write!(f, " {count}{}", if mispredict { " MISPREDICT" } else { "" })
            }
            Packet::Mispredict(atoms) if atoms.count == 0 => f.write_str("MISPREDICT"),
            Packet::Mispredict(atoms) => write!(f, "MISPREDICT {atoms}"),
            Packet::Atoms(atoms) => write!(f, "ATOM {atoms}"),
            Packet::Address(address) => write!(f, "ADDRESS {address}"),
            Packet::Context(context) => write!(f, "CONTEXT {context}"),
            Packet::AddressContext(address, context) => write!(f, "ADDRESS {address} CONTEXT {context}"),
            Packet::SourceAddress(address) => write!(f, "SOURCE ADDRESS {address}"),
            Packet::Q { count, address } => {
                f.write_str("Q")?;
                count.map_or(Ok(()), |count| write!(f, " {count}"))?;
                address.map_or(Ok(()), |address| write!(f, " ADDRESS {address}"))
            }
            Packet::Event(events) => write!(f, "EVENT {events:04b}"),
            Packet::Instrumentation { level, value } => write!(f, "INSTRUMENTATION EL{level} {value:x}"),
            Packet::Transaction { begins: true } => f.write_str("TRANSACTION START"),
            Packet::Transaction { begins: false } => f.write_str("TRANSACTION COMMIT"),
            Packet::Ignore => f.write_str("IGNORE"),
        }
    }
}

impl fmt::Display for Atoms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..self.count).try_for_each(|index| f.write_str(if self.bits >> index & 1 == 1 { "E" } else { "N" }))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}{}", self.value, if self.is_t32 { " T32" } else { "" })
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_same {
            return f.write_str("unchanged");
        }
        let state = if self.is_64 { "AArch64" } else { "AArch32" };
        let security = if self.is_non_secure { "non-secure" } else { "secure" };
        write!(f, "EL{} {state} {security}", self.level)?;
        self.virtual_context.map_or(Ok(()), |id| write!(f, " virtual {id:x}"))?;
        self.context_id.map_or(Ok(()), |id| write!(f, " ID {id:x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Exception, TraceInfo};

    #[test]
    fn packets_have_the_names_of_the_architecture() {
        let shown = [
            (
                Packet::TraceInfo(TraceInfo { cycle_counts: true, speculation: 2, threshold: 4 }),
                "TRACE INFO cycles from 4 uncommitted 2",
            ),
            (Packet::Atoms(Atoms { bits: 0b011, count: 3 }), "ATOM EEN"),
            (Packet::Address(Address { value: 0x1002, is_t32: true }), "ADDRESS 1002 T32"),
            (Packet::Cancel { atoms: Atoms::one(true), count: 3, mispredict: true }, "CANCEL E 3 MISPREDICT"),
            (
                Packet::Exception(Exception { kind: 0xe, is_target: false, is_m_profile: false }),
                "EXCEPTION 0e (IRQ)",
            ),
            (Packet::Cycles { commits: 1, count: None }, "CYCLE COUNT unknown commit 1"),
            (
                Packet::Context(Context {
                    level: 1,
                    is_64: true,
                    context_id: Some(0x2a),
                    ..Context::default()
                }),
                "CONTEXT EL1 AArch64 secure ID 2a",
            ),
        ];
        for (packet, text) in shown {
            assert_eq!(packet.to_string(), text);
        }
    }
}
