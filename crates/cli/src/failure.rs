//! How a command fails: a message and an exit code.

use std::{fmt, io, process::ExitCode};

use hodo_engine::{OpenError, OpenErrorReason, Refusal};

/// Input with errors or loss, under `--strict`.
pub const LOSS: u8 = 1;
/// Ctrl-C, as shells number it.
pub const INTERRUPTED: u8 = 130;
/// Wrong use.
const USAGE: u8 = 2;
/// Input that can't be read.
pub const UNREADABLE: u8 = 3;

/// Why a command ends early.
#[derive(Debug)]
pub struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// The command was used wrongly.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure { message: message.to_string(), code: USAGE }
    }

    /// An input can't be read, or something else that the command needs.
    pub fn unreadable(message: impl fmt::Display) -> Failure {
        Failure { message: message.to_string(), code: UNREADABLE }
    }

    /// Says so and ends.
    pub fn report(self) -> ExitCode {
        eprintln!("hodo: {}", self.message);
        ExitCode::from(self.code)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::usage(refusal)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let help = match &error.reason {
            OpenErrorReason::System(reason) if reason.kind() == io::ErrorKind::NotFound => {
                "; `hodo record -- COMMAND` makes a recording"
            }
            _ => "",
        };
        Failure::unreadable(format!("{error}{help}"))
    }
}

/// A failure to write, which is silent success where the reader went away.
pub fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::unreadable(format!("can't write the output: {error}"))),
        Ok(()) => Ok(()),
    }
}
