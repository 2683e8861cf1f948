//! What a decoder must know of a stream.

use serde::Deserialize;

use crate::{ParameterError, Parameters, transport::Transport};

/// How a stream is transported and what its encoder is like. As a file it is TOML:
///
/// ```
/// # let configuration = hodo_etrace::Configuration::parse(r#"
/// source = 1 # of several encoders in a stream
///
/// [transport]
/// kind = "encapsulation" # or "messages", "esp32"
/// source_width = 8
///
/// [parameters]
/// iaddress_width = 32
/// xlen = 32
/// # "#)?;
/// # assert_eq!((configuration.source, configuration.parameters.iaddress_width), (Some(1), 32));
/// # Ok::<(), hodo_etrace::ParameterError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Configuration {
    /// The encoder whose packets are decoded, if a stream contains those of several.
    pub source: Option<u16>,
    /// Whether the carrier's times have all bits of the clock that times in packets have.
    pub carrier_time: bool,
    /// The way in which packets are put into bytes.
    pub transport: Transport,
    /// The encoder's parameters.
    pub parameters: Parameters,
}

impl Configuration {
    /// Reads a configuration from a TOML file.
    ///
    /// # Errors
    /// What is wrong with the file, or which value is out of range.
    pub fn parse(text: &str) -> Result<Configuration, ParameterError> {
        let configuration: Configuration = toml::from_str(text)
            .map_err(|error| ParameterError::File(error.to_string().trim_end().to_owned()))?;
        configuration.transport.check()?;
        configuration.parameters.check()?;
        Ok(configuration)
    }
}
