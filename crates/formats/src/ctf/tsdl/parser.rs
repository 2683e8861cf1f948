//! Words in hand, names in scope, errors with their line.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use super::token::{Kind, Lexer, Token};
use crate::error::{Error, ErrorKind};
use crate::events::schema::{ByteOrder, Choice, FieldClass, Integer, Structure};

/// How deep types may be nested.
pub(super) const DEEPEST: u32 = 256;
/// Types that metadata may make by using the same one again, beyond as many as it has bytes.
const TYPES: usize = 1 << 18;
/// The most of a line that an error shows, in characters.
const SHOWN: usize = 100;

/// Types with names, of one block.
#[derive(Default)]
pub(super) struct Names {
    pub(super) aliases: HashMap<String, FieldClass>,
    pub(super) structures: HashMap<String, Structure>,
    pub(super) variants: HashMap<String, Choice>,
    pub(super) enumerations: HashMap<String, Integer>,
}

/// Reads TSDL word by word.
pub(super) struct Parser<'t> {
    text: &'t str,
    lexer: Lexer<'t>,
    /// The word in hand.
    token: Token<'t>,
    /// The word behind it, where a look at it was needed.
    ahead: Option<Token<'t>>,
    /// Where the last word that was taken began.
    pub(super) last: usize,
    native: Option<ByteOrder>,
    /// Innermost last.
    pub(super) scopes: Vec<Names>,
    pub(super) depth: u32,
    /// Integers by the text that declares them. Metadata declare thousands of fields in the same words.
    pub(super) integers: HashMap<&'t str, Integer>,
    /// Types that may yet be made.
    budget: usize,
    /// Numbers of the environment, which can be lengths.
    pub(super) environment: HashMap<String, i128>,
    /// Attributes that CTF 1.8 does not have, by their type; and where each stands first.
    unknown: BTreeMap<&'static str, HashMap<&'t str, usize>>,
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
        };
        parser.token = parser.lex()?;
        Ok(parser)
    }

    fn lex(&mut self) -> Result<Token<'t>, Error> {
        self.lexer.next_token().map_err(|at| error(self.text, at, no_word(&self.text[at..])))
    }

    /// Takes note of an attribute that a type does not have.
    pub(super) fn ignore(&mut self, kind: &'static str, name: &'t str) {
        self.unknown.entry(kind).or_default().entry(name).or_insert(self.last);
    }

    /// What to say of the attributes that were ignored: a sentence for each type.
    pub(super) fn ignored(&self) -> Vec<String> {
        let note = |(kind, names): (&&str, &HashMap<&str, usize>)| {
            let (name, at) = names.iter().min_by_key(|(_, at)| **at)?;
            let more = match names.len() - 1 {
                0 => String::new(),
                more => format!(", like {more} more"),
            };
            let line = line_of(self.text, *at);
            Some(format!("`{name}` (line {line}) is no attribute of `{kind}` and was ignored{more}"))
        };
        self.unknown.iter().filter_map(note).collect()
    }

    /// The word in hand.
    pub(super) fn peek(&self) -> &Kind<'t> {
        &self.token.kind
    }

    /// The word behind the one in hand.
    pub(super) fn peek_second(&mut self) -> Result<&Kind<'t>, Error> {
        if self.ahead.is_none() {
            self.ahead = Some(self.lex()?);
        }
        Ok(self.ahead.as_ref().map_or(&Kind::End, |token| &token.kind))
    }

    /// Takes the word in hand.
    pub(super) fn take(&mut self) -> Result<Kind<'t>, Error> {
        let next = match self.ahead.take() {
            Some(token) => token,
            None => self.lex()?,
        };
        self.last = self.token.span.start;
        Ok(std::mem::replace(&mut self.token, next).kind)
    }

    /// The text from the word in hand up to the next `}`, and where that is.
    pub(super) fn up_to_brace(&self) -> Option<(&'t str, usize)> {
        let text = &self.text[self.token.span.start..];
        let length = memchr::memchr(b'}', text.as_bytes())?;
        Some((&text[..length], self.token.span.start + length))
    }

    /// Takes everything up to the `}` that is there, and that too.
    pub(super) fn take_up_to(&mut self, brace: usize) -> Result<(), Error> {
        self.ahead = None;
        self.lexer.go_to(brace + 1);
        self.token = self.lex()?;
        self.last = brace;
        Ok(())
    }

    /// Takes a sign if it is in hand.
    #[inline]
    pub(super) fn take_if(&mut self, sign: &str) -> Result<bool, Error> {
        let there = matches!(self.peek(), Kind::Sign(found) if *found == sign);
        if there {
            self.take()?;
        }
        Ok(there)
    }

    /// Takes a sign that must be there.
    pub(super) fn expect(&mut self, sign: &str) -> Result<(), Error> {
        if self.take_if(sign)? { Ok(()) } else { Err(self.here(format!("`{sign}` expected"))) }
    }

    /// Takes a name.
    pub(super) fn word(&mut self) -> Result<&'t str, Error> {
        match self.peek() {
            Kind::Word(word) => {
                let word = *word;
                self.take()?;
                Ok(word)
            }
            _ => Err(self.here("a name expected".to_owned())),
        }
    }

    /// Whether this name is in hand.
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Kind::Word(found) if *found == word)
    }

    /// Names with points between them, and no blanks.
    pub(super) fn path(&mut self) -> Result<Cow<'t, str>, Error> {
        let mut path = Cow::Borrowed(self.word()?);
        while self.take_if(".")? {
            path = path + "." + self.word()?;
        }
        Ok(path)
    }

    /// The byte order of whatever names none.
    pub(super) fn native(&self) -> Result<ByteOrder, Error> {
        self.native
            .ok_or_else(|| self.here("the `trace` block has no `byte_order`, which this needs".to_owned()))
    }

    /// Pays for the copy of a type.
    pub(super) fn pay(&mut self, class: &FieldClass) -> Result<(), Error> {
        let left = self.budget.checked_sub(weight(class));
        self.budget =
            left.ok_or_else(|| self.there("types that use each other become too many here".to_owned()))?;
        Ok(())
    }

    /// An error at the word in hand.
    pub(super) fn here(&self, reason: String) -> Error {
        error(self.text, self.token.span.start, &reason)
    }

    /// An error at the word that was taken last.
    pub(super) fn there(&self, reason: String) -> Error {
        error(self.text, self.last, &reason)
    }

    /// An error of the metadata as a whole.
    pub(super) fn whole(&self, reason: String) -> Error {
        Error { at: 0, kind: ErrorKind::Text { what: "CTF metadata", reason } }
    }
}

/// How many classes a class has within it, and itself.
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

/// What is wrong with text that no word of TSDL begins with.
fn no_word(text: &str) -> &'static str {
    let number = text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    match text.as_bytes() {
        [b'1'..=b'9', ..] if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            "this number is larger than 64 bits hold"
        }
        [b'"', ..] => "the text that begins here does not end, or has an escape that C does not know",
        [b'/', b'*', ..] => "the comment that begins here does not end",
        _ => "no word of CTF metadata begins here",
    }
}

/// The number of the line that a place is in.
fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// An error with its line, and a mark below its place.
fn error(text: &str, at: usize, reason: &str) -> Error {
    let before = &text[..at];
    let number = line_of(text, at);
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = text[start..at].chars().count();
    let line = text[start..].lines().next().unwrap_or_default();
    // A long line is shown around the place.
    let skipped = column.saturating_sub(SHOWN / 2);
    let shown: String =
        line.chars().skip(skipped).take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mark = " ".repeat(column - skipped);
    let reason = format!("line {number}, column {}: {reason}\n    {shown}\n    {mark}^", column + 1);
    Error { at: at as u64, kind: ErrorKind::Text { what: "CTF metadata", reason } }
}
