//! Names of functions as users write them: demangled names of C++ and Rust, in full or in part.

/// Returns whether a function has this name, with or without its parameters.
///
/// ```
/// assert!(hodo_model::function_name::is_name("app::lookup", "app::lookup(int)"));
/// ```
pub fn is_name(name: &str, function: &str) -> bool {
    function.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('('))
}

/// Returns whether a name is short for a function: the end of its path, with or without its parameters and the arguments
/// of its template.
///
/// ```
/// use hodo_model::function_name::is_short;
/// assert!(is_short("lookup", "app::Store::lookup(int)") && is_short("Store::lookup", "app::Store::lookup(int)"));
/// ```
pub fn is_short(name: &str, function: &str) -> bool {
    let Some(Path { starts, end, template }) = Path::of(function) else { return false };
    starts.iter().any(|&start| {
        let path = &function[start..end];
        let plain = template.filter(|template| *template > start).map_or(path, |end| &function[start..end]);
        path == name || plain == name || function[start..] == *name
    })
}

/// Returns the last part of a function's path, without parameters: `lookup` for `app::Store::lookup(int)`.
pub fn last_part(function: &str) -> &str {
    match Path::of(function) {
        Some(Path { starts, end, template }) => {
            let start = starts.last().copied().unwrap_or(0);
            &function[start..template.filter(|template| *template > start).unwrap_or(end)]
        }
        None => function,
    }
}

/// Returns a function's path without its parameters: `app::Store::lookup` for `app::Store::lookup(int)`.
pub fn without_parameters(function: &str) -> &str {
    Path::of(function).map_or(function, |path| &function[..path.end])
}

/// Parts of a demangled name.
struct Path {
    /// Where the parts of the path begin.
    starts: Vec<usize>,
    /// Where the path ends, and parameters may follow.
    end: usize,
    /// Where the arguments of the last part's template begin, if it ends with them.
    template: Option<usize>,
}

/// Namespaces without a name.
const ANONYMOUS: &str = "(anonymous namespace)";

impl Path {
    /// Returns `None` for a name that is no path, such as that of a thunk, of a compiler's copy, or of a stub that jumps to the function.
    fn of(function: &str) -> Option<Path> {
        let bytes = function.as_bytes();
        let (mut index, mut depth, mut starts, mut template) = (0, 0_usize, vec![0], None);
        while let Some(&byte) = bytes.get(index) {
            let start = starts.last().copied().unwrap_or(0);
            let rest = &function.get(index..)?;
            match byte {
                b'(' if depth == 0 && rest.starts_with(ANONYMOUS) => index += ANONYMOUS.len() - 1,
                // A path may begin with a tuple, which is a type.
                b'(' if depth == 0 && index > start => break,
                b'<' if depth == 0 => (depth, template) = (1, Some(index)),
                b'(' | b'<' | b'[' | b'{' => depth += 1,
                // The end of an arrow closes nothing.
                b'>' if index > 0 && bytes[index - 1] == b'-' => {}
                b')' | b'>' | b']' | b'}' => depth = depth.saturating_sub(1),
                b':' if depth == 0 && rest.starts_with("::") => {
                    index += 1;
                    starts.push(index + 1);
                    template = None;
                }
                b'o' if depth == 0 && index == start && rest.starts_with("operator") => {
                    index += operator(rest) - 1;
                    template = None;
                }
                b' ' | b'@' if depth == 0 => return None,
                _ => {}
            }
            index += 1;
            // A character may have several bytes.
            while !function.is_char_boundary(index.min(function.len())) {
                index += 1;
            }
        }
        let end = index.min(function.len());
        let is_whole = function[end..].rsplit_once(')').is_none_or(|(_, after)| !after.contains(['@', '[']));
        let template = template.filter(|_| function[..end].ends_with('>'));
        is_whole.then_some(Path { starts, end, template })
    }
}

/// Returns the length of the name of an operator, such as `operator<<`.
fn operator(rest: &str) -> usize {
    let word = "operator".len();
    let after = &rest[word..];
    word + match after {
        _ if after.starts_with("()") || after.starts_with("[]") => 2,
        // A conversion, or `operator new`.
        _ if after.starts_with(' ') => after.find('(').unwrap_or(after.len()),
        _ => after.len() - after.trim_start_matches(|symbol: char| "<>=!+-*/%^&|~,".contains(symbol)).len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_by_the_end_of_its_path() {
        let cases: [(&str, &[&str], &[&str]); 13] = [
            (
                "app::Store::lookup(int)",
                &["lookup", "Store::lookup", "lookup(int)", "app::Store::lookup"],
                &["look", "tore::lookup", "Store", "lookup(", ""],
            ),
            ("main", &["main"], &["mai"]),
            (
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
                &["push_back"],
                &["allocator<int>"],
            ),
            ("ns::make<a::b>(a::b)", &["make", "make<a::b>", "ns::make"], &["b", "b>"]),
            ("(anonymous namespace)::hidden(int)", &["hidden"], &["namespace)::hidden"]),
            ("A::operator()(int) const", &["operator()", "A::operator()"], &["operator"]),
            ("A::operator<< <int>(B)", &[], &["operator"]),
            ("A::operator<(A const&)", &["operator<"], &["operator"]),
            ("<alloc::vec::Vec<T> as core::ops::Drop>::drop", &["drop"], &["Drop>::drop", "Vec"]),
            (
                "core::ops::function::FnOnce::call_once{{vtable.shim}}",
                &["call_once{{vtable.shim}}"],
                &["call_once"],
            ),
            ("<F as core::ops::Fn<(A,)>>::call -> x::y", &[], &["y"]),
            ("non-virtual thunk to A::f()", &[], &["f", "A::f"]),
            ("A::f(int)@plt", &[], &["f"]),
        ];
        for (function, short, other) in cases {
            short.iter().for_each(|name| assert!(is_short(name, function), "{name} for {function}"));
            other.iter().for_each(|name| assert!(!is_short(name, function), "{name} for {function}"));
        }
        assert_eq!(last_part("app::Store::lookup(int)"), "lookup");
        assert_eq!(last_part("ns::make<a::b>(a::b)"), "make");
        assert_eq!(last_part("überall::größe"), "größe");
        assert_eq!(last_part(""), "");
        for broken in ["::", "<", ">>>", "operator", "a::operator", "(((", "a::(", "operator ü", "ü::ü(ü"]
        {
            let _ = (is_short("f", broken), last_part(broken));
        }
    }

    #[test]
    fn parameters_may_be_omitted() {
        assert!(is_name("f", "f") && is_name("f", "f(int)") && is_name("f(int)", "f(int)"));
        assert!(!is_name("f(", "f(int)") && !is_name("f", "fa(int)"));
    }
}
