//! Where the page of `hodo view` shows evidence: the end of its address.

use crate::{Evidence, PATTERNS, Row};

/// A table.
pub(crate) fn table(report: &str, view: &str) -> String {
    match view {
        "" => format!("#view=tables&report={report}"),
        view => format!("#view=tables&report={report}&by={view}"),
    }
}

/// The flame graph.
pub(crate) fn flame() -> String {
    "#view=flame".to_owned()
}

/// The comparison of two recordings.
pub(crate) fn diff() -> String {
    "#view=diff".to_owned()
}

/// All executions of a row's function.
pub(crate) fn executions(row: &Row<'_>) -> String {
    let name = super::rules::tails::qualified(row.text("function"), row.text("module"));
    format!("#view=latency&function={}", encoded(&name))
}

/// The slowest execution of a row's function on the timeline, with as much time around it; all executions if its time is
/// unknown.
pub(crate) fn slowest(evidence: &Evidence<'_>, row: &Row<'_>) -> String {
    let rows = evidence.rows(PATTERNS);
    let names = |row: &Row<'_>| ["function", "module"].map(|name| row.text(name).to_owned());
    let of = rows.iter().find(|own| names(own) == names(row) && own.knows("slowest_begin_ns"));
    let Some(of) = of else { return executions(row) };
    let [begin, end] = ["slowest_begin_ns", "slowest_end_ns"].map(|name| of.integer(name));
    let around = end.saturating_sub(begin).max(1);
    format!(
        "#view=timeline&t0={}&t1={}&c0={begin}&c1={end}",
        begin.saturating_sub(around),
        end.saturating_add(around)
    )
}

/// Encodes a text for the parameters of an address.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let letter = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded() {
        assert_eq!(encoded("f<a b>@x.so"), "f%3Ca%20b%3E%40x.so");
        assert_eq!(table("io", "file"), "#view=tables&report=io&by=file");
        assert_eq!(table("locks", ""), "#view=tables&report=locks");
    }
}
