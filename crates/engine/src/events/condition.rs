//! `--where`: conditions on fields.
//!
//! ```text
//! condition := all ("or" all)*      all := one ("and" one)*
//! one := "not" one | "(" condition ")" | field operator literal
//! ```

use std::cmp::Ordering;

use hodo_formats::events::{Event, FieldPath};
use hodo_model::event::{FieldSink, Meaning, Name};
use winnow::{
    ModalResult, Parser,
    ascii::{digit1, hex_digit1, multispace0},
    combinator::{alt, cut_err, delimited, fail, opt, preceded, repeat},
    token::{literal, none_of, one_of, take_while},
};

/// Maximum nesting depth.
const DEEPEST: u32 = 64;

/// A predicate on events.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// All of these.
    All(Vec<Condition>),
    /// At least one of these.
    Any(Vec<Condition>),
    /// Not this.
    Not(Box<Condition>),
    /// A comparison of a field. False if the event has no such field.
    Compare {
        /// The path of the field, outermost name first.
        field: Vec<String>,
        /// The operator.
        operator: Operator,
        /// The value to compare with.
        literal: Literal,
        /// Whether only contexts are searched.
        in_context: bool,
    },
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `=~`: text that matches a pattern with `*` and `?`.
    Like,
}

/// A literal of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// A number.
    Integer(i128),
    /// A floating-point number.
    Real(f64),
    /// Text, or a label of an enumeration.
    Text(String),
}

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// Returns the expected syntax, with a mark below the position of the error.
    pub fn parse(text: &str) -> Result<Condition, String> {
        let mut input = text;
        let result =
            delimited(multispace0, |input: &mut _| any(input, 0), multispace0).parse_next(&mut input);
        match result {
            Ok(condition) if input.is_empty() => Ok(condition),
            _ => {
                let column = text[..text.len() - input.len()].chars().count();
                let mark = " ".repeat(column);
                Err(format!(
                    "expected a condition such as `ret < 0 and (name == \"x\" or not fd == 3)`\n    {text}\n    {mark}^"
                ))
            }
        }
    }

    /// A condition that a field is one of these numbers.
    pub(super) fn one_of(field: &str, numbers: &[u32], in_context: bool) -> Condition {
        let equal = |&number: &u32| Condition::Compare {
            field: vec![field.to_owned()],
            operator: Operator::Equal,
            literal: Literal::Integer(number.into()),
            in_context,
        };
        Condition::Any(numbers.iter().map(equal).collect())
    }

    /// A condition that a context field is one of these texts.
    pub(super) fn one_name(field: &str, names: &[String]) -> Condition {
        let equal = |name: &String| Condition::Compare {
            field: vec![field.to_owned()],
            operator: Operator::Equal,
            literal: Literal::Text(name.clone()),
            in_context: true,
        };
        Condition::Any(names.iter().map(equal).collect())
    }
}

type Input<'t> = &'t str;

/// A parser that skips leading blanks.
fn token<'t, O>(
    parser: impl Parser<Input<'t>, O, winnow::error::ErrMode<winnow::error::ContextError>>,
) -> impl Parser<Input<'t>, O, winnow::error::ErrMode<winnow::error::ContextError>> {
    preceded(multispace0, parser)
}

/// A whole word.
fn word<'t>(
    word: &'static str,
) -> impl Parser<Input<'t>, (), winnow::error::ErrMode<winnow::error::ContextError>> {
    move |input: &mut Input<'t>| {
        token(take_while(1.., is_name)).verify(|found: &str| found == word).void().parse_next(input)
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '$' | '@')
}

fn any(input: &mut Input<'_>, depth: u32) -> ModalResult<Condition> {
    if depth > DEEPEST {
        return cut_err(fail).parse_next(input);
    }
    let first = all(input, depth)?;
    let or = alt((word("or"), token("||").void()));
    let others: Vec<_> =
        repeat(0.., preceded(or, cut_err(|input: &mut _| all(input, depth)))).parse_next(input)?;
    Ok(joined(first, others, Condition::Any))
}

