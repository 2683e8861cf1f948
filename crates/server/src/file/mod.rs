//! The page as one file, with answers inside, as many as fit.
//!
//! ```text
//! about, findings, tables (half of the room, each cut to its share) ──┐
//! views of control flow (half of what is left) ───────────────────────┤
//! timeline, tiles: coarse ones of all the time first ─┼─gzip, base64─► page, {question: answer, …}
//! session: with what was left out ────────────────────────────────────┘
//! ```
//!
//! A page with less room shows less detail, but all of the time. Nothing is left out in silence.

mod flow;

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Write},
    sync::{Arc, atomic::AtomicBool},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use hodo_store::{Store, Table};
use regex::{Regex, RegexBuilder};
use serde::Serialize;

use crate::{
    Inputs,
    answer::{Answer, Failure, Question},
    endpoints::{
        self,
        session::describe,
        timeline::{CELLS, LANES, tile_with_detail},
    },
    index::Snapshot,
    page,
    session::Session,
};

/// Rows of a table in a file, at most.
const MOST_ROWS: usize = 20_000;
/// The shortest span that the page shows, in nanoseconds.
const SHORTEST: u64 = 20;
/// Bytes that are kept for the description of the session.
const DESCRIPTION: u64 = 16 << 10;
/// Bytes of JSON around the key and the data of an answer, at most.
const AROUND_ANSWER: usize = 40;

/// Parameters of a question, in the order of their names.
type Parameters<'p> = &'p [(&'p str, String)];

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the file.
    pub bytes: u64,
    /// What was left out, in sentences.
    pub left_out: Vec<String>,
}

/// What of the timeline a file shows first, and has all detail of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// From and to, in nanoseconds; `None` is all of the time.
    pub span: Option<(u64, u64)>,
    /// Only rows that match: a regular expression, or the text itself, as the page filters rows.
    pub rows: Option<String>,
}

impl Extent {
    fn meets(&self, begin: u64, end: u64) -> bool {
        self.span.is_none_or(|(from, to)| begin < to && end > from)
    }
}

/// An answer in the file.
#[derive(Serialize)]
struct KeptAnswer {
    /// Base64 of the gzip of its bytes.
    data: String,
    /// Rows of its table that it leaves out.
    left_out: u64,
}

/// Writes the page with answers, with the detail of `extent` of the timeline; at most `size` bytes if the page itself has room for them. `keep_going` says whether to
/// continue; if not, returns `None`.
///
/// # Errors
/// Those of the writer, and those of the store while it is read.
pub fn write_file(
    inputs: Arc<dyn Inputs>,
    size: u64,
    extent: Extent,
    keep_going: impl Fn() -> bool + Sync,
    out: &mut dyn Write,
) -> io::Result<Option<Written>> {
    let mut session = Session::new(inputs);
    session.extent = extent;
    session.index.build(&*session.inputs, &keep_going);
    let (before, after) = page::around_answers();
    let own = (before.len() + after.len()) as u64 + DESCRIPTION;
    let mut file = File::new(&session, size.saturating_sub(own), &keep_going);
    let filled = file.fill();
    if !keep_going() {
        return Ok(None);
    }
    let failed = |failure: Failure| io::Error::other(failure.to_string());
    filled.map_err(failed)?;
    let left_out = file.left_out.clone();
    file.keep("session".to_owned(), &describe(&session, &left_out).map_err(failed)?);
    let answers = serde_json::to_vec(&file.kept)?;
    let parts: [&[u8]; 5] = [
        before.as_bytes(),
        b"<script type=\"application/json\" id=\"answers\">",
        // Questions and base64 have no character that ends a script.
        &answers,
        b"</script>",
        after.as_bytes(),
    ];
    parts.iter().try_for_each(|part| out.write_all(part))?;
    let bytes = parts.iter().map(|part| part.len() as u64).sum();
    Ok(Some(Written { bytes, left_out }))
}

/// The answers of a file under construction.
struct File<'s> {
    session: &'s Session,
    keep_going: &'s (dyn Fn() -> bool + Sync),
    kept: BTreeMap<String, KeptAnswer>,
    /// Bytes left.
    room: u64,
    left_out: Vec<String>,
    /// Never set: the file is written as a whole, or not at all.
    stop: Arc<AtomicBool>,
}

/// The recording whose tables the file has.
pub(crate) const FIRST_RECORDING: usize = 0;

/// A tile that may be put into the file.
struct TileChoice {
    table: String,
    first: u32,
    /// The binary logarithm of the width of its cells in nanoseconds.
    digits: u32,
    tile: u64,
}

