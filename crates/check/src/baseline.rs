//! The file of counts that later executions are compared with. It is text that lies beside the source, so it has a line for each
//! count, in an order that does not depend on the counts.
//!
//! ```text
//! hodo baseline 1
//! case parse
//! runs 3
//! total instructions 17712192
//! total calls 120334~120338~120340
//! function 1200 30000 12 parse_value<TAB>program
//! caller 12 parse_array<TAB>program
//! ```
//!
//! `function` has a function's own instructions, those with its callees', and its calls; `caller` is one of the last function's
//! callers. A count that executions differ in has its least value, its median and its greatest value.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use crate::{FunctionName, Measured, Quantity, Spread};

const FIRST_LINE: &str = "hodo baseline 1";
/// A function is kept if it and its callees execute at least this part of all instructions: one in ten thousand.
const KEPT_SHARE: u64 = 10_000;
/// The callers that are kept of a function: those that called it most.
const KEPT_CALLERS: usize = 12;

/// What executions of a function cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSpread {
    /// Its own instructions.
    pub own: Spread,
    /// Its instructions with those of all that it called.
    pub total: Spread,
    /// How often it was called.
    pub calls: Spread,
    /// How often its callers called it.
    pub callers: BTreeMap<FunctionName, Spread>,
}

/// The counts of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaseCounts {
    /// How often it ran.
    pub runs: u32,
    /// The sums.
    pub totals: BTreeMap<Quantity, Spread>,
    /// By function; those with next to no instructions are left out.
    pub functions: BTreeMap<FunctionName, FunctionSpread>,
}

impl CaseCounts {
    /// The counts of equal executions. Functions named in `kept` are never left out.
    pub fn of(executions: &[Measured], kept: &BTreeSet<&str>) -> CaseCounts {
        let totals = Quantity::ALL
            .into_iter()
            .filter(|quantity| executions.iter().any(|execution| execution.totals.contains_key(quantity)));
        let total = |quantity: Quantity| {
            Spread::of(
                executions.iter().map(|execution| execution.totals.get(&quantity).copied().unwrap_or(0)),
            )
        };
        let totals: BTreeMap<Quantity, Spread> = totals.map(|quantity| (quantity, total(quantity))).collect();
        let instructions = totals.get(&Quantity::Instructions).map_or(0, |spread| spread.high);
        let names: BTreeSet<&FunctionName> =
            executions.iter().flat_map(|execution| execution.functions.keys()).collect();
        let mut functions = BTreeMap::new();
        for name in names {
            let spread = function_spread(executions, name);
            let is_large = spread.total.high.saturating_mul(KEPT_SHARE) >= instructions;
            if is_large || kept.contains(name.function.as_str()) {
                functions.insert(name.clone(), spread);
            }
        }
        CaseCounts { runs: executions.len() as u32, totals, functions }
    }

    fn write(&self, name: &str, text: &mut String) {
        let mut line = |line: String| {
            text.push_str(&line);
            text.push('\n');
        };
        line(format!("case {name}"));
        line(format!("runs {}", self.runs));
        for (quantity, spread) in &self.totals {
            line(format!("total {} {spread}", quantity.name()));
        }
        for (name, function) in &self.functions {
            let FunctionSpread { own, total, calls, callers } = function;
            line(format!("function {own} {total} {calls} {}", written(name)));
            for (caller, calls) in callers {
                line(format!("caller {calls} {}", written(caller)));
            }
        }
    }
}

fn function_spread(executions: &[Measured], name: &FunctionName) -> FunctionSpread {
    let costs: Vec<_> = executions.iter().map(|execution| execution.functions.get(name)).collect();
    let spread = |count: &dyn Fn(&crate::measured::FunctionCost) -> u64| {
        Spread::of(costs.iter().map(|cost| cost.map_or(0, count)))
    };
    let callers: BTreeSet<&FunctionName> =
        costs.iter().flatten().flat_map(|cost| cost.callers.keys()).collect();
    let calls_by = |caller: &FunctionName| spread(&|cost| cost.callers.get(caller).copied().unwrap_or(0));
    let mut callers: Vec<(&FunctionName, Spread)> =
        callers.into_iter().map(|caller| (caller, calls_by(caller))).collect();
    callers.sort_by_key(|(name, calls)| (std::cmp::Reverse(calls.middle), *name));
    callers.truncate(KEPT_CALLERS);
    FunctionSpread {
        own: spread(&|cost| cost.own),
        total: spread(&|cost| cost.total),
        calls: spread(&|cost| cost.calls),
        callers: callers.into_iter().map(|(name, calls)| (name.clone(), calls)).collect(),
    }
}

/// A function's name in a line: control characters would end it.
fn written(name: &FunctionName) -> String {
    let plain = |text: &str| text.replace(char::is_control, "?");
    format!("{}\t{}", plain(&name.function), plain(&name.module))
}

/// The counts of all cases, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// The cases.
    pub cases: BTreeMap<String, CaseCounts>,
}

impl Baseline {
    /// The file's text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        _ = writeln!(text, "{FIRST_LINE}");
        for (name, counts) in &self.cases {
            counts.write(name, &mut text);
        }
        text
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// A sentence with the number of the line, and what was expected.
    pub fn parse(text: &str) -> Result<Baseline, String> {
        let mut lines = (1..).zip(text.lines());
        if lines.next().is_none_or(|(_, first)| first != FIRST_LINE) {
            return Err(format!("line 1: expected `{FIRST_LINE}`; `hodo check --save` writes the file anew"));
        }
        let mut baseline = Baseline::default();
        let mut reader = Reader::default();
        for (number, line) in lines {
            reader.read(line, &mut baseline).map_err(|expected| {
                format!("line {number}: expected {expected}; `hodo check --save` writes the file anew")
            })?;
        }
        Ok(baseline)
    }
}