fn all(input: &mut Input<'_>, depth: u32) -> ModalResult<Condition> {
    let first = one(input, depth)?;
    let and = alt((word("and"), token("&&").void()));
    let others: Vec<_> =
        repeat(0.., preceded(and, cut_err(|input: &mut _| one(input, depth)))).parse_next(input)?;
    Ok(joined(first, others, Condition::All))
}

fn joined(first: Condition, others: Vec<Condition>, join: fn(Vec<Condition>) -> Condition) -> Condition {
    if others.is_empty() { first } else { join(std::iter::once(first).chain(others).collect()) }
}

fn one(input: &mut Input<'_>, depth: u32) -> ModalResult<Condition> {
    if depth > DEEPEST {
        return cut_err(fail).parse_next(input);
    }
    let not = alt((word("not"), token(('!', winnow::combinator::not('='))).void()));
    let negated = preceded(not, cut_err(|input: &mut _| one(input, depth + 1)));
    let nested = delimited(token("("), cut_err(|input: &mut _| any(input, depth + 1)), cut_err(token(")")));
    alt((negated.map(|condition| Condition::Not(Box::new(condition))), nested, compare)).parse_next(input)
}

fn compare(input: &mut Input<'_>) -> ModalResult<Condition> {
    let field = token(take_while(1.., is_name)).verify(|name: &str| !["and", "or", "not"].contains(&name));
    let (field, operator, literal) =
        (field, cut_err(token(operator)), cut_err(token(value))).parse_next(input)?;
    let field = field.split('.').map(str::to_owned).collect();
    Ok(Condition::Compare { field, operator, literal, in_context: false })
}

fn operator(input: &mut Input<'_>) -> ModalResult<Operator> {
    alt((
        "==".value(Operator::Equal),
        "=~".value(Operator::Like),
        "!=".value(Operator::Unequal),
        "<=".value(Operator::AtMost),
        ">=".value(Operator::AtLeast),
        "<".value(Operator::Less),
        ">".value(Operator::Greater),
        "=".value(Operator::Equal),
    ))
    .parse_next(input)
}

fn value(input: &mut Input<'_>) -> ModalResult<Literal> {
    let escaped = |quote: char| {
        let part = alt((preceded('\\', one_of(['\\', '"', '\''])), none_of([quote, '\\'])));
        delimited(
            quote,
            repeat(0.., part).fold(String::new, |mut text, c| {
                text.push(c);
                text
            }),
            quote,
        )
    };
    let sign = opt(one_of(['-', '+'])).map(|sign| sign == Some('-'));
    let hexadecimal =
        preceded(literal("0x"), hex_digit1).try_map(|digits: &str| i128::from_str_radix(digits, 16));
    let decimal = digit1.try_map(|digits: &str| digits.parse::<i128>());
    let fraction = (digit1, '.', digit1).take().try_map(|digits: &str| digits.parse::<f64>());
    let number =
        alt((fraction.map(Literal::Real), hexadecimal.map(Literal::Integer), decimal.map(Literal::Integer)));
    let number = (sign, number).map(|(negative, number)| match number {
        Literal::Integer(integer) if negative => Literal::Integer(-integer),
        Literal::Real(real) if negative => Literal::Real(-real),
        number => number,
    });
    let bare = take_while(1.., is_name).map(|text: &str| match text {
        "true" => Literal::Integer(1),
        "false" => Literal::Integer(0),
        text => Literal::Text(text.to_owned()),
    });
    alt((escaped('"').map(Literal::Text), escaped('\'').map(Literal::Text), number, bare)).parse_next(input)
}

/// A condition bound to the fields of an event class.
#[derive(Clone, Debug)]
pub(super) enum Test {
    All(Vec<Test>),
    Any(Vec<Test>),
    Not(Box<Test>),
    Compare(Box<FieldPath>, Operator, Literal),
    /// The class has no such field.
    Never,
}

