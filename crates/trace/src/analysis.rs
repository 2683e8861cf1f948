//! The contract between what was traced and what is computed from it.

use hodo_clock::Nanos;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Cause, Table};

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

/// Something that a chunk of a control-flow stream shows, in the order of execution.
///
/// Addresses are virtual addresses of the traced program.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// Instructions of one function ran one after the other, without a branch taken between them.
    Run {
        /// The function they belong to.
        function: FunctionId,
        /// How many.
        instructions: u64,
    },
    /// A call was taken.
    Call {
        /// The function that begins.
        callee: FunctionId,
        /// Where it will return to.
        return_address: u64,
    },
    /// A return was taken.
    Return {
        /// The address of the next instruction.
        to: u64,
        /// The function there.
        function: FunctionId,
        /// Whether that is the first instruction of `function`, which no caller returns to.
        at_entry: bool,
    },
    /// A jump went from one function to another.
    Jump {
        /// The function there.
        function: FunctionId,
        /// Whether it arrived at the first instruction of `function`.
        at_entry: bool,
        /// Whether the target was in a register or memory, as `longjmp` and unwinders jump.
        indirect: bool,
    },
    /// The clock: everything up to the next one happened not before this time.
    Time(Nanos),
    /// The thread left what is traced (a system call, an interrupt) at this point.
    Leave,
    /// The thread came back to traced code.
    Enter {
        /// The function there.
        function: FunctionId,
    },
    /// Flow is missing here: nothing is known of the call stack any more.
    Gap(Cause),
}

/// A computation over streams, cut anywhere.
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

    /// Joins the states of two neighbouring spans of one stream; `earlier` ends where `later` begins.
    fn merge(&self, earlier: Self::Partial, later: Self::Partial) -> Self::Partial;

    /// The result of whole streams: one state for each, in the order of the streams.
    fn finish(&self, streams: Vec<Self::Partial>) -> Table;
}
