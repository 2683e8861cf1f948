//! Demangles symbol names.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// Limit on a demangled name in bytes. A few crafted bytes of a mangled name can expand to gigabytes; a longer name
/// stays mangled.
const LONGEST: usize = 16 << 10;

/// Demangles a symbol name of Rust (legacy without its hash, and v0) or C++ (Itanium ABI; with parameters, without
/// return type). Returns other names unchanged, and keeps a part after `@`, as in `foo@plt`.
///
/// ```
/// assert_eq!(hodo_symbols::demangle("_ZN3foo3barEi@plt"), "foo::bar(int)@plt");
/// ```
pub fn demangle(name: &str) -> Cow<'_, str> {
    let (symbol, suffix) = name.split_at(name.find('@').unwrap_or(name.len()));
    let mut out = Bounded(String::new());
    if rust(symbol, &mut out).or_else(|_| cpp(symbol, &mut out)).is_err() {
        return Cow::Borrowed(name);
    }
    Cow::Owned(out.0 + suffix)
}

fn rust(symbol: &str, out: &mut Bounded) -> fmt::Result {
    let demangled = rustc_demangle::try_demangle(symbol).map_err(|_| fmt::Error)?;
    write!(out, "{demangled:#}")
}

fn cpp(symbol: &str, out: &mut Bounded) -> fmt::Result {
    if !symbol.starts_with("_Z") {
        return Err(fmt::Error);
    }
    out.0.clear();
    let parsed = Symbol::new(symbol).map_err(|_| fmt::Error)?;
    parsed.structured_demangle(out, &DemangleOptions::new().no_return_type())
}

/// Text that refuses to grow beyond [`LONGEST`].
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn names_of_every_scheme() {
        let cases = [
            ("main", "main"),
            ("_ZN3foo3barEi", "foo::bar(int)"),
            ("_Z3maxIiET_S0_S0_", "max<int>(int, int)"),
            ("_ZN3foo3barEi.cold", "foo::bar(int) [clone .cold]"),
            ("_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int, std::allocator<int> >::push_back(int&&)"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
            ("malloc@plt", "malloc@plt"),
            ("_ZdlPv@plt", "operator delete(void*)@plt"),
            ("_Znonsense", "_Znonsense"),
            ("_ZN", "_ZN"),
            ("_R", "_R"),
            ("", ""),
        ];
        for (mangled, expected) in cases {
            assert_eq!(demangle(mangled), expected, "{mangled}");
        }
    }

    #[test]
    fn a_name_that_would_fill_memory_stays_mangled() {
        // Every parameter is a template that contains the previous one twice.
        let name = |parameters: &str| {
            let repeated = parameters.chars().map(|number| format!("S_IS{number}_S{number}_E"));
            format!("_Z1f1AIiiE{}", repeated.collect::<String>())
        };
        let expected = "f(A<int, int>, A<A<int, int>, A<int, int> >)";
        assert_eq!(demangle(&name("0")), expected);
        let huge = name("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        assert_eq!(demangle(&huge), huge);
    }
}
