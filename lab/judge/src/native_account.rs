//! Compares what a native recording says of each function with what the emulated processor says.
//!
//! The two run the same program on other systems: there is no vDSO in the emulator, `/proc/self/maps` and the auxiliary vector
//! differ, and memory lies elsewhere. The C library's, the compiler's and the loader's functions depend on that, and functions
//! that differ between native recordings too, as the system chooses addresses anew (hashes of addresses, for example). For all
//! others, calls and instructions must be the same; how many instructions these are is shown, and how many the rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{Outcome, command};

/// Files whose functions depend on the system. Natively, the code that is in no file is the vDSO.
const OF_SYSTEM: [&str; 5] =
    ["ld-linux-x86-64.so.2", "libc.so.6", "libgcc_s.so.1", "libstdc++.so.6.0.30", "[generated code]"];

/// Functions of Python that differ too: two ask the system for the size of a signal's stack; why `PyUnicode_FromWideChar` has
/// five instructions fewer in the emulator is not known.
const DEPENDENT: [&str; 3] = ["_PyFaulthandler_Init", "sysconf@plt", "PyUnicode_FromWideChar"];

/// What a function did.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Share {
    calls: u64,
    /// Without those of the functions that it calls.
    instructions: u64,
}

/// A function of a file.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    module: String,
    name: String,
}

struct Difference {
    /// Its name and file.
    function: String,
    native: Share,
    emulated: Share,
}

/// The comparison of a program's functions.
#[derive(Default)]
pub(super) struct Account {
    /// Instructions of functions that are the same.
    equal: u64,
    /// Instructions of functions that depend on the system, and differ.
    dependent: u64,
    /// Other functions.
    different: Vec<Difference>,
}

impl Account {
    /// The functions that differ.
    pub(super) fn differences(&self) -> impl Iterator<Item = String> {
        self.different.iter().map(|Difference { function, native, emulated }| {
            format!(
                "{function}: calls and instructions ({}, {}) natively, ({}, {}) emulated",
                native.calls, native.instructions, emulated.calls, emulated.instructions
            )
        })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, not {}", self.equal, self.dependent)
    }
}

/// Compares native recordings of a program with an emulated one.
pub(super) fn compare(native: &[PathBuf], emulated: &Path) -> Outcome<Account> {
    let native = native.iter().map(|path| functions(path)).collect::<Outcome<Vec<_>>>()?;
    let emulated = functions(emulated)?;
    let mut account = Account::default();
    let functions_of_any: BTreeSet<_> =
        native.iter().flat_map(BTreeMap::keys).chain(emulated.keys()).collect();
    for function in functions_of_any {
        let share = |functions: &BTreeMap<_, Share>| functions.get(function).copied().unwrap_or_default();
        let (first, emulated) = (share(&native[0]), share(&emulated));
        if first == emulated {
            account.equal += first.instructions;
        } else if OF_SYSTEM.contains(&&*function.module)
            || DEPENDENT.contains(&&*function.name)
            || native.iter().any(|other| share(other) != first)
        {
            account.dependent += first.instructions;
        } else {
            let function = format!("{} of {}", function.name, function.module);
            account.different.push(Difference { function, native: first, emulated });
        }
    }
    Ok(account)
}

/// What each function of a recording did.
fn functions(recording: &Path) -> Outcome<BTreeMap<Function, Share>> {
    let mut hodo = Command::new(command::hodo());
    hodo.args(["report", "functions", "-q", "--limit", "1000000", "--format", "json"]).arg(recording);
    let report: Value = serde_json::from_str(&command::capture(&mut hodo)?)?;
    let columns = report["columns"].as_array().ok_or("a table without columns")?;
    let column =
        |name: &str| columns.iter().position(|column| column["name"] == name).ok_or(format!("no {name}"));
    let (module, function) = (column("module")?, column("function")?);
    let (calls, instructions) = (column("calls")?, column("self_instructions")?);
    let mut functions = BTreeMap::new();
    for row in report["rows"].as_array().ok_or("a table without rows")? {
        let text = |column: usize| row[column].as_str().unwrap_or_default().to_owned();
        let number = |column: usize| row[column].as_u64().unwrap_or(0);
        let share = Share { calls: number(calls), instructions: number(instructions) };
        functions.insert(Function { module: text(module), name: text(function) }, share);
    }
    Ok(functions)
}
