//! Chrome's trace event format: a JSON object with complete events (`X`), whose times are microseconds to the
//! nanosecond.
//!
//! Begin and end events (`B`, `E`) would do too, but readers pair them differently. Source: "Trace Event Format" of the
//! Chromium project.

use std::io::{self, Write};

use hodo_model::Loss;
use serde_json::json;

use crate::{Content, Export, Output, Timeline, Track, loss_line};

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
        self.last_time = self.last_time.max(time);
        let Chrome { out, tracks, names, separator, .. } = self;
        let origin = *self.origin.get_or_insert_with(|| origin(time));
        let TrackState { pid, tid, open } = &mut tracks[track as usize];
        let OpenSlice { begin, name } = open.pop().expect("each end is of an open slice");
        let (from, duration) = (microseconds(begin.saturating_sub(origin)), microseconds(time - begin));
        write!(
            out,
            r#"{separator}{{"ph":"X","name":{},"pid":{pid},"tid":{tid},"ts":{from},"dur":{duration}}}"#,
            names[name as usize]
        )?;
        *separator = ",\n";
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
