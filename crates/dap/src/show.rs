//! Requests that show: threads, stacks, sources, code.

use std::fs;

use hodo_stepping::{ListedInstruction, SceneFrame};
use serde_json::{Value, json};

use crate::session::{Answer, Session, thread_id, thread_of};

/// The scope of what a recording knows of an instant.
const POSITION: i64 = 1;
/// Size of a source file, at most, in bytes.
const LARGEST_SOURCE: u64 = 1 << 26;
/// Instructions of an answer, at most.
const MOST_INSTRUCTIONS: i64 = 10_000;

impl Session<'_, '_> {
    pub(crate) fn threads(&mut self) -> Answer {
        let threads = self.all_threads().into_iter().map(|thread| {
            let known = self.trace.threads[thread as usize];
            let name = self.trace.thread_name(known).unwrap_or_default();
            json!({ "id": thread_id(thread), "name": format!("{name} {}/{}", known.pid, known.tid) })
        });
        Ok(json!({ "threads": threads.collect::<Vec<_>>() }))
    }

    pub(crate) fn stack_trace(&mut self, arguments: &Value) -> Answer {
        let thread = thread_of(arguments)?;
        let Some(at) = self.position_of(thread) else {
            return Ok(json!({ "stackFrames": [], "totalFrames": 0 }));
        };
        let scene = self.stepper().scene(at);
        if !scene.gap.is_empty() {
            let name = format!("flow is missing here: {}", scene.gap.join("; "));
            let frame = json!({ "id": 0, "name": name, "line": 0, "column": 0, "presentationHint": "label" });
            return Ok(json!({ "stackFrames": [frame], "totalFrames": 1 }));
        }
        let from = arguments["startFrame"].as_u64().unwrap_or(0) as usize;
        let levels = match arguments["levels"].as_u64() {
            None | Some(0) => usize::MAX,
            Some(levels) => levels as usize,
        };
        let total = scene.frames.len();
        let shown = scene.frames.into_iter().skip(from).take(levels);
        let frames: Vec<Value> = shown.map(|frame| self.frame(frame)).collect();
        Ok(json!({ "stackFrames": frames, "totalFrames": total }))
    }

    fn frame(&mut self, frame: SceneFrame) -> Value {
        // Frames are numbered from 1; 0 is where nothing is known.
        let id = self.frames.len() + 1;
        let mut name: String = frame.inlined.iter().map(|inlined| format!("{inlined} < ")).collect();
        name += &frame.function;
        let mut shown = json!({ "id": id, "name": name, "line": 0, "column": 0, "moduleId": frame.module });
        if let Some(address) = frame.address {
            shown["instructionPointerReference"] = format!("{address:#x}").into();
        }
        if let (Some(file), Some(line)) = (&frame.file, frame.line) {
            self.sources.insert(file.clone());
            let path = self.client_path(file);
            let name = file.rsplit_once('/').map_or(file.as_str(), |(_, name)| name);
            shown["source"] = json!({ "name": name, "path": path });
            shown["line"] = line.into();
            shown["column"] = 1.into();
        } else {
            shown["presentationHint"] = "subtle".into();
        }
        self.frames.push(frame);
        shown
    }

    pub(crate) fn scopes(&mut self, _: &Value) -> Answer {
        Ok(json!({ "scopes": [{
            "name": "Position (a recording has no memory and no registers)",
            "variablesReference": POSITION,
            "expensive": false,
        }] }))
    }

