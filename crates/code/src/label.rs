//! What the caller knows of code: its module and function.

use crate::{FunctionId, Origin, Place};

/// Module, function and position of a block's code, as the caller knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Label {
    /// Index of the module, in the caller's list.
    pub module: u32,
    /// Index of the function in the module.
    pub function: u32,
    /// The place in the function at which the block begins.
    pub place: Place,
}

impl Label {
    /// Returns the function, without the place in it.
    pub(crate) fn function_id(&self) -> FunctionId {
        FunctionId { module: self.module, index: self.function }
    }
}

/// Maps code to its function.
pub trait Labels {
    /// Returns the label of the code at `origin`, and the number of bytes from there on that belong to the same
    /// function (at least 1). The function's entry may be the first of these bytes, but none of the others.
    fn label(&self, origin: Origin) -> (Label, u64);

    /// Returns whether a module is the file with this name.
    fn is_file(&self, _module: u32, _name: &str) -> bool {
        false
    }
}

/// No symbols: all code is one function.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLabels;

impl Labels for NoLabels {
    fn label(&self, _: Origin) -> (Label, u64) {
        (Label::default(), u64::MAX)
    }
}