/// Where the next line belongs.
#[derive(Default)]
struct Reader {
    case: Option<String>,
    function: Option<FunctionName>,
}

impl Reader {
    fn read(&mut self, line: &str, baseline: &mut Baseline) -> Result<(), &'static str> {
        let (key, rest) = line.split_once(' ').ok_or("a word and its value")?;
        if key == "case" {
            baseline.cases.insert(rest.to_owned(), CaseCounts::default());
            *self = Reader { case: Some(rest.to_owned()), function: None };
            return Ok(());
        }
        let case = self.case.as_ref().and_then(|name| baseline.cases.get_mut(name));
        let case = case.ok_or("`case NAME`")?;
        match key {
            "runs" => case.runs = rest.parse().map_err(|_| "a number of runs")?,
            "total" => {
                let (name, spread) = rest.split_once(' ').ok_or("a quantity and its count")?;
                let quantity = Quantity::named(name).ok_or("a known quantity")?;
                case.totals.insert(quantity, Spread::parse(spread).ok_or("a count")?);
            }
            "function" => {
                let mut words = rest.splitn(4, ' ');
                let mut count = || words.next().and_then(Spread::parse).ok_or("three counts");
                let (own, total, calls) = (count()?, count()?, count()?);
                let name = function_name(words.next())?;
                let function = FunctionSpread { own, total, calls, callers: BTreeMap::new() };
                case.functions.insert(name.clone(), function);
                self.function = Some(name);
            }
            "caller" => {
                let (calls, name) = rest.split_once(' ').ok_or("a count and a function")?;
                let calls = Spread::parse(calls).ok_or("a count")?;
                let function = self.function.as_ref().and_then(|name| case.functions.get_mut(name));
                let function = function.ok_or("`function` before its callers")?;
                function.callers.insert(function_name(Some(name))?, calls);
            }
            _ => return Err("case, runs, total, function or caller"),
        }
        Ok(())
    }
}

fn function_name(text: Option<&str>) -> Result<FunctionName, &'static str> {
    let (function, module) = text.and_then(|text| text.split_once('\t')).ok_or("a function and its file")?;
    Ok(FunctionName { function: function.to_owned(), module: module.to_owned() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::measured::FunctionCost;

    fn name() -> impl Strategy<Value = FunctionName> {
        ("[a-z:<>(), ~]{1,12}", "[a-z. ]{0,6}")
            .prop_map(|(function, module)| FunctionName { function, module })
    }

    fn cost() -> impl Strategy<Value = FunctionCost> {
        let callers = proptest::collection::btree_map(name(), 1..1000u64, 0..4);
        (0..1000u64, 0..1000u64, 0..1000u64, callers).prop_map(|(own, more, calls, callers)| FunctionCost {
            own,
            total: own + more,
            calls,
            callers,
        })
    }

    fn execution() -> impl Strategy<Value = Measured> {
        proptest::collection::btree_map(name(), cost(), 0..6).prop_map(|functions| {
            let instructions = functions.values().map(|cost| cost.own).sum();
            Measured { totals: BTreeMap::from([(Quantity::Instructions, instructions)]), functions }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            cases in proptest::collection::btree_map(
                "[a-z ]{1,8}", proptest::collection::vec(execution(), 1..4), 0..3)
        ) {
            let counts = |executions: &Vec<Measured>| CaseCounts::of(executions, &BTreeSet::new());
            let cases = cases.iter().map(|(name, executions)| (name.clone(), counts(executions))).collect();
            let baseline = Baseline { cases };
            prop_assert_eq!(Baseline::parse(&baseline.text()), Ok(baseline));
        }

        #[test]
        fn damaged_files_are_refused_or_read(text in "(case|runs|total|function|caller|[ a-z0-9~\t\n]){0,40}") {
            _ = Baseline::parse(&format!("{FIRST_LINE}\n{text}"));
        }
    }

    #[test]
    fn mistakes_have_their_line() {
        let wrong = [
            ("", "line 1: expected `hodo baseline 1`"),
            ("hodo baseline 1\nruns 3\n", "line 2: expected `case NAME`"),
            ("hodo baseline 1\ncase a\ntotal speed 3\n", "line 3: expected a known quantity"),
            ("hodo baseline 1\ncase a\nfunction 1 2 3\n", "line 3: expected a function and its file"),
            ("hodo baseline 1\ncase a\ncaller 1 f\tm\n", "line 3: expected `function` before its callers"),
        ];
        for (text, expected) in wrong {
            let error = Baseline::parse(text).expect_err(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn small_functions_are_kept_only_by_name() {
        let name = |function: &str| FunctionName { function: function.to_owned(), module: "m".to_owned() };
        let cost = |own| FunctionCost { own, total: own, calls: 1, callers: BTreeMap::new() };
        let functions = [("large", 1_000_000), ("small", 50), ("other", 50)];
        let functions = functions.map(|(function, own)| (name(function), cost(own)));
        let totals = BTreeMap::from([(Quantity::Instructions, 1_000_100)]);
        let execution = Measured { totals, functions: functions.into() };
        let counts = CaseCounts::of(&[execution], &BTreeSet::from(["small"]));
        let kept: Vec<&str> = counts.functions.keys().map(|name| name.function.as_str()).collect();
        assert_eq!(kept, ["large", "small"]);
    }
}
