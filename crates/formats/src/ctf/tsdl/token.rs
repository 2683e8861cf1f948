//! The TSDL lexer: CTF 1.8 section C.1, "Lexical grammar".

use std::ops::Range;

use winnow::{
    ModalResult, Parser,
    ascii::{digit1, hex_digit1, oct_digit0},
    combinator::{alt, delimited, dispatch, empty, fail, opt, peek, preceded, repeat},
    stream::{AsChar, LocatingSlice, Stream},
    token::{any, literal, take, take_until, take_while},
};

/// A token and its position.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token<'t> {
    /// The kind.
    pub(super) kind: Kind<'t>,
    /// Byte range in the text.
    pub(super) span: Range<usize>,
}

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind<'t> {
    /// A name or a keyword.
    Word(&'t str),
    /// An integer.
    Integer(u64),
    /// A string literal, with escapes resolved.
    Text(String),
    /// A sign or operator, such as `:=`.
    Sign(&'static str),
    /// The end of the metadata.
    End,
}

type Input<'t> = LocatingSlice<&'t str>;

/// Splits a text into tokens.
pub(super) struct Lexer<'t> {
    text: &'t str,
    input: Input<'t>,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Lexer<'t> {
        Lexer { text, input: LocatingSlice::new(text) }
    }

    /// Moves to an offset of the text.
    pub(super) fn go_to(&mut self, offset: usize) {
        self.input = LocatingSlice::new(self.text);
        self.input.next_slice(offset);
    }

    /// Returns the next token; at the end, always the end token.
    ///
    /// # Errors
    /// The offset of an invalid token.
    pub(super) fn next_token(&mut self) -> Result<Token<'t>, usize> {
        let offset = |input: &Input<'_>| self.text.len() - input.len();
        blanks(&mut self.input).map_err(|_| offset(&self.input))?;
        let start = offset(&self.input);
        if self.input.is_empty() {
            return Ok(Token { kind: Kind::End, span: start..start });
        }
        let (kind, span) = kind.with_span().parse_next(&mut self.input).map_err(|_| start)?;
        Ok(Token { kind, span })
    }
}

/// Skips whitespace and comments.
fn blanks(input: &mut Input<'_>) -> ModalResult<()> {
    let block = (literal("/*"), take_until(0.., "*/"), literal("*/")).void();
    let line = (literal("//"), take_while(0.., |c| c != '\n')).void();
    let mut comment = opt(alt((block, line)));
    run(input, |byte| byte.is_ascii_whitespace());
    while input.starts_with('/') && comment.parse_next(input)?.is_some() {
        run(input, |byte| byte.is_ascii_whitespace());
    }
    Ok(())
}

fn kind<'t>(input: &mut Input<'t>) -> ModalResult<Kind<'t>> {
    // Dispatches on the first character: metadata has a hundred thousand tokens, and no other work begins before all are
    // read.
    if let Some(kind) = plain(input) {
        return Ok(kind);
    }
    dispatch! { peek(any);
        'L' => alt((text.map(Kind::Text), character.map(Kind::Integer), word.map(Kind::Word))),
        'a'..='z' | 'A'..='Z' | '_' => word.map(Kind::Word),
        '0'..='9' => integer.map(Kind::Integer),
        '"' => text.map(Kind::Text),
        '\'' => character.map(Kind::Integer),
        _ => sign,
    }
    .parse_next(input)
}

/// Fast path for the most frequent tokens: decimal numbers without a suffix, and strings without escapes.
fn plain<'t>(input: &mut Input<'t>) -> Option<Kind<'t>> {
    let mut rest = *input;
    let kind = match rest.as_bytes().first()? {
        b'1'..=b'9' => {
            let digits = run(&mut rest, u8::is_ascii_digit);
            let ends = rest.as_bytes().first().is_none_or(|byte| !byte.is_ascii_alphabetic());
            Kind::Integer(digits.parse().ok().filter(|_| ends)?)
        }
        b'"' => {
            rest.next_slice(1);
            let text = run(&mut rest, |byte| byte.is_ascii() && !matches!(byte, b'"' | b'\\'));
            rest.starts_with('"').then(|| rest.next_slice(1))?;
            Kind::Text(text.to_owned())
        }
        _ => return None,
    };
    *input = rest;
    Some(kind)
}

/// Takes the longest prefix of ASCII bytes that satisfy `is`.
fn run<'t>(input: &mut Input<'t>, is: impl Fn(&u8) -> bool) -> &'t str {
    let length = input.bytes().position(|byte| !is(&byte)).unwrap_or(input.len());
    input.next_slice(length)
}

/// Takes a token that begins with a letter or `_`.
fn word<'t>(input: &mut Input<'t>) -> ModalResult<&'t str> {
    Ok(run(input, |byte| byte.is_ascii_alphanumeric() || *byte == b'_'))
}

