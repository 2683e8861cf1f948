//! What is missing, gathered so that a thousand like places are one line.

use std::collections::BTreeMap;

use hodo_model::{Cause, Loss};

/// Kinds of loss that are told apart; what comes after is counted together.
const KINDS: usize = 1000;

/// Losses by stream, cause and detail, in the order in which they were met first.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    list: Vec<Loss>,
    index: BTreeMap<(String, Cause, String), usize>,
}

impl Losses {
    /// Adds one to those of its kind, which keep the place and time of their first.
    pub fn add(&mut self, mut loss: Loss) {
        if self.list.len() >= KINDS {
            loss.detail = "and more".to_owned();
        }
        let key = (loss.stream.clone(), loss.cause, loss.detail.clone());
        match self.index.get(&key) {
            Some(&index) => {
                let count = &mut self.list[index].count;
                *count = count.saturating_add(loss.count);
            }
            None => {
                self.index.insert(key, self.list.len());
                self.list.push(loss);
            }
        }
    }

    /// All of them.
    pub fn into_list(self) -> Vec<Loss> {
        self.list
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
