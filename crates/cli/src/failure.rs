//! Failures of commands: a message and an exit code.

use std::{fmt, io, process::ExitCode};

use hodo_engine::{OpenError, OpenErrorReason, Refusal};

/// Exit code for input with errors or loss, with `--strict`.
pub const LOSS: u8 = 1;
/// Exit code for Ctrl-C, as in shells.
pub const INTERRUPTED: u8 = 130;
/// Exit code for wrong use.
const USAGE: u8 = 2;
/// Exit code for unreadable input.
pub const UNREADABLE: u8 = 3;

/// The reason for an early end of a command.
#[derive(Debug)]
pub struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// Creates a failure for wrong use.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure { message: message.to_string(), code: USAGE }
    }

    /// Creates a failure for unreadable input, or anything else that the command needs.
    pub fn unreadable(message: impl fmt::Display) -> Failure {
        Failure { message: message.to_string(), code: UNREADABLE }
    }

    /// Returns whether it is wrong use.
    pub fn is_usage(&self) -> bool {
        self.code == USAGE
    }

    /// Prints the message and returns the exit code.
    pub fn report(self) -> ExitCode {
        message!("{}", self.message);
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::usage(refusal)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let partial = error.file.with_added_extension("partial");
        let help = match &error.reason {
            OpenErrorReason::System(reason) if reason.kind() == io::ErrorKind::NotFound => {
                if partial.exists() {
                    format!("; {} is a recording that goes on, or was ended", partial.display())
                } else {
                    "; `hodo record -- COMMAND` makes a recording".to_owned()
                }
            }
            _ => String::new(),
        };
        Failure::unreadable(format!("{error}{help}"))
    }
}

/// Converts an error of writing to a failure. A closed pipe counts as success.
pub fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::unreadable(format!("can't write the output: {error}"))),
        Ok(()) => Ok(()),
    }
}