impl Test {
    /// Binds a condition to an event class; `find` resolves a field.
    pub(super) fn bind(condition: &Condition, find: &impl Fn(&[&str], bool) -> Option<FieldPath>) -> Test {
        let each = |conditions: &[Condition]| {
            conditions.iter().map(|condition| Test::bind(condition, find)).collect()
        };
        match condition {
            Condition::All(conditions) => Test::All(each(conditions)),
            Condition::Any(conditions) => Test::Any(each(conditions)),
            Condition::Not(condition) => Test::Not(Box::new(Test::bind(condition, find))),
            Condition::Compare { field, operator, literal, in_context } => {
                let names: Vec<&str> = field.iter().map(String::as_str).collect();
                find(&names, *in_context)
                    .map_or(Test::Never, |path| Test::Compare(Box::new(path), *operator, literal.clone()))
            }
        }
    }

    /// Returns whether no event of the class can satisfy the condition.
    pub(super) fn is_never(&self) -> bool {
        match self {
            Test::Never => true,
            Test::All(tests) => tests.iter().any(Test::is_never),
            Test::Any(tests) => tests.iter().all(Test::is_never),
            Test::Not(_) | Test::Compare(..) => false,
        }
    }

    /// Returns whether an event satisfies the condition.
    pub(super) fn holds(&self, event: &Event<'_, '_, '_>) -> bool {
        match self {
            Test::Never => false,
            Test::All(tests) => tests.iter().all(|test| test.holds(event)),
            Test::Any(tests) => tests.iter().any(|test| test.holds(event)),
            Test::Not(test) => !test.holds(event),
            Test::Compare(path, operator, literal) => {
                let mut comparison = Comparison { operator: *operator, literal, holds: false };
                // A comparison with an unreadable field is false.
                event.emit_field(path, &mut comparison).is_ok() && comparison.holds
            }
        }
    }
}

/// Compares the field that it receives with a literal. One element of an array that satisfies the comparison is enough.
struct Comparison<'l> {
    operator: Operator,
    literal: &'l Literal,
    holds: bool,
}

impl Comparison<'_> {
    /// Applies the operator to how the value compares with the literal; `None` if they can't be compared.
    fn ordered(&mut self, ordering: Option<Ordering>) {
        let Some(ordering) = ordering else { return };
        self.holds |= match self.operator {
            Operator::Equal => ordering.is_eq(),
            Operator::Unequal => ordering.is_ne(),
            Operator::Less => ordering.is_lt(),
            Operator::AtMost => ordering.is_le(),
            Operator::Greater => ordering.is_gt(),
            Operator::AtLeast => ordering.is_ge(),
            Operator::Like => false,
        };
    }

    fn integer(&mut self, value: i128, meaning: &Meaning) {
        match self.literal {
            Literal::Integer(literal) => self.ordered(Some(value.cmp(literal))),
            Literal::Real(literal) => self.ordered((value as f64).partial_cmp(literal)),
            Literal::Text(text) => {
                let mut labels = meaning.labels_of(value);
                self.holds |= match self.operator {
                    Operator::Equal => labels.any(|label| label == text),
                    Operator::Unequal => labels.all(|label| label != text),
                    Operator::Like => labels.any(|label| is_like(label.as_bytes(), text.as_bytes())),
                    // Labels have no order.
                    Operator::Less | Operator::AtMost | Operator::Greater | Operator::AtLeast => false,
                };
            }
        }
    }
}

impl FieldSink for Comparison<'_> {
    fn unsigned(&mut self, _: Name<'_>, value: u64, meaning: &Meaning) {
        self.integer(value.into(), meaning);
    }

    fn signed(&mut self, _: Name<'_>, value: i64, meaning: &Meaning) {
        self.integer(value.into(), meaning);
    }

    fn real(&mut self, _: Name<'_>, value: f64) {
        match self.literal {
            Literal::Integer(literal) => self.ordered(value.partial_cmp(&(*literal as f64))),
            Literal::Real(literal) => self.ordered(value.partial_cmp(literal)),
            Literal::Text(_) => {}
        }
    }

    fn boolean(&mut self, _: Name<'_>, value: bool) {
        if let Literal::Integer(literal) = self.literal {
            self.ordered(Some(i128::from(value).cmp(literal)));
        }
    }

    fn text(&mut self, _: Name<'_>, text: &[u8]) {
        let Literal::Text(literal) = self.literal else { return };
        match self.operator {
            Operator::Like => self.holds |= is_like(text, literal.as_bytes()),
            _ => self.ordered(Some(text.cmp(literal.as_bytes()))),
        }
    }
}

