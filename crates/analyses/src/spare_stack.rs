//! A stack with space for bulk writes beyond its end.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

/// A stack with spare capacity of unspecified content: a bulk writer requests slots once, and commits the used ones at
/// the end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "T: Copy + Serialize", deserialize = "T: Deserialize<'de>"))]
#[serde(from = "Vec<T>", into = "Vec<T>")]
pub(crate) struct SpareCapacityStack<T> {
    all: Vec<T>,
    len: usize,
}

impl<T> Default for SpareCapacityStack<T> {
    fn default() -> SpareCapacityStack<T> {
        SpareCapacityStack { all: Vec::new(), len: 0 }
    }
}

impl<T> From<Vec<T>> for SpareCapacityStack<T> {
    fn from(all: Vec<T>) -> SpareCapacityStack<T> {
        SpareCapacityStack { len: all.len(), all }
    }
}

impl<T: Copy> From<SpareCapacityStack<T>> for Vec<T> {
    fn from(mut spare_stack: SpareCapacityStack<T>) -> Vec<T> {
        spare_stack.all.truncate(spare_stack.len);
        spare_stack.all
    }
}

impl<T: Copy> Extend<T> for SpareCapacityStack<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

impl<T> Deref for SpareCapacityStack<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.all[..self.len]
    }
}

impl<T> DerefMut for SpareCapacityStack<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.all[..self.len]
    }
}

impl<T: Copy> SpareCapacityStack<T> {
    #[inline(always)]
    pub(crate) fn push(&mut self, value: T) {
        match self.all.get_mut(self.len) {
            Some(slot) => *slot = value,
            None => self.all.push(value),
        }
        self.len += 1;
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        Some(self.all[self.len])
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the buffer, with at least `more` slots of unspecified content behind the stack, and the length of the stack.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, more: usize, anything: T) -> (&mut [T], usize) {
        if self.all.len() < self.len + more {
            self.all.resize(self.len + 2 * more, anything);
        }
        (&mut self.all, self.len)
    }

    /// Sets the length, which may include spare slots that were written.
    ///
    /// # Panics
    /// If `len` exceeds the length of the buffer.
    #[inline(always)]
    pub(crate) fn count(&mut self, len: usize) {
        assert!(len <= self.all.len());
        self.len = len;
    }
}
