//! `hodo serve`: the store of inputs for the trace viewers of VS Code and Theia.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Args;
use hodo_tsp::{PREFIX, Service};

use crate::{
    arguments::{Input, StoreFolder},
    failure::{Failure, INTERRUPTED, written},
    index,
    progress::{Begin, Progress},
};

/// Arguments of `hodo serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo serve --tsp kernel-trace/
  hodo serve --tsp --port 8081 perf.data kernel-trace/")]
pub struct Serve {
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub store: StoreFolder,
    /// The trace server protocol, version 0.6
    #[arg(long, required = true)]
    pub tsp: bool,
    /// Port on 127.0.0.1; 0 is any free one
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
}

/// Runs the command.
pub fn run(command: &Serve) -> Result<ExitCode, Failure> {
    let begin: Begin<'_> = &|total| Progress::new(total, command.input.quiet);
    let Some(store) = index::open(&command.input, &command.store, begin)? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let service = Service::new(store, &command.input.files);
    let served = hodo_tsp::serve(service, command.port, |address| {
        // A program that starts the server waits for this line.
        let printed = writeln!(io::stdout(), "http://{address}{PREFIX}").and_then(|()| io::stdout().flush());
        if let Err(failure) = written(printed) {
            message!("{failure}");
        }
    });
    match served {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(Failure::usage(format!(
            "port {} is in use: choose another one with --port, or any free one with --port 0",
            command.port
        ))),
        Err(error) => Err(Failure::unreadable(error)),
    }
}