/// Returns whether text matches a pattern in which `*` matches any bytes and `?` any one byte.
pub(crate) fn is_like(text: &[u8], pattern: &[u8]) -> bool {
    let (mut text_index, mut pattern_index) = (0, 0);
    // The index of the last `*`, and the end of the text that it matches so far.
    let mut star: Option<(usize, usize)> = None;
    while text_index < text.len() {
        match pattern.get(pattern_index) {
            Some(b'*') => {
                star = Some((pattern_index, text_index));
                pattern_index += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[text_index] => {
                (text_index, pattern_index) = (text_index + 1, pattern_index + 1);
            }
            _ => match &mut star {
                Some((star_index, end)) => {
                    *end += 1;
                    (text_index, pattern_index) = (*end, *star_index + 1);
                }
                None => return false,
            },
        }
    }
    pattern[pattern_index..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use hodo_model::event::Label;

    use super::*;

    fn compare(field: &str, operator: Operator, literal: Literal) -> Condition {
        let field = field.split('.').map(str::to_owned).collect();
        Condition::Compare { field, operator, literal, in_context: false }
    }

    #[test]
    fn not_binds_closer_than_and_which_binds_closer_than_or() {
        let (a, b) = (
            compare("a", Operator::Equal, Literal::Integer(-1)),
            compare("b.c", Operator::Like, Literal::Text("x*".into())),
        );
        let c = compare("not_c", Operator::AtMost, Literal::Real(1.5));
        let expected = Condition::Any(vec![a.clone(), Condition::All(vec![Condition::Not(Box::new(b)), c])]);
        assert_eq!(Condition::parse("a==-1 or not b.c =~ 'x*' && not_c <= 1.5"), Ok(expected));
        assert_eq!(Condition::parse(" ((a == -0x1)) "), Ok(a));
        assert_eq!(
            Condition::parse("ph = NEG"),
            Ok(compare("ph", Operator::Equal, Literal::Text("NEG".into())))
        );
    }

    #[test]
    fn incomplete_and_too_deeply_nested_conditions_are_refused() {
        for text in ["", "a", "a ==", "a == 1 b", "(a == 1", "a == 1 or", "not", "a == \"x", "and == 1"] {
            assert!(Condition::parse(text).is_err(), "{text}");
        }
        assert!(Condition::parse(&"(".repeat(100_000)).is_err());
        assert!(Condition::parse(&"not ".repeat(100_000)).is_err());
    }

    #[test]
    fn a_label_is_equal_or_not_but_has_no_order() {
        let label = Label { name: "READ".to_owned(), ranges: vec![1..=1] };
        let meaning = Meaning { labels: vec![label], ..Meaning::default() };
        let holds = |value, operator, text: &str| {
            let literal = Literal::Text(text.to_owned());
            let mut comparison = Comparison { operator, literal: &literal, holds: false };
            comparison.unsigned(Name::Member("mode"), value, &meaning);
            comparison.holds
        };
        assert!(holds(1, Operator::Equal, "READ") && !holds(2, Operator::Equal, "READ"));
        assert!(!holds(1, Operator::Unequal, "READ") && holds(2, Operator::Unequal, "READ"));
        assert!(holds(1, Operator::Like, "R*") && !holds(1, Operator::Like, "W*"));
        for operator in [Operator::Less, Operator::AtMost, Operator::Greater, Operator::AtLeast] {
            assert!(!holds(1, operator, "READ") && !holds(2, operator, "READ"), "{operator:?}");
        }
    }

    #[test]
    fn a_star_matches_any_bytes_and_a_question_mark_one() {
        for (text, pattern, expected) in [
            ("sched_switch", "sched_*", true),
            ("sched_switch", "*s?itch", true),
            ("sched_switch", "sched", false),
            ("", "*", true),
            ("ab", "a*b*", true),
            ("aab", "a*ab", true),
            ("x", "", false),
        ] {
            assert_eq!(is_like(text.as_bytes(), pattern.as_bytes()), expected, "{text} {pattern}");
        }
    }
}
