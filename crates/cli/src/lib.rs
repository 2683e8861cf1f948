//! The command `hodo`, for its program and for the Python package: maps arguments to commands, and results to exit codes.
//!
//! ```text
//! arguments ──parse──► command ──► Experiment ──► tables ──► output, exit code     run
//!                                                    └─────► the caller            tables
//! ```

#![allow(unreachable_pub, reason = "only `run` and `tables` are an interface")]
#![allow(missing_docs, reason = "only `run` and `tables` are an interface")]
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic where the output is closed or full")]

#[macro_use]
mod message;

mod align;
mod annotate;
mod arguments;
mod buffer;
mod check;
mod describe;
mod diff;
mod events;
mod explain;
mod export;
mod failure;
mod function;
mod index;
mod info;
mod input;
mod latency;
mod live;
mod manual;
mod mcp;
mod output;
mod parts;
mod path;
mod picture;
mod progress;
mod quantities;
mod record;
mod report;
mod script;
mod selection;
mod serve;
mod sql;
mod stepping;
mod stored;
mod sync;
pub mod tables;
mod timeline;
mod view;
mod view_flow;

use std::{ffi::OsString, process::ExitCode};

use arguments::{Arguments, Command};
use clap::Parser;
use failure::written;
use hodo_engine::Unreadable;

/// Runs the command that the arguments name, the first of which is the program's name.
pub fn run(all: &[OsString]) -> ExitCode {
    let arguments = match Arguments::try_parse_from(all) {
        Ok(arguments) => arguments,
        Err(answer) => return print(&answer),
    };
    let result = match &arguments.command {
        Command::Record(command) => record::run(command),
        Command::Info(command) => info::run(command),
        Command::Script(command) => script::run(command),
        Command::Report(command) => report::run(command),
        Command::Explain(command) => explain::run(command),
        Command::Path(command) => path::run(command),
        Command::Latency(command) => latency::run(command),
        Command::Plan(command) => parts::plan(command),
        Command::Fold(command) => parts::fold(command),
        Command::Merge(command) => parts::merge(command),
        Command::Sync(command) => sync::run(command),
        Command::Export(command) => export::run(command),
        Command::Index(command) => index::run(command),
        Command::Serve(command) => serve::run(command),
        Command::View(command) => view::run(command),
        Command::Annotate(command) => annotate::run(command),
        Command::Diff(command) => diff::run(command),
        Command::Check(command) => check::run(command),
        Command::Sql(command) => sql::run(command),
        Command::Mcp(command) => mcp::run(command),
        Command::Help(help) => describe::run(help),
        Command::Completions { shell } => manual::completions(*shell),
        Command::Manual { folder } => manual::write(folder),
    };
    let code = result.unwrap_or_else(|failure| failure.report());
    message::checked(report_unreadable(code))
}

/// Prints which files could not be read to their end. The result is then unreliable: the exit code of success becomes
/// that of loss.
fn report_unreadable(code: ExitCode) -> ExitCode {
    let unreadable = hodo_engine::unreadable_files();
    for Unreadable { path, offset } in &unreadable {
        message!(
            "{}: from byte {offset} on it could not be read: the file shrank while it was read, or its disk failed; the \
             rest was read as zeros, so run the command again",
            path.display()
        );
    }
    if unreadable.is_empty() || code != ExitCode::SUCCESS { code } else { ExitCode::from(failure::LOSS) }
}

/// Prints help, a version, or what is wrong with the arguments.
fn print(answer: &clap::Error) -> ExitCode {
    match written(answer.print()) {
        Err(failure) if !answer.use_stderr() => failure.report(),
        _ => ExitCode::from(answer.exit_code() as u8),
    }
}
