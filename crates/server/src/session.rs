//! What the questions of all pages share.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{SharedInputs, answer::Answer, file::Extent, flow::Latency, index::Index, job::Slots};

/// Bytes of answers that are kept, at most.
const KEPT: usize = 64 << 20;

/// The state of a server.
pub(crate) struct Session {
    pub(crate) inputs: SharedInputs,
    pub(crate) index: Index,
    pub(crate) slots: Slots,
    /// What a file has all detail of; a server has all of everything.
    pub(crate) extent: Extent,
    kept: Mutex<VecDeque<(String, Answer)>>,
    /// What was measured last.
    measured: Mutex<Option<(String, Arc<Latency>)>>,
    /// The module of each function.
    modules: OnceLock<HashMap<String, String>>,
    ended: AtomicBool,
}

impl Session {
    pub(crate) fn new(inputs: SharedInputs) -> Session {
        Session {
            inputs,
            index: Index::new(),
            slots: Slots::default(),
            extent: Extent::default(),
            kept: Mutex::new(VecDeque::new()),
            measured: Mutex::new(None),
            modules: OnceLock::new(),
            ended: AtomicBool::new(false),
        }
    }

    /// Ends all work.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns the module of a function; of a name in several modules, that of the first.
    pub(crate) fn module(&self, function: &str) -> Option<&str> {
        let modules = self.modules.get_or_init(|| {
            let mut modules = HashMap::new();
            for (function, module) in self.inputs.functions() {
                modules.entry(function).or_insert(module);
            }
            modules
        });
        modules.get(function).map(String::as_str)
    }

    /// Returns the answer that was kept under a key.
    pub(crate) fn kept(&self, key: &str) -> Option<Answer> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(known, _)| known == key).map(|(_, answer)| answer.clone())
    }

    /// Returns what was measured last, if its key is this one.
    pub(crate) fn measured(&self, key: &str) -> Option<Arc<Latency>> {
        let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        measured.as_ref().filter(|(known, _)| known == key).map(|(_, latency)| Arc::clone(latency))
    }

    /// Keeps a measurement in place of the one before.
    pub(crate) fn keep_measured(&self, key: String, latency: &Arc<Latency>) {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        *measured = Some((key, Arc::clone(latency)));
    }

    /// Keeps an answer that took a pass over the traces; the oldest ones make room for it.
    pub(crate) fn keep(&self, key: String, answer: &Answer) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((key, answer.clone()));
        while kept.iter().map(|(_, answer)| answer.bytes.len()).sum::<usize>() > KEPT {
            kept.pop_front();
        }
    }
}
