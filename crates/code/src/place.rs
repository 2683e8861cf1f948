//! Where in the functions of the traced program control is.

/// A function of a module, resolved by the symbol tables of the experiment.
///
/// Identifiers depend only on the input, not on the order of decoding, so they are valid across threads, processes
/// and machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FunctionId {
    /// Index of the module in the experiment.
    pub module: u32,
    /// Index of the function in the module, in order of address.
    pub index: u32,
}

/// The kind of address within a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Place {
    /// The function's first instruction.
    Entry,
    /// Another instruction of the function.
    Middle,
    /// An instruction in code without function symbols.
    #[default]
    Unknown,
}

/// A point where execution arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Arrival {
    /// The address of the instruction.
    pub address: u64,
    /// Its function.
    pub function: FunctionId,
    /// The kind of address within the function.
    pub place: Place,
}
