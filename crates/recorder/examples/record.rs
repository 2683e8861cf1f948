//! `record OUTPUT [-e EVENT] [-f FILTER] [-s] COMMAND…`
use std::{ffi::OsString, os::unix::process::ExitStatusExt};
fn main() {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let mut request = hodo_recorder::Request {
        recorded_by: std::env::args_os().collect(),
        output: arguments.next().unwrap().into(),
        ..Default::default()
    };
    loop {
        let text = |a: Option<OsString>| a.unwrap().into_string().unwrap();
        match arguments.peek().and_then(|a| a.to_str()) {
            Some("-e") => {
                arguments.next();
                request.event = Some(text(arguments.next()));
            }
            Some("-f") => {
                arguments.next();
                request.filter = Some(text(arguments.next()));
            }
            Some("-s") => {
                arguments.next();
                request.snapshot = Some(Some(text(arguments.next()).parse().unwrap()));
            }
            Some("-o") => {
                arguments.next();
                let t = text(arguments.next());
                let (a, b) = t.split_once('-').unwrap();
                request.overflow = Some(a.parse().unwrap()..b.parse().unwrap());
            }
            _ => break,
        }
    }
    request.command = arguments.collect();
    match hodo_recorder::record(&request) {
        Ok(outcome) => {
            eprintln!(
                "{:?} {:?} {:?} threads, {:?} instructions, {} bytes {:?}",
                outcome.engine,
                outcome.status,
                outcome.threads,
                outcome.instructions,
                outcome.bytes,
                outcome.warnings
            );
            std::process::exit(
                outcome.status.code().unwrap_or_else(|| 128 + outcome.status.signal().unwrap()),
            );
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2)
        }
    }
}
