//! Formats `bprint` records: a `printf` format with binary arguments.
//!
//! Source: the kernel's `vbin_printf` (lib/vsprintf.c), which defines the layout of the arguments, and
//! `Documentation/core-api/printk-formats.rst`.

use std::str;

use super::names::Names;
use crate::events::schema::ByteOrder;

/// A parsed conversion, such as `%-5llx`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    prefix: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    /// Size of the number in bytes.
    size: usize,
}

/// The maximum padding width: the size of a page.
const WIDEST_PADDING: usize = 4096;

/// The binary arguments.
struct Arguments<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
    position: usize,
}

impl<'a> Arguments<'a> {
    /// Reads a number, aligned to its size but to at most four bytes.
    fn number(&mut self, size: usize) -> Option<u64> {
        let start = self.position.next_multiple_of(size.clamp(1, 4));
        let bytes = self.bytes.get(start..start.checked_add(size)?)?;
        self.position = start + size;
        let shifted = |number, &byte| number << 8 | u64::from(byte);
        Some(match self.order {
            ByteOrder::Little => bytes.iter().rev().fold(0, shifted),
            ByteOrder::Big => bytes.iter().fold(0, shifted),
        })
    }

    /// Reads NUL-terminated text.
    fn text(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.position..)?;
        let length = rest.iter().position(|&byte| byte == 0)?;
        self.position += length + 1;
        Some(&rest[..length])
    }

    /// Reads the `int` for a `*`.
    fn star(&mut self) -> Option<i32> {
        Some(self.number(4)? as u32 as i32)
    }
}

/// Formats the text. `long` is the machine's size of a `long` in bytes; `symbols` names functions. Returns `None` if
/// an argument is missing or a conversion is unknown.
pub(crate) fn print(
    format: &[u8],
    (arguments, order): (&[u8], ByteOrder),
    long: u32,
    symbols: &Names,
) -> Option<Vec<u8>> {
    let mut arguments = Arguments { bytes: arguments, order, position: 0 };
    let format = unescaped(format);
    let (mut rest, mut out) = (format.strip_suffix(b"\n").unwrap_or(&format), Vec::new());
    while let Some(position) = rest.iter().position(|&byte| byte == b'%') {
        out.extend_from_slice(&rest[..position]);
        rest = &rest[position + 1..];
        let conversion = conversion(&mut rest, &mut arguments, long as usize)?;
        let (&letter, after) = rest.split_first()?;
        rest = after;
        match letter {
            b'%' => out.push(b'%'),
            b'c' => pad(&[arguments.number(1)? as u8], conversion, &mut out),
            b's' => {
                let text = arguments.text()?;
                pad(
                    &text[..text.len().min(conversion.precision.unwrap_or(usize::MAX))],
                    conversion,
                    &mut out,
                );
            }
            b'p' => pad(&pointer(&mut rest, &mut arguments, long as usize, symbols)?, conversion, &mut out),
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => {
                let number = arguments.number(conversion.size)?;
                integer(number, letter, conversion, &mut out);
            }
            _ => return None,
        }
    }
    out.extend_from_slice(rest);
    Some(out)
}

/// Removes the C escapes of `printk_formats`.
fn unescaped(format: &[u8]) -> Vec<u8> {
    let mut bytes = format.iter();
    let mut out = Vec::with_capacity(format.len());
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(&escaped) => escaped,
                None => byte,
            },
            byte => byte,
        });
    }
    out
}

/// Parses the part between `%` and the conversion letter.
fn conversion(rest: &mut &[u8], arguments: &mut Arguments<'_>, long: usize) -> Option<Conversion> {
    let mut conversion = Conversion { size: 4, ..Conversion::default() };
    while let Some((&flag, after)) = rest.split_first() {
        match flag {
            b'-' => conversion.left = true,
            b'+' => conversion.plus = true,
            b' ' => conversion.space = true,
            b'#' => conversion.prefix = true,
            b'0' => conversion.zeros = true,
            _ => break,
        }
        *rest = after;
    }
    let width = count(rest, arguments)?;
    conversion.left |= width < 0;
    conversion.width = width.unsigned_abs() as usize;
    if let Some(after) = rest.strip_prefix(b".") {
        *rest = after;
        conversion.precision = usize::try_from(count(rest, arguments)?).ok();
    }
    let sizes: [(&[u8], usize); 7] =
        [(b"hh", 1), (b"h", 2), (b"ll", 8), (b"l", long), (b"L", 8), (b"z", long), (b"t", long)];
    if let Some((letters, size)) = sizes.iter().find(|(letters, _)| rest.starts_with(letters)) {
        (*rest, conversion.size) = (&rest[letters.len()..], *size);
    }
    Some(conversion)
}

/// Parses a width or a precision: 0 if there is none, `None` if its argument is missing.
fn count(rest: &mut &[u8], arguments: &mut Arguments<'_>) -> Option<i32> {
    if let Some(after) = rest.strip_prefix(b"*") {
        *rest = after;
        return arguments.star();
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, after) = rest.split_at(digits);
    *rest = after;
    // A number too large to parse counts as absent.
    Some(str::from_utf8(number).ok().and_then(|number| number.parse().ok()).unwrap_or(0))
}

