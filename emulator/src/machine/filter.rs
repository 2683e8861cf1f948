//! What is recorded of the selected privilege levels: parts of the code, and the address space of a process.
//!
//! ```text
//! Settings, kernel's symbols ──► Scope: addresses, parts of files, address spaces     shared by all vCPUs
//!                                  └──► Filter: addresses, in the context?            of a vCPU's present address space
//! ```
//!
//! This is FilterEn and ContextEn of Intel PT (SDM, "Filtering by IP" and "Filtering by CR3").

use std::{ops::Range, path::Path};

use super::{
    code::CR3_PAGE,
    places::Places,
    processes::Processes,
    settings::{KernelEnd, Part, Settings},
    symbols::Symbols,
};

/// What is recorded.
pub(crate) struct Scope {
    /// Whether only some addresses are recorded.
    by_address: bool,
    /// Recorded addresses that belong to no file.
    pub(crate) addresses: Vec<Range<u64>>,
    pub(crate) places: Places,
    pub(crate) processes: Option<Processes>,
}

/// Why a scope can't be made.
pub(crate) enum Refusal {
    /// The kernel has no function with this name.
    NoFunction(String),
    Other(String),
}

/// The error of [`Symbols`] is the name of the function that it lacks.
impl From<String> for Refusal {
    fn from(name: String) -> Refusal {
        Refusal::NoFunction(name)
    }
}

impl Scope {
    /// The scope of a recording; `None` if it is everything.
    pub(crate) fn new(settings: &Settings, symbols: &Symbols) -> Result<Option<Scope>, Refusal> {
        if settings.filter.is_empty() && settings.process.is_none() {
            return Ok(None);
        }
        let mut addresses = Vec::new();
        for part in &settings.filter {
            match part {
                Part::Addresses(range) => addresses.push(range.clone()),
                Part::Kernel { first, end } => addresses.extend(of_kernel(symbols, first, end)?),
                Part::File { .. } => {}
            }
        }
        let files = settings.filter.iter().filter_map(|part| match part {
            Part::File { path, range } => Some((Path::new(path), range.clone())),
            _ => None,
        });
        let places = Places::new(files).map_err(|error| Refusal::Other(error.to_string()))?;
        let processes = settings.process.as_ref().map(|process| Processes::new(process, symbols));
        Ok(Some(Scope {
            by_address: !settings.filter.is_empty(),
            addresses,
            places,
            processes: processes.transpose()?,
        }))
    }

    fn version(&self) -> u64 {
        self.places.version() + self.processes.as_ref().map_or(0, Processes::version)
    }
}

/// The addresses of a part of the kernel.
fn of_kernel(symbols: &Symbols, first: &str, end: &KernelEnd) -> Result<Vec<Range<u64>>, String> {
    let functions = symbols.functions(first)?;
    let last = match end {
        KernelEnd::OfFirst => return Ok(functions),
        KernelEnd::After(size) => {
            return Ok(functions.iter().map(|one| one.start..one.start.saturating_add(*size)).collect());
        }
        KernelEnd::Of(last) => symbols.functions(last)?,
    };
    // Each function with the nearest end after it.
    let to = |from: &Range<u64>| {
        last.iter().filter(|last| last.start >= from.start).min_by_key(|last| last.end).map(|last| last.end)
    };
    Ok(functions.iter().filter_map(|from| Some(from.start..to(from)?)).collect())
}

/// The filter of a vCPU.
pub(crate) struct Filter {
    scope: &'static Scope,
    version: u64,
    /// The recorded addresses of the present address space.
    ranges: Vec<Range<u64>>,
    /// Whether the present address space is recorded (ContextEn, but for the privilege level).
    in_context: bool,
}

impl Filter {
    pub(crate) fn new(scope: &'static Scope, cr3: u64) -> Filter {
        let mut filter = Filter { scope, version: 0, ranges: Vec::new(), in_context: false };
        filter.set_space(cr3);
        filter
    }

    /// The vCPU changes to another address space.
    pub(crate) fn set_space(&mut self, cr3: u64) {
        self.version = self.scope.version();
        let space = cr3 & CR3_PAGE;
        self.ranges.clone_from(&self.scope.addresses);
        self.ranges.extend(self.scope.places.of_space(space).into_iter().map(|(_, range)| range));
        self.in_context = self.scope.processes.as_ref().is_none_or(|processes| processes.records(space));
    }

    /// Follows what was found out since.
    #[inline(always)]
    pub(crate) fn refresh(&mut self, cr3: u64) {
        if self.version != self.scope.version() {
            self.set_space(cr3);
        }
    }

    #[inline(always)]
    pub(crate) fn is_in_context(&self) -> bool {
        self.in_context
    }

    /// Whether the instruction at an address is recorded.
    #[inline(always)]
    pub(crate) fn holds(&self, address: u64) -> bool {
        self.in_context
            && (!self.scope.by_address || self.ranges.iter().any(|range| range.contains(&address)))
    }

    /// Whether a recorded range begins or ends between the instructions at `first` and `last`.
    #[inline(always)]
    pub(crate) fn divides(&self, first: u64, last: u64) -> bool {
        let within = |address: u64| first < address && address <= last;
        self.ranges.iter().any(|range| within(range.start) || within(range.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_kernel_ends_as_asked() {
        let lines: String = [(0x1000, "one"), (0x1040, "two"), (0x1080, "three"), (0x10c0, "one")]
            .iter()
            .map(|(address, name)| format!("{address:016x} T {name}\n"))
            .collect();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(super::super::spool::SYMBOLS), lines).unwrap();
        let symbols = Symbols::load(folder.path()).unwrap();
        let part = |first, end| {
            let ranges = of_kernel(&symbols, first, &end)?;
            Ok::<Vec<_>, String>(ranges.into_iter().map(|range| (range.start, range.end)).collect())
        };
        assert_eq!(part("one", KernelEnd::OfFirst).unwrap(), [(0x1000, 0x1040), (0x10c0, 0x10c1)]);
        assert_eq!(part("two", KernelEnd::After(8)).unwrap(), [(0x1040, 0x1048)]);
        assert_eq!(part("two", KernelEnd::Of("three".to_owned())).unwrap(), [(0x1040, 0x10c0)]);
        // Nothing lies between a function and an end before it.
        assert!(part("three", KernelEnd::Of("two".to_owned())).unwrap().is_empty());
        assert_eq!(part("two", KernelEnd::Of("four".to_owned())).unwrap_err(), "four");
    }
}