    pub(crate) fn variables(&mut self, arguments: &Value) -> Answer {
        let here = self.here.filter(|_| arguments["variablesReference"].as_i64() == Some(POSITION));
        let Some(here) = here else { return Ok(json!({ "variables": [] })) };
        let scene = self.stepper().scene(here);
        let seconds = |ns: u64| format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000);
        let mut variables = vec![
            ("time", scene.time_ns.map_or_else(|| "unknown".to_owned(), seconds)),
            ("instruction", format!("#{} of {}", scene.number, scene.instructions)),
            ("next", scene.instruction.clone()),
            ("frames", scene.depth.to_string()),
        ];
        if let Some(taken) = scene.taken {
            variables.push(("branch", if taken { "taken" } else { "not taken" }.to_owned()));
        }
        let shown = variables.into_iter();
        let shown =
            shown.map(|(name, value)| json!({ "name": name, "value": value, "variablesReference": 0 }));
        Ok(json!({ "variables": shown.collect::<Vec<_>>() }))
    }

    /// The text of a source file that a stack names; no other file is read.
    pub(crate) fn source(&mut self, arguments: &Value) -> Answer {
        let path = arguments["source"]["path"].as_str().unwrap_or_default();
        if !self.sources.contains(&self.recorded_path(path)) {
            return Err(format!("{path}: no stack of this session names the file"));
        }
        let size = fs::metadata(path).map_err(|error| format!("{path}: {error}"))?;
        if !size.is_file() || size.len() > LARGEST_SOURCE {
            return Err(format!("{path} is no file, or too large"));
        }
        let bytes = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(json!({ "content": String::from_utf8_lossy(&bytes) }))
    }

    pub(crate) fn disassemble(&mut self, arguments: &Value) -> Answer {
        let address = self.address(&arguments["memoryReference"], &arguments["offset"])?;
        let count = arguments["instructionCount"].as_i64().unwrap_or(0).clamp(0, MOST_INSTRUCTIONS);
        let first =
            arguments["instructionOffset"].as_i64().unwrap_or(0).clamp(-MOST_INSTRUCTIONS, MOST_INSTRUCTIONS);
        let listing = self.listing_at(address);
        let here = listing.iter().position(|instruction| instruction.address == address);
        let here = here.map_or(0, |here| here as i64);
        let mut shown = Vec::new();
        for index in here + first..here + first + count {
            let known = usize::try_from(index).ok().and_then(|index| listing.get(index));
            shown.push(match known {
                Some(instruction) => self.instruction(instruction),
                // As many as are asked for, in order of address.
                None => {
                    let before = listing.first().map_or(address, |first| first.address);
                    let after = listing.last().map_or(address, |last| last.address);
                    let outside = match index {
                        index if index < 0 => before.wrapping_add_signed(index),
                        index => after.wrapping_add_signed(index + 1 - listing.len() as i64),
                    };
                    let address = format!("{outside:#x}");
                    json!({ "address": address, "instruction": "(outside of the function)", "presentationHint": "invalid" })
                }
            });
        }
        Ok(json!({ "instructions": shown }))
    }

    fn instruction(&self, instruction: &ListedInstruction) -> Value {
        let bytes: Vec<String> = instruction.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut shown = json!({
            "address": format!("{:#x}", instruction.address),
            "instructionBytes": bytes.join(" "),
            "instruction": instruction.instruction,
        });
        if let (Some(file), Some(line)) = (&instruction.file, instruction.line) {
            shown["location"] = json!({ "path": self.client_path(file) });
            shown["line"] = line.into();
        }
        shown
    }

    /// The code of the function that has an address: of a frame that the client knows.
    fn listing_at(&mut self, address: u64) -> Vec<ListedInstruction> {
        let frames = self.frames.clone();
        let stepper = self.stepper();
        let mut frames: Vec<&SceneFrame> = frames.iter().filter(|frame| frame.address.is_some()).collect();
        // The function of the address itself is listed last otherwise.
        frames.sort_by_key(|frame| frame.address.map(|own| own.abs_diff(address)));
        let listings = frames.into_iter().map(|frame| stepper.listing(frame, MOST_INSTRUCTIONS as usize));
        let has_it = |listing: &Vec<ListedInstruction>| listing.iter().any(|own| own.address == address);
        listings.take(64).find(has_it).unwrap_or_default()
    }

    pub(crate) fn exception_info(&mut self) -> Answer {
        let here = self.here.ok_or("nothing is launched")?;
        let why = self.stepper().gap_reasons(here).join("; ");
        Ok(json!({ "exceptionId": "missing flow", "description": why, "breakMode": "always" }))
    }
}
