//! The modules of an experiment.

use hodo_model::FunctionId;

use crate::module::{Function, Module};

/// All modules of an experiment; resolves [`FunctionId`]s.
///
/// Module 0 is `[unknown]`: code without a known mapping.
#[derive(Debug)]
pub struct Symbols {
    modules: Vec<Module>,
}

impl Default for Symbols {
    fn default() -> Symbols {
        Symbols { modules: vec![Module::without_file("[unknown]", &[])] }
    }
}

impl Symbols {
    /// The function for code without a known mapping.
    pub const UNKNOWN: FunctionId = FunctionId { module: 0, index: 0 };

    /// Adds a module and returns its index.
    pub fn add(&mut self, module: Module) -> u32 {
        let index = self.modules.len();
        self.modules.push(module);
        u32::try_from(index).expect("less than 2^32 modules")
    }

    /// All modules, by index.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The function at an address of a module's file (see [`Module::address`]).
    pub fn function_at(&self, module: u32, address: u64) -> FunctionId {
        match self.modules.get(module as usize) {
            Some(functions) => FunctionId { module, index: functions.function_at(address) },
            None => Symbols::UNKNOWN,
        }
    }

    /// The function with this identifier; `[unknown]` if there is no such module.
    pub fn function(&self, id: FunctionId) -> Function<'_> {
        match self.modules.get(id.module as usize) {
            Some(module) => module.function(id.index),
            None => self.modules[0].function(0),
        }
    }
}
