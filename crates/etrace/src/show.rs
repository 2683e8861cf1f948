//! Packets and messages as text, with the names of the specifications.

use std::{fmt, ops::Range};

use crate::{
    Settings,
    ntrace::{Branch, Form, Message, Messages, Resource, Synchronization},
    packet::{BranchMap, Context, Options, Packet, Prediction, Qualification, Reported, Support},
    transport::{Kind, Units},
};

impl Settings {
    /// Passes each packet or message that begins in a span of a stream to `line`: its bytes, and what it says, or why the
    /// bytes are none. `options` are those in force at the begin.
    pub fn show(
        &self,
        stream: &[u8],
        span: Range<usize>,
        options: Options,
        line: &mut dyn FnMut(Range<usize>, &str),
    ) {
        match self {
            Settings::ETrace(configuration) => {
                let mut options = options;
                let mut units = Units::new(stream, span.start, configuration.transport);
                while units.position() < span.end {
                    let from = units.position();
                    let (at, text) = match units.next_unit() {
                        Ok(None) => return,
                        Err(error) => (from, format!("# {error}")),
                        Ok(Some(unit)) if unit.kind != Kind::Instruction => {
                            (unit.at, "# no instruction trace".to_owned())
                        }
                        Ok(Some(unit)) => {
                            let parameters = &configuration.parameters;
                            let packet = Packet::decode_after(unit.payload, unit.skip, parameters, options);
                            if let Ok(Packet::Support(support)) = packet {
                                options = support.options;
                            }
                            let text =
                                packet.map_or_else(|error| format!("# {error}"), |packet| packet.to_string());
                            (unit.at, with_source(text, unit.source, unit.time))
                        }
                    };
                    line(at..units.position(), &text);
                }
            }
            Settings::NTrace(configuration) => {
                let mut messages = Messages::new(stream, span.start, configuration.source_width);
                while messages.position() < span.end {
                    let from = messages.position();
                    let (at, text) = match messages.next_message() {
                        Ok(None) => return,
                        Err(error) => (from, format!("# {error}")),
                        Ok(Some(unit)) => {
                            (unit.at, with_source(unit.message.to_string(), unit.source, unit.time))
                        }
                    };
                    line(at..messages.position(), &text);
                }
            }
        }
    }
}

fn with_source(text: String, source: u16, time: Option<u64>) -> String {
    let source = if source > 0 { format!(" source {source}") } else { String::new() };
    let time = time.map_or_else(String::new, |time| format!(" time {time:x}"));
    text + &source + &time
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Packet::Start(start) => {
                let taken = if start.taken { " taken" } else { "" };
                write!(f, "START {:x}{taken}{}", start.address, start.context)
            }
            Packet::Trap(trap) => {
                let kind = if trap.is_interrupt { "INTERRUPT" } else { "EXCEPTION" };
                write!(f, "TRAP {kind} {}", trap.cause)?;
                let at = if trap.is_handler { "handler" } else { "at" };
                trap.address.map_or(Ok(()), |address| write!(f, " {at} {address:x}"))?;
                trap.value.map_or(Ok(()), |value| write!(f, " value {value:x}"))?;
                write!(f, "{}", trap.context)
            }
            Packet::Context(context) => write!(f, "CONTEXT{context}"),
            Packet::Support(support) => support.fmt(f),
            Packet::Address(reported) => write!(f, "ADDRESS{reported}"),
            Packet::Branches { map, reported } => {
                write!(f, "BRANCHES {map}")?;
                reported.map_or(Ok(()), |reported| write!(f, " ADDRESS{reported}"))
            }
            Packet::Predicted { count, end } => {
                write!(f, "PREDICTED {count}")?;
                match end {
                    Prediction::Failed => f.write_str(" then failed"),
                    Prediction::Address(reported) => write!(f, " ADDRESS{reported}"),
                    Prediction::FailedAt(reported) => write!(f, " then failed ADDRESS{reported}"),
                }
            }
            Packet::Cached { index, map, depth } => {
                write!(f, "CACHED {index}")?;
                if map.count > 0 {
                    write!(f, " BRANCHES {map}")?;
                }
                depth.map_or(Ok(()), |depth| write!(f, " depth {depth}"))
            }
        }
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.enabled { "SUPPORT on" } else { "SUPPORT off" })?;
        f.write_str(match self.qualification {
            Qualification::Unchanged => "",
            Qualification::EndedReported => " ended, reported",
            Qualification::Lost => " packets lost",
            Qualification::Ended => " ended",
        })?;
        let options = self.options;
        let names = [
            (options.implicit_return, " implicit-return"),
            (options.implicit_exception, " implicit-exception"),
            (options.full_address, " full-address"),
            (options.jump_target_cache, " jump-target-cache"),
            (options.branch_prediction, " branch-prediction"),
            (options.sijump, " sijump"),
        ];
        names.iter().filter(|(is_set, _)| *is_set).try_for_each(|(_, name)| f.write_str(name))
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " privilege {}", self.privilege)?;
        self.time.map_or(Ok(()), |time| write!(f, " time {time:x}"))?;
        self.context.map_or(Ok(()), |context| write!(f, " context {context:x}"))
    }
}

