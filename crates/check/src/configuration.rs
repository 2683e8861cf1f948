//! `hodo.toml`: which cases are measured, and how much each may grow.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::{Deserialize, Deserializer, de};

use crate::Quantity;

/// Executions of a case, unless it says otherwise.
const RUNS: u32 = 3;
/// The most executions of a case.
const MOST_RUNS: u32 = 1000;
/// The limit for instructions, unless the file says otherwise.
const INSTRUCTIONS: Limit = Limit::Share(0.01);

/// How much a count may grow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A share of the baseline: 0.01 for 1 %.
    Share(f64),
    /// A number.
    Count(u64),
}

impl Limit {
    /// The limit in text: `1%` or `12`.
    ///
    /// # Errors
    /// The text is neither; the sentence says what was expected.
    pub fn parse(text: &str) -> Result<Limit, String> {
        let wrong = || format!("`{text}` is no limit: expected a percentage such as \"1%\", or a number");
        match text.trim().strip_suffix('%') {
            Some(number) => {
                let percent: f64 = number.trim().parse().map_err(|_| wrong())?;
                (percent.is_finite() && percent >= 0.0)
                    .then_some(Limit::Share(percent / 100.0))
                    .ok_or_else(wrong)
            }
            None => text.trim().parse().map(Limit::Count).map_err(|_| wrong()),
        }
    }

    /// Whether growth by `growth` from `before` exceeds it.
    pub fn is_exceeded(self, before: u64, growth: u64) -> bool {
        match self {
            Limit::Share(share) => growth as f64 > share * before as f64,
            Limit::Count(count) => growth > count,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Rounded, so that 0.07 prints as 7 and not as 7.000000000000001.
            Limit::Share(share) => write!(f, "{} %", (share * 1e6).round() / 1e4),
            Limit::Count(count) => write!(f, "{count}"),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a percentage such as \"1%\", or a number")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(count) => Ok(Limit::Count(count)),
            Written::Text(text) => Limit::parse(&text).map_err(de::Error::custom),
        }
    }
}

/// A command: its words, or a line for the shell.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged, expecting = "expected a list of words, or a line for `sh -c`")]
pub enum Command {
    /// The program and its arguments.
    Words(Vec<String>),
    /// A line for `sh -c`.
    Line(String),
}

impl Command {
    /// The program and its arguments.
    pub fn words(&self) -> Vec<String> {
        match self {
            Command::Words(words) => words.clone(),
            Command::Line(line) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
        }
    }
}

/// A source of variance that is taken away before a case runs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Pin {
    /// Addresses: no randomisation of the address space.
    Addresses,
    /// Seeds of hash tables, as far as runtimes take them from the environment.
    HashSeeds,
    /// The locale and the time zone.
    Locale,
}

impl Pin {
    const ALL: [Pin; 3] = [Pin::Addresses, Pin::HashSeeds, Pin::Locale];

    /// The variables of the environment that it sets.
    pub const fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Pin::Addresses => &[],
            // Python, Perl.
            Pin::HashSeeds => &[("PYTHONHASHSEED", "0"), ("PERL_HASH_SEED", "0"), ("PERL_PERTURB_KEYS", "0")],
            Pin::Locale => &[("LC_ALL", "C.UTF-8"), ("TZ", "UTC")],
        }
    }
}

/// A command to measure.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name in the baseline and in reports.
    pub name: String,
    /// What runs.
    pub command: Command,
    /// Variables that are added to the environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The folder where it runs, from that of `hodo.toml`.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// Its standard input, from the folder of `hodo.toml`; empty if not given.
    #[serde(default)]
    pub input: Option<PathBuf>,
    /// How often it runs.
    #[serde(default = "runs")]
    pub runs: u32,
    /// Only the executions of this function are measured.
    #[serde(default)]
    pub function: Option<String>,
    /// What is made equal for all runs.
    #[serde(default = "pins")]
    pub pin: Vec<Pin>,
    /// The exit code that the command must have.
    #[serde(default)]
    pub exit_code: i32,
    /// Limits of the whole case, by quantity.
    #[serde(default)]
    pub limits: BTreeMap<String, Limit>,
    /// Limits of functions' own instructions, by name.
    #[serde(default)]
    pub functions: BTreeMap<String, Limit>,
}

fn runs() -> u32 {
    RUNS
}

fn pins() -> Vec<Pin> {
    Pin::ALL.to_vec()
}

/// The content of `hodo.toml`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// The baseline, from the folder of `hodo.toml`.
    #[serde(default = "baseline")]
    pub baseline: PathBuf,
    /// Limits of all cases, by quantity; those of a case come first.
    #[serde(default)]
    pub limits: BTreeMap<String, Limit>,
    /// The cases.
    #[serde(rename = "case", default)]
    pub cases: Vec<Case>,
}

fn baseline() -> PathBuf {
    PathBuf::from("hodo.baseline")
}

impl Configuration {
    /// Reads the file's text.
    ///
    /// # Errors
    /// A sentence with the line, and what was expected.
    pub fn parse(text: &str) -> Result<Configuration, String> {
        let configuration: Configuration =
            toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        configuration.check()?;
        Ok(configuration)
    }

