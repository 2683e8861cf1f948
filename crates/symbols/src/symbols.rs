//! The modules of an experiment.

use hodo_model::FunctionId;

use crate::module::{Function, Module};

/// All modules of an experiment; where [`FunctionId`]s lead to.
///
/// Module 0 is `[unknown]`: code of which not even a mapping is known.
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
    /// Stands for code of which not even a mapping is known.
    pub const UNKNOWN: FunctionId = FunctionId { module: 0, index: 0 };

    /// Adds a module and tells its index.
    pub fn add(&mut self, module: Module) -> u32 {
        let index = self.modules.len();
        self.modules.push(module);
        u32::try_from(index).expect("less than 2^32 modules")
    }

    /// All modules, in the order of their indexes.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The function at an address of a module, which is the file's own (see [`Module::address`]).
    pub fn function_at(&self, module: u32, address: u64) -> FunctionId {
        match self.modules.get(module as usize) {
            Some(found) => FunctionId { module, index: found.function_at(address) },
            None => Symbols::UNKNOWN,
        }
    }

    /// The function behind an identifier; `[unknown]` where there is no such module.
    pub fn function(&self, id: FunctionId) -> Function<'_> {
        match self.modules.get(id.module as usize) {
            Some(module) => module.function(id.index),
            None => self.modules[0].function(0),
        }
    }
}