impl fmt::Display for BranchMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..self.count)
            .try_for_each(|index| f.write_str(if self.not_taken >> index & 1 == 1 { "N" } else { "T" }))
    }
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}{:x}", if self.address < 0 { "-" } else { "+" }, self.address.unsigned_abs())?;
        f.write_str(if self.notify { " notify" } else { "" })?;
        f.write_str(if self.updiscon { " updiscon" } else { "" })?;
        self.depth.map_or(Ok(()), |depth| write!(f, " depth {depth}"))
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Message::Ownership { process } => write!(f, "OWNERSHIP {process:x}"),
            Message::DirectBranch { count } => write!(f, "DIRECT BRANCH count {count}"),
            Message::IndirectBranch(Branch { kind, count, address, history }) => {
                write!(
                    f,
                    "INDIRECT BRANCH type {kind} count {count} address ^{address:x}{}",
                    History(history)
                )
            }
            Message::Error { kind, code } => write!(f, "ERROR {kind} {code:x}"),
            Message::Synchronization(Synchronization { form, reason, count, address }) => {
                match form {
                    Form::Program => f.write_str("PROGRAM TRACE SYNC"),
                    Form::Direct => f.write_str("DIRECT BRANCH SYNC"),
                    Form::Indirect { kind, .. } => write!(f, "INDIRECT BRANCH SYNC type {kind}"),
                }?;
                write!(f, " reason {reason} count {count} address {:x}", address << 1)?;
                if let Form::Indirect { history, .. } = form {
                    write!(f, "{}", History(history))
                } else {
                    Ok(())
                }
            }
            Message::ResourceFull(Resource::Count(count)) => write!(f, "RESOURCE FULL count {count}"),
            Message::ResourceFull(Resource::History(history)) => {
                write!(f, "RESOURCE FULL{}", History(Some(history)))
            }
            Message::ResourceFull(Resource::Repeated { history, times }) => {
                write!(f, "RESOURCE FULL{} times {times}", History(Some(history)))
            }
            Message::RepeatBranch { count } => write!(f, "REPEAT BRANCH {count}"),
            Message::Correlation { event, count, history } => {
                write!(f, "CORRELATION event {event} count {count}{}", History(history))
            }
        }
    }
}

/// The outcomes of branches, the oldest first, as the bits after the highest one.
struct History(Option<u64>);

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(history) = self.0 else { return Ok(()) };
        f.write_str(" history ")?;
        let count = history.checked_ilog2().unwrap_or(0);
        (0..count).rev().try_for_each(|bit| f.write_str(if history >> bit & 1 == 1 { "T" } else { "N" }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Start;

    #[test]
    fn packets_have_the_names_of_the_specification() {
        let context = Context { privilege: 3, time: Some(0x10), context: None };
        let reported = Reported { address: -4, notify: false, updiscon: true, depth: None };
        let map = BranchMap { count: 3, not_taken: 0b100 };
        let shown = [
            (
                Packet::Start(Start { taken: true, context, address: 0x8000 }),
                "START 8000 taken privilege 3 time 10",
            ),
            (Packet::Branches { map, reported: Some(reported) }, "BRANCHES TTN ADDRESS -4 updiscon"),
            (Packet::Predicted { count: 40, end: Prediction::Failed }, "PREDICTED 40 then failed"),
        ];
        for (packet, text) in shown {
            assert_eq!(packet.to_string(), text);
        }
        let branch = Branch { kind: 0, count: 3, address: 0x10, history: Some(0b1011) };
        assert_eq!(
            Message::IndirectBranch(branch).to_string(),
            "INDIRECT BRANCH type 0 count 3 address ^10 history NTT"
        );
    }

    #[test]
    fn each_packet_of_a_stream_is_shown() {
        let settings = Settings::NTrace(crate::ntrace::Configuration::default());
        let mut stream = vec![0xff];
        Message::DirectBranch { count: 3 }.write(0, 0, None, &mut stream);
        let end = stream.len();
        stream.extend([0xff, 0x00]);
        let mut lines = Vec::new();
        settings.show(&stream, 0..stream.len(), Options::default(), &mut |bytes, text| {
            lines.push((bytes, text.to_owned()));
        });
        let expected = [
            (1..end, "DIRECT BRANCH count 3".to_owned()),
            (end..end + 2, "# the stream ends within a message of 1 bytes".to_owned()),
        ];
        assert_eq!(lines, expected);
    }
}
