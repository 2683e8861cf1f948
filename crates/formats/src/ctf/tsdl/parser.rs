//! The parser's state: tokens, scopes of names, and errors with their line.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use super::token::{Kind, Lexer, Token};
use crate::error::{Error, ErrorKind};
use crate::events::schema::{ByteOrder, Choice, FieldClass, Integer, Structure};

/// Maximum nesting depth of types.
pub(super) const DEEPEST: u32 = 256;
/// Limit on the types created by repeated use, in addition to the size of the metadata in bytes.
const TYPES: usize = 1 << 18;
/// Maximum number of characters of a line in an error.
const SHOWN: usize = 100;

/// The named types of a block.
#[derive(Default)]
pub(super) struct Names {
    pub(super) aliases: HashMap<String, FieldClass>,
    pub(super) structures: HashMap<String, Structure>,
    pub(super) variants: HashMap<String, Choice>,
    pub(super) enumerations: HashMap<String, Integer>,
}

/// Parses TSDL token by token.
pub(super) struct Parser<'t> {
    text: &'t str,
    lexer: Lexer<'t>,
    /// The current token.
    token: Token<'t>,
    /// The next token, if it was peeked at.
    ahead: Option<Token<'t>>,
    /// Offset of the last token taken.
    pub(super) last: usize,
    /// The byte order of types without their own.
    native: Option<ByteOrder>,
    /// The scopes, innermost last.
    pub(super) scopes: Vec<Names>,
    /// The number of open types.
    pub(super) depth: u32,
    /// A cache of integer types by source text. Metadata declares thousands of fields with the same text.
    pub(super) integers: HashMap<&'t str, Integer>,
    /// Remaining number of types to create.
    budget: usize,
    /// Integers of the environment, which can be lengths.
    pub(super) environment: HashMap<String, i128>,
    /// Attributes unknown to CTF 1.8 by type, with the offset of the first occurrence.
    unknown: BTreeMap<&'static str, HashMap<&'t str, usize>>,
    /// Offset of the token before the first missing `;`.
    pub(super) missing: Option<usize>,
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str, native: Option<ByteOrder>) -> Result<Parser<'t>, Error> {
        let token = Token { kind: Kind::End, span: 0..0 };
        let scopes = vec![Names::default()];
        let budget = TYPES.saturating_add(text.len());
        let lexer = Lexer::new(text);
        let mut parser = Parser {
            text,
            lexer,
            token,
            ahead: None,
            last: 0,
            native,
            scopes,
            depth: 0,
            integers: HashMap::new(),
            budget,
            environment: HashMap::new(),
            unknown: BTreeMap::new(),
            missing: None,
        };
        parser.token = parser.lex()?;
        Ok(parser)
    }

    fn lex(&mut self) -> Result<Token<'t>, Error> {
        self.lexer.next_token().map_err(|offset| error(self.text, offset, why_no_token(&self.text[offset..])))
    }

    /// Records an unknown attribute of a type.
    pub(super) fn ignore(&mut self, kind: &'static str, name: &'t str) {
        self.unknown.entry(kind).or_default().entry(name).or_insert(self.last);
    }

    /// Sentences about ignored attributes, one per type, and about a missing `;`.
    pub(super) fn ignored(&self) -> Vec<String> {
        let note = |(kind, names): (&&str, &HashMap<&str, usize>)| {
            let (name, offset) = names.iter().min_by_key(|(_, offset)| **offset)?;
            let more = match names.len() - 1 {
                0 => String::new(),
                more => format!(", like {more} more"),
            };
            let line = line_of(self.text, *offset);
            Some(format!("`{name}` (line {line}) is not an attribute of `{kind}` and was ignored{more}"))
        };
        let missing = |offset| {
            format!(
                "line {}: a `;` is missing after this declaration; the metadata was read as if it were there",
                line_of(self.text, offset)
            )
        };
        self.unknown.iter().filter_map(note).chain(self.missing.map(missing)).collect()
    }

    /// The current token.
    pub(super) fn peek(&self) -> &Kind<'t> {
        &self.token.kind
    }

    /// The token after the current one.
    pub(super) fn peek_second(&mut self) -> Result<&Kind<'t>, Error> {
        if self.ahead.is_none() {
            self.ahead = Some(self.lex()?);
        }
        Ok(self.ahead.as_ref().map_or(&Kind::End, |token| &token.kind))
    }

    /// Takes the current token.
    pub(super) fn take(&mut self) -> Result<Kind<'t>, Error> {
        let next = match self.ahead.take() {
            Some(token) => token,
            None => self.lex()?,
        };
        self.last = self.token.span.start;
        Ok(std::mem::replace(&mut self.token, next).kind)
    }

    /// The text from the current token up to the next `}`, and the offset of that.
    pub(super) fn up_to_brace(&self) -> Option<(&'t str, usize)> {
        let text = &self.text[self.token.span.start..];
        let length = memchr::memchr(b'}', text.as_bytes())?;
        Some((&text[..length], self.token.span.start + length))
    }

    /// Skips to the token after the `}` at this offset.
    pub(super) fn take_up_to(&mut self, brace: usize) -> Result<(), Error> {
        self.ahead = None;
        self.lexer.go_to(brace + 1);
        self.token = self.lex()?;
        self.last = brace;
        Ok(())
    }

    /// Takes a sign if it is the current token.
    #[inline]
    pub(super) fn take_if(&mut self, sign: &str) -> Result<bool, Error> {
        let is_sign = matches!(self.peek(), Kind::Sign(current) if *current == sign);
        if is_sign {
            self.take()?;
        }
        Ok(is_sign)
    }

    /// Takes a sign, or fails.
    pub(super) fn expect(&mut self, sign: &str) -> Result<(), Error> {
        if self.take_if(sign)? { Ok(()) } else { Err(self.error_here(format!("`{sign}` expected"))) }
    }

    /// Takes a name, or fails.
    pub(super) fn word(&mut self) -> Result<&'t str, Error> {
        match self.peek() {
            Kind::Word(word) => {
                let word = *word;
                self.take()?;
                Ok(word)
            }
            _ => Err(self.error_here("a name expected".to_owned())),
        }
    }

    /// Whether the current token is this name.
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Kind::Word(current) if *current == word)
    }

    /// Takes a path of names joined by dots, and removes whitespace.
    pub(super) fn path(&mut self) -> Result<Cow<'t, str>, Error> {
        let mut path = Cow::Borrowed(self.word()?);
        while self.take_if(".")? {
            path = path + "." + self.word()?;
        }
        Ok(path)
    }

    /// The byte order of types without their own.
    pub(super) fn native(&self) -> Result<ByteOrder, Error> {
        self.native.ok_or_else(|| {
            self.error_here("the `trace` block has no `byte_order`, which this needs".to_owned())
        })
    }

    /// Charges the copy of a type to the budget.
    pub(super) fn pay(&mut self, class: &FieldClass) -> Result<(), Error> {
        let left = self.budget.checked_sub(weight(class));
        self.budget = left
            .ok_or_else(|| self.error_at_last("types that use each other become too many here".to_owned()))?;
        Ok(())
    }

    /// Creates an error at the current token.
    pub(super) fn error_here(&self, reason: String) -> Error {
        error(self.text, self.token.span.start, &reason)
    }

    /// Creates an error at the last token taken.
    pub(super) fn error_at_last(&self, reason: String) -> Error {
        error(self.text, self.last, &reason)
    }

    /// Creates an error about the metadata as a whole.
    pub(super) fn metadata_error(&self, reason: String) -> Error {
        Error { at: 0, kind: ErrorKind::Text { what: "CTF metadata", reason } }
    }
}

