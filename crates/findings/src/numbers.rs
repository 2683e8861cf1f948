//! The numbers of a sentence: as text for people, and by name for programs.

use hodo_model::Value;

use crate::text;

/// The numbers and names in a sentence, in order. Each method adds one, and returns its text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(Vec<(&'static str, Value)>);

impl Numbers {
    /// A count, such as `1,000`.
    pub(crate) fn count(&mut self, name: &'static str, count: u64) -> String {
        self.0.push((name, count.into()));
        text::count(count)
    }

    /// A count in words, such as `once`.
    pub(crate) fn times(&mut self, name: &'static str, calls: u64) -> String {
        self.0.push((name, calls.into()));
        text::times(calls)
    }

    /// A duration in nanoseconds, such as `34.1 s`.
    pub(crate) fn duration(&mut self, name: &'static str, nanoseconds: u64) -> String {
        self.0.push((name, nanoseconds.into()));
        text::duration(nanoseconds)
    }

    /// A share, such as `44 %`.
    pub(crate) fn percent(&mut self, name: &'static str, share: f64) -> String {
        self.0.push((name, share.into()));
        text::percent(share)
    }

    /// An amount per unit, such as `4.25`.
    pub(crate) fn rate(&mut self, name: &'static str, rate: f64) -> String {
        self.0.push((name, rate.into()));
        text::rate(rate)
    }

    /// A ratio with two decimals, such as `1.75`.
    pub(crate) fn ratio(&mut self, name: &'static str, ratio: f64) -> String {
        self.0.push((name, ratio.into()));
        format!("{ratio:.2}")
    }

    /// A function.
    pub(crate) fn function(&mut self, name: &'static str, function: &str) -> String {
        self.0.push((name, function.into()));
        text::name(function)
    }

    /// A text, such as that of a system call.
    pub(crate) fn text(&mut self, name: &'static str, text: &str) -> String {
        self.0.push((name, text.into()));
        text.to_owned()
    }

    /// A thread, such as `python3 (714)`: its name and its id.
    pub(crate) fn thread(&mut self, row: &crate::Row<'_>) -> String {
        self.0.push(("tid", row.integer("tid").into()));
        text::thread(row)
    }

    /// Returns all.
    pub(crate) fn list(self) -> Vec<(&'static str, Value)> {
        self.0
    }
}
