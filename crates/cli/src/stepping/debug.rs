//! `hodo serve --dap`: a recording for debuggers.

use std::{
    io::{self, BufReader, Write},
    net::{Ipv4Addr, TcpListener},
    process::ExitCode,
};

use hodo_stepping::Execution;

use crate::{
    failure::{Failure, written},
    input,
    progress::Progress,
    serve::Serve,
};

/// Runs the command: one client on standard input and output, or clients of a port, one after the other.
pub fn run(command: &Serve) -> Result<ExitCode, Failure> {
    let with_sideband = false;
    input::open(&command.input, with_sideband, |trace, _| {
        let progress = Progress::new(trace.bytes(), command.input.quiet);
        let opened = Execution::open(trace, input::threads(&command.input), |done| progress.set(done));
        progress.finish();
        let Some(mut execution) = opened else { return Ok(input::interrupted()) };
        let Some(port) = command.port else {
            let input = BufReader::new(io::stdin());
            written(hodo_dap::serve(trace, &mut execution, input, &mut io::stdout()))?;
            return Ok(ExitCode::SUCCESS);
        };
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => Failure::usage(format!(
                    "port {port} is in use: choose another one with --port, or any free one with --port 0"
                )),
                _ => Failure::unreadable(error),
            })?;
        let address = listener.local_addr().map_err(Failure::unreadable)?;
        // A program that starts the server waits for this line.
        written(writeln!(io::stdout(), "{address}").and_then(|()| io::stdout().flush()))?;
        for client in listener.incoming() {
            let served = client.and_then(|mut client| {
                let input = BufReader::new(client.try_clone()?);
                hodo_dap::serve(trace, &mut execution, input, &mut client)
            });
            if let Err(error) = served {
                message!("a client was lost: {error}");
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}
