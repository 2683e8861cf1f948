//! `hodo index`, and the description of a store for `hodo info`.

use std::{
    env,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use hodo_engine::{Identity, IndexError, Needs};
use hodo_model::{Column, Shape, Table, Unit};
use hodo_store::{Error, Schema, State, Store};
use serde_json::json;

use crate::{
    arguments::{Index, Input, StoreFolder},
    failure::{Failure, INTERRUPTED, written},
    input, live,
    progress::{Begin, Progress},
};

/// Runs the command.
pub fn run(command: &Index) -> Result<ExitCode, Failure> {
    let options = &command.input;
    let begin: Begin<'_> = &|total| Progress::new(total, options.quiet);
    let Some(built) = build(options, &command.store, begin)? else { return Ok(ExitCode::from(INTERRUPTED)) };
    if !options.quiet {
        written(writeln!(io::stdout(), "{}: {}", built.store.folder().display(), sizes(&built.store)))?;
    }
    Ok(built.code)
}

/// A store that was built, and the exit code, which depends on what is missing from it.
struct Built {
    store: Store,
    code: ExitCode,
}

/// Opens the store of inputs; builds it unless there is a complete one of the inputs as they are. `None` if building it
/// was interrupted.
pub fn open(options: &Input, chosen: &StoreFolder, begin: Begin<'_>) -> Result<Option<Store>, Failure> {
    match find(options, chosen) {
        Some(Found { state: "complete", store: Some(store), .. }) => Ok(Some(store)),
        _ => Ok(build(options, chosen, begin)?.map(|built| built.store)),
    }
}

/// Builds the store of inputs. `None` if it was interrupted.
fn build(options: &Input, chosen: &StoreFolder, begin: Begin<'_>) -> Result<Option<Built>, Failure> {
    let is_selection = options.time.is_some()
        || options.call.is_some()
        || options.chunk_size.is_some()
        || !(options.tid.is_empty() && options.pid.is_empty());
    if is_selection || options.buffer().is_some() {
        return Err(Failure::usage(
            "a store is of whole inputs: --time, --call, --tid, --pid, --chunk-size and --pt have no meaning",
        ));
    }
    if live::address(options)?.is_some() {
        return Err(Failure::usage(
            "a store is of what was recorded, not of a session that is being recorded",
        ));
    }
    let experiment = input::experiment(options, Needs::ALL)?;
    // The identity is taken before reading, so a later change of an input invalidates the store.
    let identity = identity(options)?;
    let folder = folder(chosen, &identity)?;
    let threads = input::threads(options);
    let progress = begin(experiment.index_work());
    let built = experiment.index(&folder, &identity, threads, &mut |done| progress.set(done));
    progress.finish();
    let losses = match built {
        Ok(Some(losses)) => losses,
        Ok(None) => return Ok(None),
        Err(IndexError::Refused(refusal)) => return Err(refusal.into()),
        Err(IndexError::Store(error)) => return Err(Failure::unreadable(error)),
    };
    if !options.quiet {
        input::report_loss_list(&losses);
    }
    let store = Store::open(&folder).map_err(Failure::unreadable)?;
    let code = input::exit_code_of(options, &experiment, losses.is_empty());
    // Dropping each value of large traces takes long; the end of the process frees them at once.
    std::mem::forget(experiment);
    Ok(Some(Built { store, code }))
}

/// Returns the identity of the inputs as they are now.
pub fn identity(input: &Input) -> Result<Identity, Failure> {
    let mut identity = Identity::of(&input.files, input.clock_frequency).map_err(Failure::unreadable)?;
    for offset in &input.offset {
        identity.text.push_str(&format!("offset {} {}\n", offset.trace, offset.nanos));
    }
    Ok(identity)
}

/// Returns the folder of the store: `--store`, or one in the user's cache.
pub fn folder(chosen: &StoreFolder, identity: &Identity) -> Result<PathBuf, Failure> {
    if let Some(folder) = &chosen.store {
        return Ok(folder.clone());
    }
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let cache = cache.ok_or_else(|| {
        Failure::usage("the cache folder is unknown: set HOME or XDG_CACHE_HOME, or use --store DIR")
    })?;
    Ok(cache.join("hodo/stores").join(&identity.name))
}

/// Formats the size of a store.
fn sizes(store: &Store) -> String {
    let records: u64 = store.tables().map(|table| table.rows()).sum();
    format!("{records} records, {} bytes", store.bytes())
}

/// The state of a store that was looked for.
pub struct Found {
    folder: PathBuf,
    /// complete, stale, growing, cut short, damaged or none.
    state: &'static str,
    store: Option<Store>,
    problem: Option<String>,
}

/// Looks for the store of inputs; `None` if they can't have one.
pub fn find(input: &Input, chosen: &StoreFolder) -> Option<Found> {
    if input.buffer().is_some() || live::address(input).ok()?.is_some() {
        return None;
    }
    let identity = identity(input).ok()?;
    let folder = folder(chosen, &identity).ok()?;
    let (state, store, problem) = match Store::open(&folder) {
        Ok(store) => (state(&store, &identity), Some(store), None),
        Err(Error::None(_)) => ("none", None, None),
        Err(error) => ("damaged", None, Some(error.to_string())),
    };
    Some(Found { folder, state, store, problem })
}

fn state(store: &Store, identity: &Identity) -> &'static str {
    match store.state() {
        _ if store.identity() != identity.text => "stale",
        State::Complete => "complete",
        State::Growing => "growing",
        State::CutShort => "cut short",
    }
}

impl Found {
    /// Describes the store for people.
    fn summary(&self) -> String {
        let folder = self.folder.display();
        let again = "`hodo index` builds it again";
        match (self.state, &self.store) {
            ("none", _) => "none; `hodo index` builds one".to_owned(),
            ("stale", _) => format!("{folder}: of another version of the input; {again}"),
            ("cut short", _) => format!("{folder}: not finished; {again}"),
            ("growing", _) => format!("{folder}: being built"),
            (_, Some(store)) => format!("{folder}: {}", sizes(store)),
            (_, None) => self.problem.clone().unwrap_or_default(),
        }
    }

    /// Returns the state and the tables of a usable store, as a table.
    pub fn table(&self) -> Table {
        let columns = vec![
            Column::text("table"),
            Column::text("contents"),
            Column::integer("records", Unit::Count),
            Column::integer("lanes", Unit::Count),
        ];
        let tables = self.store.iter().filter(|_| self.state == "complete").flat_map(Store::tables);
        let rows = tables.map(|table| {
            let Schema { name, naming, .. } = table.schema();
            let (name, title) = (name.as_str().into(), naming.title.as_str().into());
            vec![name, title, table.rows().into(), u64::from(table.lanes()).into()]
        });
        Table::new("store", Shape::Counters, vec![("store", self.summary().into())], columns, rows)
    }

    /// Returns the state and the tables as JSON.
    pub fn json(&self) -> serde_json::Value {
        let tables = self.store.iter().flat_map(Store::tables).map(|table| {
            let Schema { name, naming, .. } = table.schema();
            json!({ "name": name, "title": naming.title, "records": table.rows(), "lanes": table.lanes() })
        });
        json!({
            "folder": self.folder.display().to_string(),
            "state": self.state,
            "bytes": self.store.as_ref().map(Store::bytes),
            "tables": tables.collect::<Vec<_>>(),
            "problem": self.problem,
        })
    }
}