    /// A case that the command line names, with all defaults.
    pub fn of_command(words: Vec<String>) -> Configuration {
        let name = words.join(" ");
        Configuration {
            baseline: baseline(),
            limits: BTreeMap::new(),
            cases: vec![Case {
                name,
                command: Command::Words(words),
                environment: BTreeMap::new(),
                folder: None,
                input: None,
                runs: RUNS,
                function: None,
                pin: pins(),
                exit_code: 0,
                limits: BTreeMap::new(),
                functions: BTreeMap::new(),
            }],
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.cases.is_empty() {
            return Err("there is no [[case]]; each has a name and a command".to_owned());
        }
        let quantities = self.cases.iter().flat_map(|case| case.limits.keys()).chain(self.limits.keys());
        for name in quantities {
            if Quantity::named(name).is_none() {
                let known = Quantity::ALL.map(Quantity::name).join(", ");
                return Err(format!("limits: `{name}` is no quantity; they are {known}"));
            }
        }
        for (index, case) in self.cases.iter().enumerate() {
            let wrong = |what: String| Err(format!("case `{}`: {what}", case.name));
            if case.name.is_empty() || case.name.contains(char::is_control) {
                return wrong("its name must be text on one line".to_owned());
            }
            if case.command.words().first().is_none_or(String::is_empty) {
                return wrong("its command is empty".to_owned());
            }
            if !(1..=MOST_RUNS).contains(&case.runs) {
                return wrong(format!("runs = {}: expected 1 to {MOST_RUNS}", case.runs));
            }
            if self.cases[..index].iter().any(|earlier| earlier.name == case.name) {
                return wrong("two cases have this name".to_owned());
            }
        }
        Ok(())
    }

    /// Whether a quantity of a case is counted.
    pub fn is_counted(&self, case: &Case, quantity: Quantity) -> bool {
        !quantity.is_costly() || self.limit(case, quantity).is_some()
    }

    /// The limit of a quantity of a case.
    pub fn limit(&self, case: &Case, quantity: Quantity) -> Option<Limit> {
        let name = quantity.name();
        let usual = (quantity == Quantity::Instructions).then_some(INSTRUCTIONS);
        case.limits.get(name).or_else(|| self.limits.get(name)).copied().or(usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
        limits = { calls = "2%" }

        [[case]]
        name = "parse"
        command = ["./parser", "big.json"]
        environment = { LEVEL = "3" }
        folder = "tests"
        input = "tests/text"
        runs = 5
        function = "parse"
        pin = ["addresses"]
        exit_code = 1
        limits = { instructions = "0.5%", system-calls = 3 }
        functions = { "json::read" = "2%" }

        [[case]]
        name = "line"
        command = "cat x | wc"
    "#;

    #[test]
    fn every_setting_is_read() {
        let configuration = Configuration::parse(WHOLE).expect("a right file");
        let [parse, line] = configuration.cases.as_slice() else { panic!("two cases") };
        assert_eq!(configuration.limit(parse, Quantity::Instructions), Some(Limit::Share(0.005)));
        assert_eq!(configuration.limit(parse, Quantity::SystemCalls), Some(Limit::Count(3)));
        assert_eq!(configuration.limit(parse, Quantity::Calls), Some(Limit::Share(0.02)));
        assert_eq!(configuration.limit(parse, Quantity::Branches), None);
        let counted = |case, quantity| configuration.is_counted(case, quantity);
        assert!(counted(parse, Quantity::SystemCalls) && !counted(parse, Quantity::Branches));
        assert!(counted(line, Quantity::Allocations) && !counted(line, Quantity::SystemCalls));
        assert_eq!(configuration.limit(line, Quantity::Instructions), Some(INSTRUCTIONS));
        assert_eq!((parse.runs, parse.exit_code, parse.pin.as_slice()), (5, 1, &[Pin::Addresses][..]));
        assert_eq!(line.command.words(), ["sh", "-c", "cat x | wc"]);
        assert_eq!((line.runs, line.pin.as_slice()), (RUNS, &Pin::ALL[..]));
    }

    #[test]
    fn mistakes_are_named() {
        let case = "[[case]]\nname = \"a\"\ncommand = [\"true\"]\n";
        let mistakes = [
            ("", "no [[case]]"),
            ("[[case]]\nname = \"a\"\n", "command"),
            ("[[case]]\nname = \"a\"\ncommand = []\n", "command is empty"),
            ("[[case]]\nname = \"a\"\ncommand = 3\n", "a list of words"),
            (&format!("{case}runs = 0\n"), "expected 1 to 1000"),
            (&format!("{case}{case}"), "two cases"),
            (&format!("{case}limits = {{ speed = \"1%\" }}\n"), "`speed` is no quantity"),
            (&format!("{case}limits = {{ calls = \"fast\" }}\n"), "percentage"),
            (&format!("{case}colour = 3\n"), "colour"),
            (&format!("{case}pin = [\"time\"]\n"), "time"),
        ];
        for (text, expected) in mistakes {
            let error = Configuration::parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn limits_are_shares_or_numbers() {
        assert_eq!(Limit::parse("1.5%"), Ok(Limit::Share(0.015)));
        assert_eq!(Limit::parse("12"), Ok(Limit::Count(12)));
        assert_eq!(Limit::Share(0.07).to_string(), "7 %");
        assert!(Limit::parse("-1%").is_err() && Limit::parse("1.5").is_err() && Limit::parse("").is_err());
        assert!(Limit::Share(0.01).is_exceeded(1000, 11) && !Limit::Share(0.01).is_exceeded(1000, 10));
        assert!(Limit::Count(0).is_exceeded(5, 1) && !Limit::Count(0).is_exceeded(5, 0));
    }
}