fn sign<'t>(input: &mut Input<'t>) -> ModalResult<Kind<'t>> {
    // Longest match first.
    let sign = match input.as_bytes() {
        [b'.', b'.', b'.', ..] => "...",
        [b':', b'=', ..] => ":=",
        [b'-', b'>', ..] => "->",
        [b'{', ..] => "{",
        [b'}', ..] => "}",
        [b'(', ..] => "(",
        [b')', ..] => ")",
        [b'[', ..] => "[",
        [b']', ..] => "]",
        [b'<', ..] => "<",
        [b'>', ..] => ">",
        [b';', ..] => ";",
        [b',', ..] => ",",
        [b':', ..] => ":",
        [b'=', ..] => "=",
        [b'.', ..] => ".",
        [b'-', ..] => "-",
        [b'+', ..] => "+",
        [b'*', ..] => "*",
        _ => return fail.parse_next(input),
    };
    input.next_slice(sign.len());
    Ok(Kind::Sign(sign))
}

/// Parses a decimal, hexadecimal, octal or binary number with C suffixes.
fn integer(input: &mut Input<'_>) -> ModalResult<u64> {
    let radix = |radix| move |digits: &str| u64::from_str_radix(digits, radix);
    let hexadecimal = preceded(alt(("0x", "0X")), hex_digit1.try_map(radix(16)));
    let binary = preceded(alt(("0b", "0B")), take_while(1.., ('0', '1')).try_map(radix(2)));
    let octal = preceded("0", oct_digit0).try_map(|digits: &str| match digits {
        "" => Ok(0),
        digits => u64::from_str_radix(digits, 8),
    });
    let mut decimal = digit1.try_map(radix(10));
    let suffix = take_while(0..=3, ('u', 'U', 'l', 'L'));
    let mut other = alt((hexadecimal, binary, octal));
    let number = dispatch! { peek(any); '0' => other, _ => decimal };
    (number, suffix).map(|(value, _)| value).parse_next(input)
}

/// Parses a string in double quotes.
fn text(input: &mut Input<'_>) -> ModalResult<String> {
    let part = alt((escape, any.verify(|&c| c != '"')));
    let parts = repeat(0.., part).fold(String::new, |mut text, part: char| {
        text.push(part);
        text
    });
    preceded(opt('L'), delimited('"', parts, '"')).parse_next(input)
}

/// Parses a character literal, which is a number.
fn character(input: &mut Input<'_>) -> ModalResult<u64> {
    let character = alt((escape, any.verify(|&c| c != '\'')));
    preceded(opt('L'), delimited('\'', character, '\'')).map(u64::from).parse_next(input)
}

/// Parses a C escape sequence.
fn escape(input: &mut Input<'_>) -> ModalResult<char> {
    let code = |radix| move |digits: &str| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
    let hexadecimal = preceded('x', take_while(1..=2, AsChar::is_hex_digit)).verify_map(code(16));
    let octal = take_while(1..=3, AsChar::is_oct_digit).verify_map(code(8));
    let short = alt((preceded('u', take(4usize)), preceded('U', take(8usize)))).verify_map(code(16));
    let simple = any.verify_map(|c| match c {
        'a' => Some('\x07'),
        'b' => Some('\x08'),
        'f' => Some('\x0c'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'v' => Some('\x0b'),
        '\\' | '"' | '\'' | '?' => Some(c),
        _ => None,
    });
    preceded(('\\', empty), alt((hexadecimal, octal, short, simple))).parse_next(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Vec<Kind<'_>>, usize> {
        let mut lexer = Lexer::new(text);
        let mut kinds = Vec::new();
        loop {
            match lexer.next_token()?.kind {
                Kind::End => return Ok(kinds),
                kind => kinds.push(kind),
            }
        }
    }

    fn kinds(text: &str) -> Vec<Kind<'_>> {
        tokens(text).unwrap()
    }

    #[test]
    fn tokens_of_every_kind_are_read_and_comments_skipped() {
        use Kind::{Integer, Sign, Text, Word};
        assert_eq!(
            kinds("a := 0x1F; // end\r\n\"t\\x41\\n\\\"\" /* * / */ 0 ... 017ul"),
            [
                Word("a"),
                Sign(":="),
                Integer(31),
                Sign(";"),
                Text("tA\n\"".into()),
                Integer(0),
                Sign("..."),
                Integer(15)
            ]
        );
        assert_eq!(kinds("0b101 'A' -3"), [Integer(5), Integer(65), Sign("-"), Integer(3)]);
    }

    #[test]
    fn an_invalid_token_is_an_error_with_its_offset() {
        assert_eq!(tokens("ab @"), Err(3));
        assert_eq!(tokens("x /* open"), Err(2));
        assert_eq!(tokens("x \"open"), Err(2));
        assert_eq!(tokens("99999999999999999999999"), Err(0));
    }
}