/// The number of classes in a class, including itself, and of its labels.
fn weight(class: &FieldClass) -> usize {
    let options = |choice: &Choice| choice.options.iter().map(|option| weight(&option.class)).sum::<usize>();
    1 + match class {
        FieldClass::Integer(integer) => integer.meaning.labels.len(),
        FieldClass::Structure(structure) => {
            structure.members.iter().map(|member| weight(&member.class)).sum()
        }
        FieldClass::Array(array) => weight(&array.element),
        FieldClass::Variant(choice) | FieldClass::Optional(choice) => options(choice),
        _ => 0,
    }
}

/// Explains why text does not begin with a token.
fn why_no_token(text: &str) -> &'static str {
    let number = text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    match text.as_bytes() {
        [b'1'..=b'9', ..] if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            "this number exceeds 64 bits"
        }
        [b'"', ..] => "the text that begins here does not end, or has an escape that C does not know",
        [b'/', b'*', ..] => "the comment that begins here does not end",
        _ => "no word of CTF metadata begins here",
    }
}

/// The line number of an offset.
fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Creates an error with its line, and a mark below its position.
fn error(text: &str, offset: usize, reason: &str) -> Error {
    let number = line_of(text, offset);
    let start = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
    let column = text[start..offset].chars().count();
    let line = text[start..].lines().next().unwrap_or_default();
    // Shows only the part of a long line around the position.
    let skipped = column.saturating_sub(SHOWN / 2);
    let shown: String =
        line.chars().skip(skipped).take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mark = " ".repeat(column - skipped);
    let reason = format!("line {number}, column {}: {reason}\n    {shown}\n    {mark}^", column + 1);
    Error { at: offset as u64, kind: ErrorKind::Text { what: "CTF metadata", reason } }
}
