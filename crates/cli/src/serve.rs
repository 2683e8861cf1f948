//! `hodo serve`: the store of inputs for the trace viewers of VS Code and Theia, or a recording for debuggers.

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
    stepping::debug,
};

/// The port of the trace server protocol by default.
const PORT: u16 = 8080;

/// Arguments of `hodo serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hodo serve --tsp kernel-trace/
  hodo serve --tsp --port 8081 perf.data kernel-trace/
  hodo serve --dap perf.data              a debugger starts it, and talks to it on standard input and output
  hodo serve --dap --port 4711 perf.data  a debugger connects to the port")]
pub struct Serve {
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub store: StoreFolder,
    /// The trace server protocol, version 0.6
    #[arg(long, group = "protocol", required_unless_present = "dap")]
    pub tsp: bool,
    /// The debug adapter protocol: steps through a recording, forwards and backwards
    #[arg(long, group = "protocol")]
    pub dap: bool,
    /// Port on 127.0.0.1; 0 is any free one [default: 8080; for --dap standard input and output]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
}

/// Runs the command.
pub fn run(command: &Serve) -> Result<ExitCode, Failure> {
    if command.dap {
        return debug::run(command);
    }
    let port = command.port.unwrap_or(PORT);
    let begin: Begin<'_> = &|total| Progress::new(total, command.input.quiet);
    let Some(store) = index::open(&command.input, &command.store, begin)? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let service = Service::new(store, &command.input.files);
    let served = hodo_tsp::serve(service, port, |address| {
        // A program that starts the server waits for this line.
        let printed = writeln!(io::stdout(), "http://{address}{PREFIX}").and_then(|()| io::stdout().flush());
        if let Err(failure) = written(printed) {
            message!("{failure}");
        }
    });
    match served {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(Failure::usage(format!(
            "port {port} is in use: choose another one with --port, or any free one with --port 0"
        ))),
        Err(error) => Err(Failure::unreadable(error)),
    }
}
