//! Collects losses and counts similar ones together.

use std::collections::BTreeMap;

use hodo_model::{Cause, Loss};

/// Number of kinds of loss to distinguish; later ones are counted together.
const MOST_KINDS: usize = 1000;

/// Losses by stream, cause and detail, in the order of first occurrence.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    list: Vec<Loss>,
    index: BTreeMap<(String, Cause, String), usize>,
}

impl Losses {
    /// Adds a loss to its kind, which keeps the place and time of its first loss.
    pub fn add(&mut self, mut loss: Loss) {
        if self.list.len() >= MOST_KINDS {
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

    /// Adds the losses of another trace.
    pub fn and(mut self, other: Losses) -> Losses {
        other.list.into_iter().for_each(|loss| self.add(loss));
        self
    }

    /// Returns all losses.
    pub fn into_list(self) -> Vec<Loss> {
        self.list
    }

    /// Returns whether there is no loss.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
