//! Breakpoints on source lines, functions and instructions.

use std::collections::BTreeMap;

use hodo_stepping::Place;
use serde_json::{Value, json};

use crate::session::{Answer, Session};

/// Lines after a line without code, in which the next code is searched.
const LINES_AHEAD: u32 = 20;

/// A breakpoint.
#[derive(Clone, Debug)]
pub(crate) struct Breakpoint {
    pub(crate) id: i64,
    pub(crate) places: Vec<Place>,
}

/// All breakpoints.
#[derive(Debug, Default)]
pub(crate) struct Breakpoints {
    /// By source file.
    lines: BTreeMap<String, Vec<Breakpoint>>,
    functions: Vec<Breakpoint>,
    instructions: Vec<Breakpoint>,
    last_id: i64,
}

impl Breakpoints {
    fn add(&mut self, places: Vec<Place>) -> Breakpoint {
        self.last_id += 1;
        Breakpoint { id: self.last_id, places }
    }

    /// All of them, each with the reason of a stop.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &Breakpoint)> {
        let lines = self.lines.values().flatten().map(|breakpoint| ("breakpoint", breakpoint));
        let functions = self.functions.iter().map(|breakpoint| ("function breakpoint", breakpoint));
        let instructions = self.instructions.iter().map(|breakpoint| ("instruction breakpoint", breakpoint));
        lines.chain(functions).chain(instructions)
    }
}

/// How the client sees a breakpoint.
fn shown(breakpoint: &Breakpoint, line: Option<u32>, why_not: &str) -> Value {
    let mut value = json!({ "id": breakpoint.id, "verified": !breakpoint.places.is_empty() });
    if breakpoint.places.is_empty() {
        value["message"] = why_not.into();
    } else if let Some(line) = line {
        value["line"] = line.into();
    }
    value
}

impl Session<'_, '_> {
    pub(crate) fn set_breakpoints(&mut self, arguments: &Value) -> Answer {
        let path = arguments["source"]["path"].as_str().unwrap_or_default().to_owned();
        let file = self.recorded_path(&path);
        let (mut kept, mut answers) = (Vec::new(), Vec::new());
        for asked in arguments["breakpoints"].as_array().into_iter().flatten() {
            let line = asked["line"].as_u64().and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
            let code = (line..=line.saturating_add(LINES_AHEAD))
                .map(|line| (line, self.places_of_line(&file, line)))
                .find(|(_, places)| !places.is_empty());
            let (line, places) = code.unwrap_or((line, Vec::new()));
            let breakpoint = self.breakpoints.add(places);
            answers.push(shown(&breakpoint, Some(line), "the recorded programs have no code of this line"));
            kept.push(breakpoint);
        }
        self.breakpoints.lines.insert(path, kept);
        Ok(json!({ "breakpoints": answers }))
    }

    /// The places of a line; of a file whose folders the recorded programs do not know, by its name alone.
    pub(crate) fn places_of_line(&self, file: &str, line: u32) -> Vec<Place> {
        let places = Place::of_line(self.trace, file, line);
        match file.rsplit_once('/') {
            Some((_, name)) if places.is_empty() => Place::of_line(self.trace, name, line),
            _ => places,
        }
    }

    pub(crate) fn set_function_breakpoints(&mut self, arguments: &Value) -> Answer {
        let (mut kept, mut answers) = (Vec::new(), Vec::new());
        for asked in arguments["breakpoints"].as_array().into_iter().flatten() {
            let name = asked["name"].as_str().unwrap_or_default();
            let functions = self.trace.modules.functions_named(name);
            let breakpoint = self.breakpoints.add(functions.into_iter().map(Place::Function).collect());
            let near = self.trace.modules.functions_near(name).join(", ");
            let why_not = format!("no recorded program has the function; similar: {near}");
            answers.push(shown(&breakpoint, None, &why_not));
            kept.push(breakpoint);
        }
        self.breakpoints.functions = kept;
        Ok(json!({ "breakpoints": answers }))
    }

    pub(crate) fn set_instruction_breakpoints(&mut self, arguments: &Value) -> Answer {
        let (mut kept, mut answers) = (Vec::new(), Vec::new());
        for asked in arguments["breakpoints"].as_array().into_iter().flatten() {
            let place = self.address(&asked["instructionReference"], &asked["offset"]);
            let place = place.ok().and_then(|address| self.place_of(address));
            let breakpoint = self.breakpoints.add(place.into_iter().collect());
            answers.push(shown(&breakpoint, None, "no code is mapped at this address here"));
            kept.push(breakpoint);
        }
        self.breakpoints.instructions = kept;
        Ok(json!({ "breakpoints": answers }))
    }

    pub(crate) fn set_exception_breakpoints(&mut self, arguments: &Value) -> Answer {
        let filters = arguments["filters"].as_array();
        self.stops_at_gaps = filters.into_iter().flatten().any(|filter| filter == "gap");
        Ok(json!({ "breakpoints": [] }))
    }

    /// The place of an address that the current thread sees.
    fn place_of(&mut self, address: u64) -> Option<Place> {
        let here = self.here?;
        let time = self.stepper().time(here);
        let origin = self.trace.origin(here.thread, time, address)?;
        Some(Place::Code { module: origin.module, offset: origin.offset })
    }

    /// An address in memory, as the protocol writes it.
    pub(crate) fn address(&self, reference: &Value, offset: &Value) -> Result<u64, String> {
        let text = reference.as_str().unwrap_or_default();
        let digits = text.strip_prefix("0x").unwrap_or_default();
        let address =
            u64::from_str_radix(digits, 16).map_err(|_| format!("{text}: expected 0x and an address"))?;
        Ok(address.wrapping_add_signed(offset.as_i64().unwrap_or(0)))
    }

    /// The path of a source file as the recorded programs name it.
    pub(crate) fn recorded_path(&self, path: &str) -> String {
        let mapped = self.source_map.iter();
        let mut mapped =
            mapped.filter_map(|(from, to)| Some(format!("{from}{}", path.strip_prefix(to.as_str())?)));
        mapped.next().unwrap_or_else(|| path.to_owned())
    }

    /// The path of a source file as the client names it.
    pub(crate) fn client_path(&self, file: &str) -> String {
        let mapped = self.source_map.iter();
        let mut mapped =
            mapped.filter_map(|(from, to)| Some(format!("{to}{}", file.strip_prefix(from.as_str())?)));
        mapped.next().unwrap_or_else(|| file.to_owned())
    }
}
