//! What is counted in an execution.

/// A count of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Instructions.
    Instructions,
    /// Calls of functions.
    Calls,
    /// Conditional branches.
    Branches,
    /// System calls.
    SystemCalls,
    /// Calls of the C library's allocating functions, which those of other languages call too.
    Allocations,
}

impl Quantity {
    /// All of them, in the order of reports.
    pub const ALL: [Quantity; 5] = [
        Quantity::Instructions,
        Quantity::Calls,
        Quantity::Branches,
        Quantity::SystemCalls,
        Quantity::Allocations,
    ];

    /// The name in `hodo.toml`, in baselines and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Quantity::Instructions => "instructions",
            Quantity::Calls => "calls",
            Quantity::Branches => "branches",
            Quantity::SystemCalls => "system-calls",
            Quantity::Allocations => "allocations",
        }
    }

    /// Whether it is counted only where it has a limit: a walk over every instruction takes many times as long as the
    /// program, while the others are sums of functions, whose paths are memoized.
    pub const fn is_costly(self) -> bool {
        matches!(self, Quantity::Branches | Quantity::SystemCalls)
    }

    /// The quantity with a name.
    pub fn named(name: &str) -> Option<Quantity> {
        Quantity::ALL.into_iter().find(|quantity| quantity.name() == name)
    }
}

/// The functions whose calls are allocations.
pub(crate) const ALLOCATING: [&str; 7] =
    ["malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc", "posix_memalign"];
