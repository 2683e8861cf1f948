//! Chrome's trace event format: a JSON object with complete events (`X`), whose times are microseconds to the
//! nanosecond.
//!
//! Begin and end events (`B`, `E`) would do too, but readers pair them differently. Source: "Trace Event Format" of the
//! Chromium project.

use std::io::{self, Write};

use hodo_model::Loss;
use serde_json::json;

use crate::{Content, Export, Output, Timeline, Track, Wakeup, loss_line};

pub(crate) const EXPORT: Export = Export {
    name: "chrome",
    help: "slices for everything that reads Chrome's trace events (JSON)",
    content: Content::Timeline(begin),
};

/// Ids from this one on are those of tracks that are no threads. Thread ids of Linux are smaller.
const NO_THREAD: u32 = 1 << 31;
/// Readers keep times as floating-point numbers, which hold microseconds to the nanosecond only up to 104 days.
const MOST_EXACT: u64 = 90 * DAY;
const DAY: u64 = 86_400_000_000_000;

/// A track: its process and thread, and its open slices.
struct TrackState {
    pid: u32,
    tid: u32,
    open: Vec<OpenSlice>,
}

struct OpenSlice {
    /// In nanoseconds.
    begin: u64,
    /// The number of its name.
    name: u32,
}

struct Chrome<'o> {
    out: Output<'o>,
    tracks: Vec<TrackState>,
    /// Names as JSON strings.
    names: Vec<String>,
    separator: &'static str,
    /// The number of the last arrow.
    flows: u64,
    /// The time that all written times are relative to, once a time is known.
    origin: Option<u64>,
    last_time: u64,
}

fn begin<'o>(out: Output<'o>) -> io::Result<Box<dyn Timeline + 'o>> {
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    Ok(Box::new(Chrome {
        out,
        tracks: Vec::new(),
        names: Vec::new(),
        separator: "\n",
        flows: 0,
        origin: None,
        last_time: 0,
    }))
}

/// Returns the origin of a trace with this time: 0 if the time is small, else a day about a month earlier, because other
/// threads may have earlier times.
fn origin(time: u64) -> u64 {
    if time < MOST_EXACT { 0 } else { time - time % DAY - 30 * DAY }
}

/// Formats nanoseconds as microseconds.
fn microseconds(nanoseconds: u64) -> String {
    format!("{}.{:03}", nanoseconds / 1_000, nanoseconds % 1_000)
}

impl Chrome<'_> {
    /// Formats a time, relative to the first one.
    fn time(&mut self, time: u64) -> String {
        self.last_time = self.last_time.max(time);
        let origin = *self.origin.get_or_insert_with(|| origin(time));
        microseconds(time.saturating_sub(origin))
    }

    /// Ends a slice, with the number of instructions that ran in it if it is known.
    fn end_with(&mut self, track: u32, time: u64, instructions: Option<u64>) -> io::Result<()> {
        let OpenSlice { begin, name } =
            self.tracks[track as usize].open.pop().expect("each end is of an open slice");
        self.last_time = self.last_time.max(time);
        let (from, duration) = (self.time(begin), microseconds(time - begin));
        let TrackState { pid, tid, .. } = self.tracks[track as usize];
        let (out, name) = (&mut self.out, &self.names[name as usize]);
        let separator = std::mem::replace(&mut self.separator, ",\n");
        write!(
            out,
            r#"{separator}{{"ph":"X","name":{name},"pid":{pid},"tid":{tid},"ts":{from},"dur":{duration}"#
        )?;
        if let Some(instructions) = instructions {
            write!(out, r#","args":{{"instructions":{instructions}}}"#)?;
        }
        out.write_all(b"}")
    }

    fn event(&mut self, event: std::fmt::Arguments<'_>) -> io::Result<()> {
        write!(self.out, "{}{event}", self.separator)?;
        self.separator = ",\n";
        Ok(())
    }
}

impl Timeline for Chrome<'_> {
    fn begin_track(&mut self, track: &Track) -> io::Result<()> {
        let number = NO_THREAD + self.tracks.len() as u32;
        let ((pid, tid), name) = match track {
            Track::Thread { pid, tid, name, what } if what.is_empty() => ((*pid, *tid), name.clone()),
            Track::Thread { pid, .. } => ((*pid, number), track.title()),
            Track::Named(name) => ((NO_THREAD, number), name.clone()),
        };
        self.tracks.push(TrackState { pid, tid, open: Vec::new() });
        let name = json!(name);
        self.event(format_args!(
            r#"{{"ph":"M","name":"thread_name","pid":{pid},"tid":{tid},"args":{{"name":{name}}}}}"#
        ))
    }

    fn name(&mut self, name: &str) -> io::Result<()> {
        self.names.push(json!(name).to_string());
        Ok(())
    }

    fn begin(&mut self, track: u32, time: u64, name: u32) -> io::Result<()> {
        self.tracks[track as usize].open.push(OpenSlice { begin: time, name });
        Ok(())
    }

    fn end(&mut self, track: u32, time: u64) -> io::Result<()> {
        self.end_with(track, time, None)
    }

    fn end_counted(&mut self, track: u32, time: u64, instructions: u64) -> io::Result<()> {
        self.end_with(track, time, Some(instructions))
    }

    fn executed(&mut self, track: u32, time: u64, instructions: u64) -> io::Result<()> {
        let time = self.time(time);
        let TrackState { pid, tid, .. } = self.tracks[track as usize];
        self.event(format_args!(
            r#"{{"ph":"C","name":"instructions {tid}","pid":{pid},"ts":{time},"args":{{"instructions":{instructions}}}}}"#
        ))
    }

    fn wakeup(&mut self, wakeup: &Wakeup<'_>) -> io::Result<()> {
        let &Wakeup { time, waker, woken, .. } = wakeup;
        let time = self.time(time);
        self.flows += 1;
        let flow = self.flows;
        // An arrow leads from a slice to a slice.
        let ends = [
            (waker, format!("wakes {}", woken.name), r#""ph":"s""#),
            (woken, format!("woken by {}", waker.name), r#""ph":"f","bp":"e""#),
        ];
        for (thread, name, phase) in ends {
            let (pid, tid, name) = (thread.pid, thread.tid, json!(name));
            self.event(format_args!(
                r#"{{"ph":"X","name":{name},"pid":{pid},"tid":{tid},"ts":{time},"dur":0.000}}"#
            ))?;
            self.event(format_args!(
                r#"{{{phase},"id":{flow},"cat":"wakeup","name":"wakeup","pid":{pid},"tid":{tid},"ts":{time}}}"#
            ))?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, losses: &[Loss]) -> io::Result<()> {
        let origin = self.origin.unwrap_or(0);
        for loss in losses {
            let time = loss.time.map_or(self.last_time, |(begin, _)| begin.0);
            let time = microseconds(time.saturating_sub(origin));
            let name = json!(loss_line(loss));
            let event = format!(
                r#"{{"ph":"i","s":"g","name":{name},"pid":{NO_THREAD},"tid":{NO_THREAD},"ts":{time}}}"#
            );
            self.event(format_args!("{event}"))?;
        }
        // Text, because as a number it would be rounded.
        writeln!(self.out, "\n],\"otherData\":{{\"origin_ns\":\"{origin}\"}}}}")?;
        self.out.flush()
    }
}
