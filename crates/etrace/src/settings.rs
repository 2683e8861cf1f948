//! A stream of either protocol.

use std::ops::Range;

use hodo_clock::Tsc;
use hodo_code::{Labels, Program};
use hodo_flow::{Sink, Switch};
use hodo_isa::Isa;

use crate::{
    Configuration, ParameterError, flow,
    ntrace::{self, Message, Messages},
    packet::{Options, Packet},
    transport::Units,
};

/// What a decoder must know of a stream, which the stream does not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settings {
    /// E-Trace.
    ETrace(Configuration),
    /// N-Trace.
    NTrace(ntrace::Configuration),
}

/// A position at which decoding can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The position.
    pub at: usize,
    /// The options of E-Trace before it.
    pub options: Options,
}

impl Default for Settings {
    /// Of the reference encoder of E-Trace.
    fn default() -> Settings {
        Settings::ETrace(Configuration::default())
    }
}

impl Settings {
    /// Reads settings from a TOML file: those of [`Configuration`], or, with `protocol = "n-trace"`, those of
    /// [`ntrace::Configuration`].
    ///
    /// # Errors
    /// What is wrong with the file, or which value is out of range.
    pub fn parse(text: &str) -> Result<Settings, ParameterError> {
        let file = |error: toml::de::Error| ParameterError::File(error.to_string().trim_end().to_owned());
        let mut table: toml::Table = toml::from_str(text).map_err(file)?;
        let protocol = table.remove("protocol").unwrap_or_else(|| "e-trace".into());
        let text = table.to_string();
        match protocol.as_str() {
            Some("e-trace") => Configuration::parse(&text).map(Settings::ETrace),
            Some("n-trace") => {
                let configuration: ntrace::Configuration = toml::from_str(&text).map_err(file)?;
                match configuration.source_width {
                    value @ 13.. => {
                        Err(ParameterError::Range { name: "source_width", value, low: 0, high: 12 })
                    }
                    _ => Ok(Settings::NTrace(configuration)),
                }
            }
            _ => Err(ParameterError::File(format!("protocol is \"e-trace\" or \"n-trace\", not {protocol}"))),
        }
    }

    /// Returns the hart's instruction set.
    pub fn isa(&self) -> Isa {
        match self {
            Settings::ETrace(configuration) => configuration.parameters.isa(),
            Settings::NTrace(configuration) => Isa::RiscV(configuration.set()),
        }
    }

    /// Returns the positions in a stream at which decoding can begin, in order.
    pub fn points(&self, stream: &[u8]) -> Vec<Point> {
        match self {
            Settings::ETrace(configuration) => {
                let points = flow::synchronization_points(stream, configuration);
                points.into_iter().map(|point| Point { at: point.at, options: point.options }).collect()
            }
            Settings::NTrace(configuration) => {
                let points = ntrace::synchronization_points(stream, configuration);
                points.into_iter().map(|at| Point { at, options: Options::default() }).collect()
            }
        }
    }

    /// Returns the time at a point, if its packet has one.
    pub fn time_at(&self, stream: &[u8], point: Point) -> Option<Tsc> {
        match self {
            Settings::ETrace(configuration) => {
                let mut units = Units::new(stream, point.at, configuration.transport);
                loop {
                    let unit = units.next_unit().ok()??;
                    let parameters = &configuration.parameters;
                    match Packet::decode_after(unit.payload, unit.skip, parameters, point.options).ok()? {
                        Packet::Support(_) => {}
                        Packet::Start(start) => return start.context.time.map(Tsc),
                        _ => return None,
                    }
                }
            }
            Settings::NTrace(configuration) => {
                let unit =
                    Messages::new(stream, point.at, configuration.source_width).next_message().ok()??;
                matches!(unit.message, Message::Synchronization(_)).then_some(unit.time?).map(Tsc)
            }
        }
    }

    /// Decodes a chunk of a stream: from a point to another one, or to the end. `schedule` lists the programs in order of time
    /// and must not be empty; of N-Trace, the first one is that of the whole chunk.
    pub fn decode<L: Labels>(
        &self,
        stream: &[u8],
        span: Range<usize>,
        options: Options,
        programs: &mut [Program<'_, L>],
        schedule: &[Switch],
        sink: &mut impl Sink,
    ) {
        match self {
            Settings::ETrace(configuration) => {
                let decoder = flow::Decoder::new(stream, span, configuration, options);
                decoder.decode_scheduled(programs, schedule, sink);
            }
            Settings::NTrace(configuration) => {
                let program = &mut programs[schedule[0].program];
                ntrace::Decoder::new(stream, span, configuration).decode(program, sink);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_decides_which_settings_there_are() {
        let parse = |text: &str| Settings::parse(text).map_err(|error| error.to_string());
        assert_eq!(parse(""), Ok(Settings::ETrace(Configuration::default())));
        let expected = ntrace::Configuration { source_width: 3, ..ntrace::Configuration::default() };
        assert_eq!(parse("protocol = \"n-trace\"\nsource_width = 3"), Ok(Settings::NTrace(expected)));
        let error = |text: &str| parse(text).expect_err("not valid");
        assert!(error("protocol = \"n-trace\"\n[parameters]\nsijump = true").contains("unknown field"));
        assert_eq!(
            error("protocol = \"n-trace\"\nsource_width = 13"),
            "source_width is 13, but must be 0 to 12"
        );
        assert_eq!(error("protocol = 1"), "protocol is \"e-trace\" or \"n-trace\", not 1");
        assert!(error("protocol = ").contains("expected"));
    }
}