impl<'s> File<'s> {
    fn new(session: &'s Session, room: u64, keep_going: &'s (dyn Fn() -> bool + Sync)) -> File<'s> {
        let stop = Arc::new(AtomicBool::new(false));
        File { session, keep_going, kept: BTreeMap::new(), room, left_out: Vec::new(), stop }
    }

    fn fill(&mut self) -> Result<(), Failure> {
        let tables = self.session.inputs.about().len();
        let mut fits = self.ask("about", &[])?;
        for number in 0..tables {
            fits &= self.ask("about/table", &[("number", number.to_string())])?;
        }
        if !self.session.inputs.reports().is_empty() {
            fits &= self.ask("findings", &[])?;
        }
        if !fits {
            self.left_out.push(
                "There was no room for all that is known of the inputs, or for the findings.".to_owned(),
            );
        }
        self.tables()?;
        self.flow()?;
        let snapshot = self.session.index.snapshot(&*self.session.inputs);
        snapshot.map_or(Ok(()), |snapshot| self.timeline(&snapshot))
    }

    /// Asks a question as the page does; returns whether its answer fits.
    fn ask(&mut self, path: &str, parameters: Parameters<'_>) -> Result<bool, Failure> {
        let endpoint =
            endpoints::all().find(|endpoint| endpoint.path == path).expect("the path is one of ours");
        let answer = self.answer(parameters, endpoint.answer)?;
        Ok(self.keep(key(path, parameters), &answer))
    }

    fn answer<A>(
        &self,
        parameters: Parameters<'_>,
        ask: impl FnOnce(&Question<'_>) -> Result<A, Failure>,
    ) -> Result<A, Failure> {
        let query = parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        ask(&Question { session: self.session, query: &query, stop: &self.stop })
    }

    /// Keeps an answer if there is room for it; returns whether there is.
    fn keep(&mut self, key: String, answer: &Answer) -> bool {
        let data = packed(&answer.bytes);
        let bytes = (key.len() + data.len() + AROUND_ANSWER) as u64;
        // The session has the room of `DESCRIPTION`.
        if bytes > self.room && key != "session" {
            return false;
        }
        self.room = self.room.saturating_sub(bytes);
        self.kept.insert(key, KeptAnswer { data, left_out: answer.left_out });
        true
    }

    /// Adds the tables of all reports. Each has the same share of half the room, and as many rows as fit in that.
    fn tables(&mut self) -> Result<(), Failure> {
        let reports = self.session.inputs.reports();
        let views = |report: &crate::Report| report.views.len().max(1) as u64;
        let share = self.room / 2 / reports.iter().map(views).sum::<u64>().max(1);
        for report in reports {
            // The page asks for the default view without its name.
            let others = report.views.iter().skip(1).copied();
            for view in [""].into_iter().chain(others) {
                if !(self.keep_going)() {
                    return Ok(());
                }
                self.table(report.name, view, share)?;
            }
        }
        Ok(())
    }

    fn table(&mut self, report: &str, view: &str, share: u64) -> Result<(), Failure> {
        let keep_going = self.keep_going;
        let name = if view.is_empty() { report.to_owned() } else { format!("{report} by {view}") };
        let made =
            self.session.inputs.table(report, view, FIRST_RECORDING, MOST_ROWS, &mut |_, _| keep_going());
        let rows = match made {
            Ok(Some(rows)) => rows,
            Ok(None) => return Ok(()),
            Err(refused) => {
                self.left_out.push(format!("The table {name} is not here: {}.", refused.0));
                return Ok(());
            }
        };
        let key = key("table", &[("by", view.to_owned()), ("report", report.to_owned())]);
        let total = rows.table.row_count();
        let mut most = total;
        loop {
            let answer = Answer::table(&rows.table, most)?;
            let answer = Answer { left_out: answer.left_out + rows.left_out, ..answer };
            let fits = (packed(&answer.bytes).len() as u64) < share || most == 0;
            if fits && self.keep(key.clone(), &answer) {
                if answer.left_out > 0 {
                    self.left_out.push(format!(
                        "Of the table {name} only the first {most} of {} rows are here.",
                        total as u64 + rows.left_out
                    ));
                }
                return Ok(());
            }
            if most == 0 {
                self.left_out.push(format!("The table {name} is not here: there was no room."));
                return Ok(());
            }
            most /= 4;
        }
    }

    fn timeline(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        let generation = snapshot.generation.to_string();
        if !self.ask("timeline", &[])? {
            self.left_out.push("The timeline is not here: there was no room.".to_owned());
            return Ok(());
        }
        self.links(snapshot)?;
        let root = (0..).step_by(2).find(|digits| (snapshot.end - snapshot.origin) >> digits < CELLS);
        let mut choices = VecDeque::new();
        for (table, first) in blocks(&snapshot.store, self.session.extent.rows.as_deref()) {
            let digits = root.unwrap_or(0);
            let width = CELLS << digits;
            for tile in snapshot.origin / width..=snapshot.end / width {
                choices.push_back(TileChoice { table: table.clone(), first, digits, tile });
            }
        }
        self.add_tiles(&generation, choices)?;
        self.left_out.push(
            "This page is a file: it has no search, no critical paths, and no cells of single records. `hodo \
             view` has them."
                .to_owned(),
        );
        Ok(())
    }

    /// Adds the links of all of the time, which the page draws if they are few.
    fn links(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        let is_of_links = |table: &hodo_store::Table<'_>| table.schema().shape == hodo_store::Shape::Links;
        for table in snapshot.store.tables().filter(is_of_links) {
            let end = (snapshot.end - snapshot.origin + 1).max(SHORTEST);
            let parameters = [
                ("begin", "0".to_owned()),
                ("end", end.to_string()),
                ("generation", snapshot.generation.to_string()),
                ("table", table.schema().name.clone()),
            ];
            if !self.ask("timeline/links", &parameters)? {
                self.left_out.push(format!("Arrows of {} are not here.", table.schema().name));
            }
        }
        Ok(())
    }

    /// Adds tiles, the coarsest first, until there is no more detail or no more room.
    fn add_tiles(&mut self, generation: &str, mut choices: VecDeque<TileChoice>) -> Result<(), Failure> {
        while let Some(TileChoice { table, first, digits, tile }) = choices.pop_front() {
            if !(self.keep_going)() {
                return Ok(());
            }
            let parameters = [
                ("digits", digits.to_string()),
                ("first", first.to_string()),
                ("generation", generation.to_owned()),
                ("table", table.clone()),
                ("tile", tile.to_string()),
            ];
            let (answer, is_coarse) = self.answer(&parameters, tile_with_detail)?;
            if !self.keep(key("timeline/tile", &parameters), &answer) {
                self.left_out.push(format!(
                    "Of the timeline, detail finer than {} is left out in places.",
                    duration(1 << (digits + 2).min(63))
                ));
                return Ok(());
            }
            // Four tiles with cells a quarter as wide.
            if is_coarse && digits >= 2 {
                let extent = &self.session.extent;
                let finer = |part: u64| TileChoice {
                    table: table.clone(),
                    first,
                    digits: digits - 2,
                    tile: 4 * tile + part,
                };
                let is_wanted = |choice: &TileChoice| {
                    let width = CELLS << choice.digits;
                    extent.meets(choice.tile * width, (choice.tile + 1) * width)
                };
                choices.extend((0..4).map(finer).filter(is_wanted));
            }
        }
        Ok(())
    }
}