/// Formats `%p` with the letters after it. The kernel stores an address if they name code, and otherwise the text
/// that it made.
fn pointer(rest: &mut &[u8], arguments: &mut Arguments<'_>, long: usize, symbols: &Names) -> Option<Vec<u8>> {
    let letters = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let (kind, after) = rest.split_at(letters);
    *rest = after;
    let is_code = matches!(kind.first(), Some(b's' | b'S' | b'f' | b'F'));
    if !is_code && !matches!(kind.first(), None | Some(b'x' | b'K' | b'e')) {
        return arguments.text().map(<[u8]>::to_vec);
    }
    let address = arguments.number(long)?;
    let name = symbols.get(address).filter(|_| is_code).map(<[u8]>::to_vec);
    Some(name.unwrap_or_else(|| format!("0x{address:x}").into_bytes()))
}

fn integer(number: u64, letter: u8, conversion: Conversion, out: &mut Vec<u8>) {
    let unused = 64 - 8 * conversion.size as u32;
    let signed = (number << unused) as i64 >> unused;
    let sign = match letter {
        b'd' | b'i' if signed < 0 => "-",
        b'd' | b'i' if conversion.plus => "+",
        b'd' | b'i' if conversion.space => " ",
        b'x' if conversion.prefix => "0x",
        b'X' if conversion.prefix => "0X",
        b'o' if conversion.prefix => "0",
        _ => "",
    };
    let digits = match letter {
        b'x' => format!("{number:x}"),
        b'X' => format!("{number:X}"),
        b'o' => format!("{number:o}"),
        b'u' => number.to_string(),
        _ => signed.unsigned_abs().to_string(),
    };
    let fills_with_zeros = conversion.zeros && !conversion.left && conversion.precision.is_none();
    let fewest_digits = if fills_with_zeros {
        conversion.width.saturating_sub(sign.len())
    } else {
        conversion.precision.unwrap_or(0)
    };
    let zeros = fewest_digits.min(WIDEST_PADDING).saturating_sub(digits.len());
    pad(format!("{sign}{:0<zeros$}{digits}", "").as_bytes(), conversion, out);
}

/// Appends text, padded with spaces to the width.
fn pad(text: &[u8], conversion: Conversion, out: &mut Vec<u8>) {
    let spaces = vec![b' '; conversion.width.min(WIDEST_PADDING).saturating_sub(text.len())];
    let (first, second) = if conversion.left { (text, &spaces[..]) } else { (&spaces[..], text) };
    out.extend_from_slice(first);
    out.extend_from_slice(second);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: &str, arguments: &[&[u8]]) -> Option<String> {
        let symbols = Names::symbols(b"1000 T first\n");
        let text = print(format.as_bytes(), (&arguments.concat(), ByteOrder::Little), 8, &symbols)?;
        Some(String::from_utf8(text).unwrap())
    }

    #[track_caller]
    fn check(format: &str, arguments: &[&[u8]], expected: &str) {
        assert_eq!(text(format, arguments).as_deref(), Some(expected), "{format}");
    }

    #[test]
    fn numbers_are_aligned_to_four_bytes_at_most() {
        check("%d %llu", &[&(-3i32).to_le_bytes(), &7u64.to_le_bytes()], "-3 7");
        check("%c%d", &[b"a\0\0\0", &5u32.to_le_bytes()], "a5");
        check("%hhd %hd %u", &[&[0xff, 0], &(-2i16).to_le_bytes(), &9u32.to_le_bytes()], "-1 -2 9");
        check("%s:%d\\n", &[b"abc\0", &1u32.to_le_bytes()], "abc:1");
        check("\\t%d\\\\", &[&1u32.to_le_bytes()], "\t1\\");
        check("%s:%d", &[b"ab\0", &[0], &1u32.to_le_bytes()], "ab:1");
    }

    #[test]
    fn flags_widths_and_precisions_format_as_in_c() {
        let word = 0xabu32.to_le_bytes();
        check(
            "[%#x] [%6X] [%-6x] [%06x]",
            &[&word, &word, &word, &word],
            "[0xab] [    AB] [ab    ] [0000ab]",
        );
        check("[%+d] [% d] [%.5d] [%#06x]", &[&word, &word, &word, &word], "[+171] [ 171] [00171] [0x00ab]");
        check("[%*d] [%-*d]", &[&5u32.to_le_bytes(), &word, &5u32.to_le_bytes(), &word], "[  171] [171  ]");
        check("[%.2s] [%5s] 100%%", &[b"abc\0", b"de\0"], "[ab] [   de] 100%");
        check("%lx %zu", &[&0x1_0000_0000u64.to_le_bytes(), &3u64.to_le_bytes()], "100000000 3");
    }

    #[test]
    fn pointers_are_names_addresses_or_the_kernels_text() {
        let address = 0x1004u64.to_le_bytes();
        check("%ps %pS %p %px", &[&address[..]; 4], "first first 0x1004 0x1004");
        check("%pM!", &[b"00:11:22:33:44:55\0"], "00:11:22:33:44:55!");
    }

    #[test]
    fn missing_arguments_and_unknown_conversions_make_no_text() {
        assert_eq!(text("%d", &[]), None);
        assert_eq!(text("%s", &[b"endless"]), None);
        assert_eq!(text("%q", &[&[0; 8]]), None);
        assert_eq!(text("%", &[]), None);
        check("%99999999999d", &[&[0; 4]], "0");
        assert_eq!(text("%2000000000d", &[&[0; 4]]).map(|text| text.len()), Some(WIDEST_PADDING));
    }
}
