//! The selection from the inputs: parsed once, with the same meaning in every command.

use hodo_engine::{
    TimeSpan,
    events::{Condition, Wanted},
};

use crate::{arguments::Input, events::Filter, failure::Failure, input};

/// The selection options; the default selects everything.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// `--time`.
    pub time: Option<TimeSpan>,
    /// `--tid`.
    pub tids: Vec<u32>,
    /// `--pid`.
    pub pids: Vec<u32>,
    /// `--comm`.
    pub comms: Vec<String>,
    /// `--cpu-list`.
    pub cpus: Vec<u32>,
    /// `--event`.
    pub events: Vec<String>,
    /// `--where`.
    pub condition: Option<Condition>,
}

impl Selection {
    /// Reads the selection from the command line; `filter` is `None` for a command without options for single events.
    pub fn new(input: &Input, filter: Option<&Filter>) -> Result<Selection, Failure> {
        Ok(Selection {
            time: input::times(input)?,
            tids: input.tid.clone(),
            pids: input.pid.clone(),
            comms: input.comm.clone(),
            cpus: filter.map_or_else(Vec::new, |filter| filter.cpu_list.concat()),
            events: filter.map_or_else(Vec::new, |filter| filter.event.clone()),
            condition: filter.and_then(|filter| filter.condition.clone()),
        })
    }

    /// Returns whether threads are selected.
    pub fn has_threads(&self) -> bool {
        !(self.tids.is_empty() && self.pids.is_empty() && self.comms.is_empty())
    }

    /// Returns the selection for scripts and exports of events.
    pub fn wanted(&self) -> Wanted {
        Wanted {
            events: self.events.clone(),
            condition: self.condition.clone(),
            tids: self.tids.clone(),
            pids: self.pids.clone(),
            comms: self.comms.clone(),
            cpus: self.cpus.clone(),
        }
    }

    /// Returns the selection for tables.
    pub fn of_tables(&self, view: Option<&str>) -> hodo_model::Selection {
        hodo_model::Selection {
            view: view.unwrap_or_default().to_owned(),
            tids: self.tids.clone(),
            pids: self.pids.clone(),
            comms: self.comms.clone(),
            cpus: self.cpus.clone(),
            root: None,
            window: None,
        }
    }

    /// Rejects options that select software events, for inputs without such events.
    pub fn refuse_events(&self) -> Result<(), Failure> {
        match self.events.is_empty() && self.condition.is_none() && self.cpus.is_empty() {
            true => Ok(()),
            false => Err(Failure::usage(
                "--event, --where and --cpu-list select software events, but this input has none",
            )),
        }
    }

    /// Rejects any selection of times or threads, with the reason `why`.
    pub fn refuse(&self, why: &str) -> Result<(), Failure> {
        match self.time.is_none() && !self.has_threads() {
            true => Ok(()),
            false => Err(Failure::usage(format!("{why}, so --time, --tid, --pid and --comm do not apply"))),
        }
    }
}
