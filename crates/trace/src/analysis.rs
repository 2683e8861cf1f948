//! The contract between what was traced and what is computed from it.

use hodo_clock::Nanos;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::Table;

/// A function of some module: which one is known to the symbol tables of the experiment.
///
/// Identifiers depend only on the input, not on the order of decoding, so they may travel between
/// threads, processes and machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FunctionId {
    /// Index of the module in the experiment.
    pub module: u32,
    /// Index of the function in the module, in order of address.
    pub index: u32,
}

/// Which part of a function an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Place {
    /// The function's first instruction.
    Entry,
    /// Another of its instructions.
    Middle,
    /// Some instruction of code whose functions are not known.
    Unknown,
}

/// Where execution arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The address of the instruction.
    pub address: u64,
    /// Its function.
    pub function: FunctionId,
    /// Where in the function that is.
    pub place: Place,
}

/// Something that a chunk of a control-flow stream shows, in the order of execution.
///
/// Addresses are virtual addresses of the traced program.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// Straight-line code of one function ran.
    Run {
        /// Its first instruction.
        at: Arrival,
        /// How many instructions.
        instructions: u64,
    },
    /// The last instruction was a near call, which will return to this address.
    Call {
        /// The address after the call.
        return_address: u64,
    },
    /// The last instruction was a near return.
    Return,
    /// The last instruction was a near jump through a register or memory.
    IndirectJump,
    /// The thread left what is traced (a system call, an interrupt, the end of a filter's range).
    Leave,
    /// The thread came back to what is traced.
    Enter,
    /// A segment begins, with the clock as it stands there, where known; segments know nothing of each
    /// other's clocks. Each chunk begins with one.
    Begin(Option<Nanos>),
    /// The clock: all that was seen since the last time ran until this one.
    Time(Nanos),
    /// The segment ends; what follows begins with [`Seen::Begin`].
    End,
    /// Flow is missing here: nothing is known of the call stack any more.
    Gap,
}

/// Names of functions, for tables.
pub trait Names: Sync {
    /// The function's name for people, and its module's.
    fn names(&self, function: FunctionId) -> (String, String);
}

/// A computation over the control flow of threads, cut anywhere.
///
/// The law: for every way to cut a stream into chunks and to group the merges, the result is exactly
/// that of one chunk. So `merge` is associative, and [`Analysis::unknown`] followed by `fold` of the
/// whole equals any merge of the parts.
pub trait Analysis: Sync {
    /// What is known after some chunks; travels between threads, processes and machines.
    type Partial: Send + Serialize + DeserializeOwned;

    /// The state at the start of a chunk, where nothing is known of what came before.
    fn unknown(&self) -> Self::Partial;

    /// Adds one thing seen to the state.
    fn fold(&self, partial: &mut Self::Partial, seen: Seen);

    /// Joins the states of two neighbouring spans of one thread; `earlier` ends where `later` begins.
    fn merge(&self, earlier: Self::Partial, later: Self::Partial) -> Self::Partial;

    /// The result of whole threads: one state for each, in the order of the recording.
    fn finish(&self, threads: Vec<Self::Partial>) -> Table;
}
