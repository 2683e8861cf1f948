//! A map from CPU numbers to values.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// CPUs below this are stored in a list, as machines number CPUs from 0. The others go to a hash map.
const LISTED: u32 = 1 << 10;

/// A map from CPU numbers to values, mostly without hashing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cpus<T> {
    listed: Vec<Option<T>>,
    others: FxHashMap<u32, T>,
}

impl<T> Default for Cpus<T> {
    fn default() -> Cpus<T> {
        Cpus { listed: Vec::new(), others: FxHashMap::default() }
    }
}

impl<T> Cpus<T> {
    /// The value of a CPU.
    #[inline]
    pub fn get(&self, cpu: u32) -> Option<&T> {
        match self.listed.get(cpu as usize) {
            Some(own) => own.as_ref(),
            None if cpu < LISTED => None,
            None => self.others.get(&cpu),
        }
    }

    /// The value of a CPU, inserted by `make` if absent.
    #[inline]
    pub fn get_or(&mut self, cpu: u32, make: impl FnOnce() -> T) -> &mut T {
        if cpu >= LISTED {
            return self.others.entry(cpu).or_insert_with(make);
        }
        if self.listed.len() <= cpu as usize {
            self.listed.resize_with(cpu as usize + 1, || None);
        }
        self.listed[cpu as usize].get_or_insert_with(make)
    }

    /// Removes the value of a CPU.
    pub fn remove(&mut self, cpu: u32) -> Option<T> {
        match self.listed.get_mut(cpu as usize) {
            Some(own) => own.take(),
            None => self.others.remove(&cpu),
        }
    }

    /// All CPUs with their values.
    pub fn all(&self) -> impl Iterator<Item = (u32, &T)> {
        let listed = (0..).zip(&self.listed).filter_map(|(cpu, own)| Some((cpu, own.as_ref()?)));
        listed.chain(self.others.iter().map(|(cpu, own)| (*cpu, own)))
    }

    /// All CPUs with their values, by value.
    pub fn into_all(self) -> impl Iterator<Item = (u32, T)> {
        let listed = (0..).zip(self.listed).filter_map(|(cpu, own)| Some((cpu, own?)));
        listed.chain(self.others)
    }
}
