//! `execution?recording=N&thread=TID&number=N|time=NS&step=over&by=line&back=1`: the call stack, source and code at a position
//! of a thread, after a step or a search.

use crate::{
    answer::{Answer, Endpoint, Failure, Question, Work},
    walk::{CodePlace, From, To, Walk},
};

// A step decodes one chunk. The first question reads the whole recording once; it does not wait for other passes, as the
// reader waits for it.
pub(super) const ENDPOINTS: &[Endpoint] =
    &[Endpoint { path: "execution", work: Work::Query, answer: execution }];

fn execution(question: &Question<'_>) -> Result<Answer, Failure> {
    let walk = walk(question)?;
    let seen = question.session.inputs.execution(&walk, question.stop)?;
    seen.map_or(Err(Failure::Stopped), |seen| Answer::json(&seen))
}

fn walk(question: &Question<'_>) -> Result<Walk, Failure> {
    let number = |name: &str| match question.text(name) {
        "" => Ok(None),
        _ => question.number(name).map(Some),
    };
    let is = |name: &str| !question.text(name).is_empty();
    let thread = if is("thread") { Some(question.number("thread")?) } else { None };
    let from = match (number("number")?, number("time")?) {
        (Some(number), _) => From::Number { number, gap: is("gap") },
        (None, Some(time)) => From::Time(time),
        _ if is("instant") => From::Instant(question.text("instant").to_owned()),
        _ if question.text("from") == "end" => From::End,
        _ => From::Begin,
    };
    let back = is("back");
    let to = match (question.text("step"), place(question)?) {
        ("gap", _) => To::Gap { back },
        ("", Some(place)) => To::Execution { place, back },
        ("", None) => To::Here,
        (motion, _) => To::Step { motion: motion.to_owned(), by: question.text("by").to_owned(), back },
    };
    let recording = if is("recording") { question.number("recording")? } else { 0 };
    let frame = if is("frame") { question.number("frame")? } else { 0 };
    Ok(Walk { recording, thread, from, to, frame })
}

fn place(question: &Question<'_>) -> Result<Option<CodePlace>, Failure> {
    let named = [question.text("function"), question.text("line"), question.text("module")];
    Ok(match named {
        ["", "", ""] => None,
        [function, "", ""] => Some(CodePlace::Function(function.to_owned())),
        ["", line, ""] => Some(CodePlace::Line(line.to_owned())),
        _ => {
            let taken = match question.text("taken") {
                "" => None,
                taken => Some(taken == "1"),
            };
            let text = question.text("offset");
            let offset = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let wrong = || Failure::Refused(format!("offset={text}: expected 0x and a place"));
            let (module, offset) = (question.number("module")?, offset.ok_or_else(wrong)?);
            Some(CodePlace::Instruction { module, offset, taken })
        }
    })
}
