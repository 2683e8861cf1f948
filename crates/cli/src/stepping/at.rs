//! `hodo script --at`: place and call stack of each thread at an instant.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use hodo_engine::Trace;
use hodo_stepping::{Execution, Instant, Scene, SceneFrame};

use crate::{
    arguments::Script,
    failure::{Failure, written},
    input,
    output::Destination,
    progress::Progress,
};

/// Runs the command.
pub fn run(command: &Script, instant: &str) -> Result<ExitCode, Failure> {
    let json = match command.output.format.as_str() {
        "text" => false,
        "jsonl" => true,
        _ => return Err(Failure::usage("the stack at an instant is written as text or jsonl")),
    };
    if command.input.time.is_some() || command.input.call.is_some() {
        return Err(Failure::usage("--at is one instant; leave out --time and --call"));
    }
    let with_sideband = false;
    input::open(&command.input, with_sideband, |trace, _| {
        let instant =
            Instant::parse(instant, trace).map_err(|why| Failure::usage(format!("--at {instant}: {why}")))?;
        let progress = Progress::new(trace.bytes(), command.input.quiet);
        let opened = Execution::open(trace, input::threads(&command.input), |done| progress.set(done));
        progress.finish();
        let Some(mut execution) = opened else { return Ok(input::interrupted()) };
        let threads: Vec<u32> = execution.threads().collect();
        let keep_going = || !progress.is_interrupted();
        let mut stepper = execution.stepper(trace, &keep_going);
        let mut out = Destination::open(command.output.output.as_deref())?;
        let mut is_any = false;
        for thread in threads {
            let Ok(found) = stepper.at_instant(thread, instant) else { return Ok(input::interrupted()) };
            let Some(at) = found else { continue };
            let scene = stepper.scene(at);
            written(if json { object(&scene, &mut out) } else { text(&scene, trace, is_any, &mut out) })?;
            is_any = true;
        }
        out.finish()?;
        if !is_any {
            message!("no selected thread executes recorded code at that instant");
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn object(scene: &Scene, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, scene)?;
    writeln!(out)
}

fn text(scene: &Scene, trace: &Trace<'_>, has_before: bool, out: &mut impl Write) -> io::Result<()> {
    let Scene { pid, tid, number, instructions, time_ns, .. } = scene;
    let thread = trace.threads.iter().find(|thread| (thread.pid, thread.tid) == (*pid, *tid));
    let name = thread.and_then(|&thread| trace.thread_name(thread)).unwrap_or_default();
    if has_before {
        writeln!(out)?;
    }
    let time = time_ns.map_or("time unknown".to_owned(), |ns| {
        format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000)
    });
    writeln!(out, "pid {pid} tid {tid} {name}: {time}, instruction #{number} of {instructions}")?;
    for reason in &scene.gap {
        writeln!(out, "  flow is missing here: {reason}")?;
    }
    if !scene.gap.is_empty() {
        return Ok(());
    }
    let taken = match scene.taken {
        Some(true) => "   (taken)",
        Some(false) => "   (not taken)",
        None => "",
    };
    let which = if number + 1 == *instructions { "last" } else { "next" };
    writeln!(out, "  {which}: {}{taken}", scene.instruction)?;
    for (depth, frame) in scene.frames.iter().enumerate() {
        writeln!(out, "  {depth:>3}  {}", line(frame))?;
    }
    match scene.depth - scene.frames.len() as u64 {
        0 => Ok(()),
        more => writeln!(out, "       … {more} more"),
    }
}

/// A frame as a line.
fn line(frame: &SceneFrame) -> String {
    let mut text: String = frame.inlined.iter().map(|inlined| format!("{inlined} < ")).collect();
    text += &frame.function;
    if let Some(offset) = frame.offset {
        text += &format!("+{offset:#x}");
    }
    text += &format!(" ({})", frame.module);
    if let (Some(file), Some(line)) = (&frame.file, frame.line) {
        let name = file.rsplit_once('/').map_or(file.as_str(), |(_, name)| name);
        text += &format!(" {name}:{line}");
    }
    match frame.entered_by {
        "call" => {}
        "start" => text += "   (entered before the first recorded instruction, or before a gap)",
        other => text += &format!("   (entered by {other})"),
    }
    text
}
