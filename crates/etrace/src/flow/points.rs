//! Where a stream can be cut.

use crate::{
    Configuration,
    packet::{Options, Packet},
    transport::{Kind, Units},
};

/// A position at which decoding can begin: of a synchronization packet, or of the support packet before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynchronizationPoint {
    /// The position.
    pub at: usize,
    /// The options in force before it.
    pub options: Options,
}

/// Returns the synchronization points of a hart's stream, in order.
pub fn synchronization_points(stream: &[u8], configuration: &Configuration) -> Vec<SynchronizationPoint> {
    let mut units = Units::new(stream, 0, configuration.transport);
    let mut options = Options::default();
    let mut points = Vec::new();
    // The support packet directly before.
    let mut support_point = None;
    loop {
        let unit = match units.next_unit() {
            Ok(None) => return points,
            Ok(Some(unit)) => unit,
            Err(_) => {
                support_point = None;
                continue;
            }
        };
        let is_other = configuration.source.is_some_and(|source| source != unit.source);
        if unit.kind != Kind::Instruction || is_other {
            continue;
        }
        // Format and subformat: only those of format 3 matter, which are rare.
        let first = u16::from(unit.payload[0]) | u16::from(unit.payload.get(1).copied().unwrap_or(0)) << 8;
        let point = SynchronizationPoint { at: unit.at, options };
        match first >> unit.skip & 0b1111 {
            0b0011 => points.push(support_point.take().unwrap_or(point)),
            0b1111 => {
                support_point = Some(support_point.unwrap_or(point));
                let parameters = &configuration.parameters;
                if let Ok(Packet::Support(support)) =
                    Packet::decode_after(unit.payload, unit.skip, parameters, options)
                {
                    options = support.options;
                }
            }
            _ => support_point = None,
        }
    }
}
