//! Names, source lines and code of modules, for the tables of analyses.

use hodo_code::{Isa, Origin};
use hodo_model::{FunctionId, FunctionRange, Names, SourceLine, Sources, Statement};

use crate::programs::modules::{Modules, base_name};

impl Names for Modules<'_> {
    fn names(&self, function: FunctionId) -> (String, String) {
        let found = self.symbols.function(function);
        let module = self.modules.get(function.module as usize).map_or("[unknown]", |module| &module.name);
        (found.name().into_owned(), base_name(module).to_owned())
    }
}

impl Sources for Modules<'_> {
    fn address(&self, module: u32, offset: u64) -> u64 {
        Modules::address(self, Origin { module, offset })
    }

    fn line(&self, module: u32, address: u64) -> Option<SourceLine<'_>> {
        self.rows(module)?.line_at(address)
    }

    fn inlined(&self, module: u32, addresses: &[u64]) -> Vec<Option<String>> {
        let Some(lines) = self.lines(module) else { return vec![None; addresses.len()] };
        let innermost = |&address: &u64| lines.frames_at(address).into_iter().next()?.function;
        addresses.iter().map(innermost).collect()
    }

    fn inlined_frames(&self, module: u32, addresses: &[u64], each: &mut dyn FnMut(usize, &[String])) {
        let Some(lines) = self.lines(module) else { return };
        for (index, &address) in addresses.iter().enumerate() {
            let frames = lines.frames_at(address).into_iter().filter(|frame| frame.inlined);
            let names: Vec<String> = frames.filter_map(|frame| frame.function).collect();
            if !names.is_empty() {
                each(index, &names);
            }
        }
    }

    fn modules(&self) -> u32 {
        self.modules.len() as u32
    }

    fn statements(&self, module: u32) -> Vec<Statement<'_>> {
        self.rows(module).map_or_else(Vec::new, |rows| rows.statements().collect())
    }

    fn functions(&self, module: u32) -> Vec<FunctionRange> {
        let Some(symbols) = self.symbols.modules().get(module as usize) else { return Vec::new() };
        let range = |index| {
            let function = symbols.function(index);
            let id = FunctionId { module, index };
            (!function.is_nameless()).then(|| FunctionRange {
                function: id,
                start: function.start(),
                end: function.end(),
            })
        };
        // Function 0 is the code of no function.
        (1..symbols.function_count()).filter_map(range).collect()
    }

    fn code(&self, function: &FunctionRange) -> (Isa, &[u8]) {
        let module = function.function.module;
        let offset =
            self.symbols.modules().get(module as usize).and_then(|module| module.offset(function.start));
        let bytes = self.modules.get(module as usize).map_or(&[][..], |module| module.bytes);
        let begin = offset.and_then(|offset| usize::try_from(offset).ok()).unwrap_or(usize::MAX);
        let size = usize::try_from(function.end.saturating_sub(function.start)).unwrap_or(0);
        let code = bytes.get(begin..).map_or(&[][..], |rest| &rest[..rest.len().min(size)]);
        (self.isa(module), code)
    }
}