/// The blocks of lanes of all tables that have a row that passes a filter.
fn blocks(store: &Store, filter: Option<&str>) -> Vec<(String, u32)> {
    let passes = filter.map(RowFilter::new);
    let mut blocks = Vec::new();
    for table in store.tables() {
        let lanes = table.lanes();
        for first in (0..lanes).step_by(LANES as usize) {
            let mut block = first..lanes.min(first + LANES);
            if passes.as_ref().is_none_or(|filter| block.any(|lane| filter.passes(store, table, lane))) {
                blocks.push((table.schema().name.clone(), first));
            }
        }
    }
    blocks
}

/// The filter of rows, as `pattern` of the page has it.
struct RowFilter {
    text: String,
    expression: Option<Regex>,
}

impl RowFilter {
    fn new(filter: &str) -> RowFilter {
        let expression = RegexBuilder::new(filter).case_insensitive(true).build().ok();
        RowFilter { text: filter.to_lowercase(), expression }
    }

    fn passes(&self, store: &Store, table: Table<'_>, lane: u32) -> bool {
        let schema = table.schema();
        let path = store.path(table, lane).join(" › ");
        let row = format!("{} {} {path}", schema.name, schema.naming.title).to_lowercase();
        row.contains(&self.text) || self.expression.as_ref().is_some_and(|wanted| wanted.is_match(&row))
    }
}

/// A question as text, as the page makes it: its parameters are in the order of their names.
fn key(path: &str, parameters: Parameters<'_>) -> String {
    let text: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    if text.is_empty() { path.to_owned() } else { format!("{path}?{}", text.join("&")) }
}

/// Encodes a value as `URLSearchParams` of a page does (application/x-www-form-urlencoded).
fn encoded(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte {
            b'*' | b'-' | b'.' | b'_' => text.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => text.push(byte.into()),
            b' ' => text.push('+'),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn packed(bytes: &[u8]) -> String {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory takes what is written to it");
    STANDARD.encode(encoder.finish().expect("memory takes what is written to it"))
}

/// A duration for people.
fn duration(nanoseconds: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
    let unit = units.iter().find(|(size, _)| nanoseconds >= *size);
    unit.map_or_else(|| format!("{nanoseconds} ns"), |(size, name)| format!("{} {name}", nanoseconds / size))
}
