//! How long messages can be.

use super::{Branch, Form, Message, Resource, Synchronization};

/// The greatest widths of fields (`NTRACE_MAX_ICNT_BITS` and others of the specification's header file): a damaged message
/// must not be followed for hours.
const COUNT_BITS: u32 = 22;
const HISTORY_BITS: u32 = 32;
const REPEAT_BITS: u32 = 18;

/// The count of halfwords in a message.
pub(super) fn counted(message: &Message) -> u64 {
    match *message {
        Message::DirectBranch { count } | Message::Correlation { count, .. } => count,
        Message::IndirectBranch(branch) => branch.count,
        Message::Synchronization(synchronization) => synchronization.count,
        Message::ResourceFull(Resource::Count(count)) => count,
        _ => 0,
    }
}

/// The halfwords or branches that a message repeats; `last_count` are the halfwords of the last branch message.
pub(super) fn repeated(message: &Message, last_count: u64) -> u64 {
    match *message {
        Message::RepeatBranch { count } => count.saturating_mul(last_count.max(1)),
        Message::ResourceFull(Resource::Repeated { history, times }) => {
            times.saturating_mul(history.checked_ilog2().unwrap_or(0).into())
        }
        _ => 0,
    }
}

/// Whether a message has values that no encoder sends.
pub(super) fn is_too_long(message: &Message) -> bool {
    let (history, times) = match *message {
        Message::IndirectBranch(Branch { history, .. }) | Message::Correlation { history, .. } => {
            (history, 0)
        }
        Message::Synchronization(Synchronization { form: Form::Indirect { history, .. }, .. }) => {
            (history, 0)
        }
        Message::ResourceFull(Resource::History(history)) => (Some(history), 0),
        Message::ResourceFull(Resource::Repeated { history, times }) => (Some(history), times),
        Message::RepeatBranch { count } => (None, count),
        _ => (None, 0),
    };
    counted(message) >> COUNT_BITS != 0
        || history.is_some_and(|history| history >> HISTORY_BITS != 0)
        || times >> REPEAT_BITS != 0
}
