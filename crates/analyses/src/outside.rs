//! Code outside of the range of an address filter, which no trace shows: it calls functions in the range.

use hodo_model::{Arrival, FunctionId, Place};

use crate::stack::{Entry, Frame};

/// The caller of the functions in the range.
pub(crate) const OUTSIDE: Arrival =
    Arrival { address: 0, function: FunctionId { module: 0, index: 0 }, place: Place::Middle };

/// The return address of a call from there.
pub(crate) const UNKNOWN_RETURN: u64 = 0;

/// Returns the index of the newest frame that such code called. The oldest frame is none, as its entry is unknown.
pub(crate) fn called_from_outside<T, F>(stack: &[Frame<T, F>]) -> Option<usize> {
    stack.iter().rposition(|frame| frame.entry == Entry::Call && frame.return_address.is_none())
}
