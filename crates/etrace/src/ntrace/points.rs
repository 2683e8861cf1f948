//! Where a stream can be cut.

use super::{Configuration, Message, Messages};

/// Returns the positions of a hart's synchronization messages, at which decoding can begin.
pub fn synchronization_points(stream: &[u8], configuration: &Configuration) -> Vec<usize> {
    let mut messages = Messages::new(stream, 0, configuration.source_width);
    let mut points = Vec::new();
    loop {
        match messages.next_message() {
            Ok(None) => return points,
            Ok(Some(unit)) => {
                let is_ours = configuration.source.is_none_or(|source| source == unit.source);
                if is_ours && matches!(unit.message, Message::Synchronization(_)) {
                    points.push(unit.at);
                }
            }
            Err(_) => {}
        }
    }
}
