//! speedscope's own format: JSON with a profile of begins and ends (`evented`) for each track.
//!
//! Threads may alternate in the input, so the events of each wait in a temporary file. Losses are in the title, the
//! only text that speedscope shows of a file. Source: `file-format-spec.ts` of speedscope.

use std::io::{self, BufWriter, Seek, Write};

use hodo_model::Loss;
use serde_json::json;
use tempfile::SpooledTempFile;

use crate::{Content, Export, Output, Timeline, Track, loss_line};

pub(crate) const EXPORT: Export = Export {
    name: "speedscope",
    help: "calls in order of time for speedscope (JSON)",
    content: Content::Calls(begin),
};

/// Bytes of a track's events that stay in memory.
const IN_MEMORY: usize = 1 << 16;

struct Profile {
    name: String,
    events: BufWriter<SpooledTempFile>,
    open: Vec<u32>,
    /// The first and the last time.
    span: Option<(u64, u64)>,
}

impl Profile {
    fn event(&mut self, kind: char, frame: u32, at: u64) -> io::Result<()> {
        let separator = if self.span.is_some() { "," } else { "" };
        self.span = Some((self.span.map_or(at, |(from, _)| from), at));
        write!(self.events, r#"{separator}{{"type":"{kind}","frame":{frame},"at":{at}}}"#)
    }
}

struct Speedscope<'o> {
    out: Output<'o>,
    frames: Vec<String>,
    profiles: Vec<Profile>,
}

fn begin<'o>(out: Output<'o>) -> io::Result<Box<dyn Timeline + 'o>> {
    Ok(Box::new(Speedscope { out, frames: Vec::new(), profiles: Vec::new() }))
}

impl Timeline for Speedscope<'_> {
    fn begin_track(&mut self, track: &Track) -> io::Result<()> {
        let events = BufWriter::new(SpooledTempFile::new(IN_MEMORY));
        self.profiles.push(Profile { name: track.title(), events, open: Vec::new(), span: None });
        Ok(())
    }

    fn name(&mut self, name: &str) -> io::Result<()> {
        self.frames.push(name.to_owned());
        Ok(())
    }

    fn begin(&mut self, track: u32, time: u64, name: u32) -> io::Result<()> {
        let profile = &mut self.profiles[track as usize];
        profile.open.push(name);
        profile.event('O', name, time)
    }

    fn end(&mut self, track: u32, time: u64) -> io::Result<()> {
        let profile = &mut self.profiles[track as usize];
        let name = profile.open.pop().expect("each end is of an open slice");
        profile.event('C', name, time)
    }

    fn finish(self: Box<Self>, losses: &[Loss]) -> io::Result<()> {
        let Speedscope { out, frames, profiles } = *self;
        let title = match losses.iter().map(loss_line).collect::<Vec<_>>() {
            lines if lines.is_empty() => "hodo".to_owned(),
            lines => lines.join("; "),
        };
        write!(
            out,
            r#"{{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"hodo","name":{},"profiles":["#,
            json!(title)
        )?;
        let mut separator = "";
        for profile in profiles {
            let Profile { name, events, span, .. } = profile;
            let (from, to) = span.unwrap_or_default();
            write!(
                out,
                r#"{separator}{{"type":"evented","name":{},"unit":"nanoseconds","startValue":{from},"endValue":{to},"events":["#,
                json!(name)
            )?;
            let mut events = events.into_inner().map_err(io::IntoInnerError::into_error)?;
            events.rewind()?;
            io::copy(&mut events, out)?;
            out.write_all(b"]}")?;
            separator = ",";
        }
        let frames: Vec<_> = frames.iter().map(|name| json!({ "name": name })).collect();
        writeln!(out, r#"],"shared":{{"frames":{}}}}}"#, json!(frames))?;
        out.flush()
    }
}
