//! Parses the file of a case.

use hodo_intel_pt::{Config, Cpu};

use crate::Error;

/// A parsed case.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The processor, and the settings that packets do not contain.
    pub config: Config,
    /// The decoders that are known to decode this case differently.
    pub differs: Vec<Differs<'a>>,
    /// The code, in order of time.
    pub code: Vec<Code<'a>>,
    /// The lines of packets.
    pub packets: Vec<Line<'a>>,
    /// The expected lines.
    pub expected: &'a str,
    /// Everything before `expected`.
    pub head: &'a str,
}

/// A line of a file, without its comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its number in the file; the first is 1.
    pub number: usize,
    /// Its text.
    pub text: &'a str,
}

/// A decoder that decodes a case differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differs<'a> {
    /// Its name.
    pub decoder: &'a str,
    /// The reason.
    pub reason: &'a str,
}

/// Code as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code<'a> {
    /// The number of the line before this code.
    pub line: usize,
    /// The tick from which this code is mapped.
    pub from: u64,
    /// The owner of the code.
    pub owner: Owner,
    /// The source for the assembler.
    pub source: &'a str,
}

/// The owner of the address space of some code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// The traced program. It belongs to the host, or to a guest that has no separate code.
    #[default]
    Traced,
    /// The host.
    Host,
    /// The guest with this VMCS, or any guest.
    Guest(Option<u64>),
}

/// A section of a file, which begins with a name in brackets; the first section has no name.
struct Section<'a> {
    /// The number of the line before this section's body.
    line: usize,
    name: &'a str,
    body: &'a str,
}

impl<'a> Case<'a> {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// The first line that is not understood.
    pub fn parse(text: &'a str) -> Result<Case<'a>, Error> {
        let mut case = Case {
            config: Config { tsc: true, ..Config::default() },
            differs: Vec::new(),
            code: Vec::new(),
            packets: Vec::new(),
            expected: "",
            head: text,
        };
        for section in sections(text) {
            let mut lines = section.lines();
            match section.name.split_once(' ').unwrap_or((section.name, "")) {
                ("", _) => lines.try_for_each(|line| case.setting(line))?,
                ("code", options) => {
                    let expected =
                        "expected [code], with from=TICK, host, guest or guest=VMCS in it, in hexadecimal";
                    case.code.push(section.code(options).ok_or_else(|| Error::new(section.line, expected))?);
                }
                ("packets", "") => case.packets.extend(lines),
                ("expect", "") => {
                    case.head = &text[..text.len() - section.body.len()];
                    case.expected = section.body;
                }
                _ => return Err(Error::new(section.line, "expected [code], [packets] or [expect]")),
            }
        }
        if case.head.len() == text.len() && !text.ends_with("[expect]\n") {
            return Err(Error::new(text.lines().count(), "the last section must be [expect]"));
        }
        Ok(case)
    }

    /// Parses a line before the first section.
    fn setting(&mut self, Line { number, text }: Line<'a>) -> Result<(), Error> {
        let (name, value) = text.split_once(' ').unwrap_or((text, ""));
        let value = value.trim();
        let wrong = |expected: &str| Error::new(number, format!("expected {expected}, found `{value}`"));
        match name {
            "cpu" => self.config.cpu = Some(cpu(value).ok_or_else(|| wrong("family/model/stepping"))?),
            "filter" => self.config.filter = value.to_owned(),
            "differs" => {
                let (decoder, reason) = value.split_once(": ").ok_or_else(|| wrong("a decoder: why"))?;
                self.differs.push(Differs { decoder, reason });
            }
            "config" => value.split_whitespace().try_for_each(|word| {
                config(&mut self.config, word).ok_or_else(|| {
                    Error::new(number, format!("`{word}` is not a setting, or has an invalid value"))
                })
            })?,
            _ => return Err(Error::new(number, "expected cpu, config, filter, differs, or a section")),
        }
        Ok(())
    }
}

/// The sections of a file; [expect] is the last one, whatever its lines look like.
fn sections(text: &str) -> Vec<Section<'_>> {
    let mut sections = vec![Section { line: 0, name: "", body: text }];
    let mut end = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let start = end;
        end += line.len();
        let Some(name) = line.strip_prefix('[').and_then(|line| before_comment(line).strip_suffix(']'))
        else {
            continue;
        };
        if let Some(before) = sections.last_mut() {
            before.body = &before.body[..before.body.len() - (text.len() - start)];
        }
        sections.push(Section { line: index + 1, name, body: &text[end..] });
        if name == "expect" {
            break;
        }
    }
    sections
}

impl<'a> Section<'a> {
    fn code(&self, options: &str) -> Option<Code<'a>> {
        let hex = |number: &str| u64::from_str_radix(number, 16).ok();
        let mut code = Code { line: self.line, from: 0, owner: Owner::Traced, source: self.body };
        for option in options.split_whitespace() {
            match option.split_once('=').unwrap_or((option, "")) {
                ("from", tick) => code.from = hex(tick)?,
                ("host", "") => code.owner = Owner::Host,
                ("guest", "") => code.owner = Owner::Guest(None),
                ("guest", vmcs) => code.owner = Owner::Guest(Some(hex(vmcs)?)),
                _ => return None,
            }
        }
        Some(code)
    }

    /// The lines without comments and empty lines.
    fn lines(&self) -> impl Iterator<Item = Line<'a>> + use<'a> {
        let lines = (self.line + 1..).zip(self.body.lines());
        let lines = lines.map(|(number, line)| Line { number, text: before_comment(line) });
        lines.filter(|line| !line.text.is_empty())
    }
}

fn before_comment(line: &str) -> &str {
    line.split(';').next().unwrap_or(line).trim()
}

fn cpu(value: &str) -> Option<Cpu> {
    let mut parts = value.split('/');
    let cpu = Cpu {
        family: parts.next()?.parse().ok()?,
        model: parts.next()?.parse().ok()?,
        stepping: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(cpu)
}

/// Parses a setting, which has the name that perf uses.
fn config(config: &mut Config, word: &str) -> Option<()> {
    match word.split_once('=').unwrap_or((word, "")) {
        ("noretcomp", "") => config.no_return_compression = true,
        ("notnt", "") => config.no_tnt = true,
        ("nobranch", "") => config.no_branches = true,
        ("cyc", "") => config.cyc = true,
        ("mtc_period", period) => config.mtc_frequency = Some(period.parse().ok()?),
        ("tsc_ctc_ratio", ratio) => {
            let (numerator, denominator) = ratio.split_once('/')?;
            config.tsc_ctc_ratio = Some((numerator.parse().ok()?, denominator.parse().ok()?));
        }
        ("max_nonturbo_ratio", ratio) => config.max_nonturbo_ratio = Some(ratio.parse().ok()?),
        _ => return None,
    }
    Some(())
}
