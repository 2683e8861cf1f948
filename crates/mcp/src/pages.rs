//! Long answers in parts, each no longer than the client can take.

use std::collections::VecDeque;

use crate::Answer;

/// Answers that are kept for their further parts.
const KEPT: usize = 16;

/// The last answers that were longer than one part.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    answers: VecDeque<Kept>,
    last_number: u64,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    answer: Answer,
    /// The bytes that were told already.
    told: usize,
}

impl Pages {
    /// Returns the first part of an answer, at most `most` bytes; keeps the rest.
    pub(crate) fn first(&mut self, answer: Answer, most: usize) -> String {
        let whole = join(&answer.text, &trailer(&answer.next, None));
        if whole.len() <= most {
            return whole;
        }
        self.last_number += 1;
        if self.answers.len() == KEPT {
            self.answers.pop_front();
        }
        self.answers.push_back(Kept { number: self.last_number, answer, told: 0 });
        self.next(self.last_number, most).unwrap_or_default()
    }

    /// Returns the next part of a kept answer; `None` if it is told to its end, or not kept any more.
    pub(crate) fn next(&mut self, number: u64, most: usize) -> Option<String> {
        let index = self.answers.iter().position(|kept| kept.number == number)?;
        let kept = &mut self.answers[index];
        let (rest, total) = (&kept.answer.text[kept.told..], kept.answer.text.len());
        let last = join(rest, &trailer(&kept.answer.next, None));
        if last.len() <= most {
            self.answers.remove(index);
            return Some(last);
        }
        // The numbers at the end are no longer than these.
        let longest = trailer(&kept.answer.next, Some(&remark(total, total, total, number)));
        let length = cut(rest, most.saturating_sub(longest.len() + 1).max(1));
        let (from, to) = (kept.told, kept.told + length);
        kept.told = to;
        let remark = remark(from, to, total, number);
        Some(join(&rest[..length], &trailer(&kept.answer.next, Some(&remark))))
    }
}

fn remark(from: usize, to: usize, total: usize, number: u64) -> String {
    format!("(bytes {from} to {to} of {total})\nNext: continue {{\"answer\":{number}}}")
}

fn trailer(next: &[String], remark: Option<&str>) -> String {
    let calls = next.iter().map(|call| format!("Next: {call}"));
    let lines: Vec<String> = remark.map(str::to_owned).into_iter().chain(calls).collect();
    lines.join("\n")
}

fn join(text: &str, trailer: &str) -> String {
    let text = text.trim_end_matches('\n');
    match (text, trailer) {
        ("", _) => trailer.to_owned(),
        (_, "") => text.to_owned(),
        _ => format!("{text}\n{trailer}"),
    }
}

/// The number of bytes of a text, at most `most`, that end with a line if one ends there, else with a character. At
/// least one character, so that every part goes on.
fn cut(text: &str, most: usize) -> usize {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    match text[..end].rfind('\n') {
        Some(line) => line + 1,
        None if end == 0 => text.chars().next().map_or(0, char::len_utf8),
        None => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Answer {
        Answer { text: text.to_owned(), next: vec!["info {}".to_owned()], failed: false }
    }

    #[test]
    fn a_short_answer_is_one_part() {
        assert_eq!(Pages::default().first(answer("yes\n"), 100), "yes\nNext: info {}");
    }

    #[test]
    fn the_parts_of_a_long_answer_are_the_answer() {
        let lines: Vec<String> = (0..500).map(|n| format!("line {n} – with a dash")).collect();
        let text = lines.join("\n");
        for most in [120, 200, 1000] {
            let mut pages = Pages::default();
            let mut told = Vec::new();
            let mut part = pages.first(answer(&text), most);
            loop {
                assert!(part.len() <= most, "{} of {most}", part.len());
                told.extend(part.lines().filter(|line| line.starts_with("line")).map(str::to_owned));
                assert!(part.contains("Next: info {}"));
                if !part.contains("Next: continue {\"answer\":1}") {
                    break;
                }
                part = pages.next(1, most).expect("a further part");
            }
            assert_eq!(told, lines);
            assert_eq!(pages.next(1, most), None);
        }
    }

    #[test]
    fn a_line_that_is_longer_than_a_part_is_cut_between_characters() {
        let text = "–".repeat(1000);
        let mut pages = Pages::default();
        let mut part = pages.first(answer(&text), 150);
        let mut count = 0;
        loop {
            count += part.matches('–').count();
            if !part.contains("continue") {
                break;
            }
            part = pages.next(1, 150).expect("a further part");
        }
        assert_eq!(count, 1000);
    }
}
