//! `hodo script`.

use std::process::ExitCode;

use hodo_engine::CHUNKS_IN_ORDER;
use hodo_script::{
    Format,
    flow::{self, Marks},
};

use crate::{
    arguments::Script,
    events,
    failure::{Failure, written},
    input, live,
    output::Destination,
    progress::{Begin, Progress},
    selection::Selection,
    stepping::at,
};

/// Runs the command.
pub fn run(command: &Script) -> Result<ExitCode, Failure> {
    if let Some(address) = live::address(&command.input)? {
        return live::script(command, &address);
    }
    if let Some(instant) = &command.at {
        return at::run(command, instant);
    }
    let contents = events::contents(&command.input)?;
    if contents.events && !command.sideband && (!contents.flow || command.events) {
        return events::script(command, contents);
    }
    Selection::new(&command.input, Some(&command.filter))?.refuse_events()?;
    let json = command.output.format == "jsonl";
    if (json && (command.packets || command.sideband))
        || !["text", "jsonl"].contains(&command.output.format.as_str())
    {
        return Err(Failure::usage(
            "a script is written as text; instructions, calls and events also as jsonl",
        ));
    }
    if command.packets && (command.input.time.is_some() || command.input.call.is_some()) {
        return Err(Failure::usage(
            "--time and --call select executed code; packets are always shown completely",
        ));
    }
    input::open(&command.input, command.sideband, |trace, window| {
        if command.packets && trace.is_native() {
            let help = "a native recording has no packets; hodo export --to intel-pt makes some";
            return Err(Failure::usage(help));
        }
        let mut out = Destination::open(command.output.output.as_deref())?;
        let format = if json { Format::JsonLines } else { Format::Text };
        let begin: Begin<'_> = &|bytes| Progress::new(bytes, command.input.quiet);
        let outcome =
            input::read(&command.input, trace, CHUNKS_IN_ORDER, window, begin, |reading, mut keep_going| {
                let limit = command.output.limit;
                if command.packets {
                    flow::packets(trace, reading, limit, &mut out, keep_going)
                } else if command.sideband {
                    flow::sideband(trace, reading, limit, &mut out)
                } else if let Some(marks) = marks(command) {
                    flow::marks(trace, marks, format, reading, limit, &mut out, &mut keep_going)
                } else if command.insns {
                    let (lines, out) = ((&command.fields[..], format), &mut out);
                    flow::instructions(trace, lines, reading, limit, out, &mut keep_going)
                } else {
                    flow::calls(trace, format, reading, limit, &mut out, keep_going)
                }
            })?;
        // An incomplete output file is deleted when `out` is dropped.
        let Some(outcome) = outcome else { return Ok(input::interrupted()) };
        written(outcome.written)?;
        out.finish()?;
        let code = input::exit_code(&command.input, outcome.losses.is_empty());
        input::report_losses(outcome.losses);
        Ok(code)
    })
}

/// Returns the kind of marks to print, if any.
fn marks(command: &Script) -> Option<Marks> {
    [
        (command.ptwrite, Marks::PtWrite),
        (command.power, Marks::Power),
        (command.events || command.marks, Marks::Rest),
    ]
    .into_iter()
    .find_map(|(is_chosen, marks)| is_chosen.then_some(marks))
}
