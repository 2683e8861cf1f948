//! Limits of a program's address space and data, as if the runtime's memory were not there: the kernel's limits are larger by
//! what the runtime has mapped.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{
    context::Context,
    exec::Execution,
    layout::{ARENA_ROOM, HEAP_ROOM},
    raw,
    sys::{self, errno, failed, nr},
};

/// A limit that the program has set.
struct Limit {
    /// Its number.
    resource: u64,
    /// Memory of the runtime that counts, apart from [`MAPPED`].
    fixed: u64,
    soft: AtomicU64,
    hard: AtomicU64,
    /// The soft limit that the kernel has for it; 0: the program set none.
    actual: AtomicU64,
}

/// Room above the program's hard limit, so that the soft one can follow what the runtime maps.
const EXTRA: u64 = 1 << 36;
const DATA: u64 = 2;
const ADDRESS_SPACE: u64 = 9;

static LIMITS: [Limit; 2] = [
    Limit::new(DATA, HEAP_ROOM),
    // The arena is shared, so it is no data.
    Limit::new(ADDRESS_SPACE, HEAP_ROOM + ARENA_ROOM),
];
/// Bytes that the runtime has mapped in this process beside its tables.
static MAPPED: AtomicU64 = AtomicU64::new(0);

impl Limit {
    const fn new(resource: u64, fixed: u64) -> Limit {
        Limit { resource, fixed, soft: AtomicU64::new(0), hard: AtomicU64::new(0), actual: AtomicU64::new(0) }
    }

    fn is_set(&self) -> bool {
        self.actual.load(Relaxed) != 0
    }

    fn own(&self) -> u64 {
        self.fixed + MAPPED.load(Relaxed)
    }

    fn kernel(&self) -> [u64; 2] {
        let mut now = [0u64; 2];
        sys::call(nr::PRLIMIT64, [0, self.resource, 0, now.as_mut_ptr() as u64, 0, 0]);
        now
    }

    fn set_kernel(&self, values: [u64; 2]) -> u64 {
        sys::call(nr::PRLIMIT64, [0, self.resource, values.as_ptr() as u64, 0, 0, 0])
    }

    /// Sets the program's limit.
    fn set(&self, [soft, hard]: [u64; 2]) -> u64 {
        if soft > hard {
            return errno::EINVAL;
        }
        let [_, most] = self.kernel();
        let raises = if self.is_set() { hard > self.hard.load(Relaxed) } else { hard > most };
        // The kernel decides whether the program may raise it.
        let room = hard.saturating_add(EXTRA);
        let actual_hard = if raises { room } else { room.min(most) };
        let actual = soft.saturating_add(self.own()).min(actual_hard);
        let result = self.set_kernel([actual, actual_hard]);
        if !failed(result) {
            self.soft.store(soft, Relaxed);
            self.hard.store(hard, Relaxed);
            self.actual.store(actual, Relaxed);
        }
        result
    }

    /// Follows what the runtime has mapped.
    fn follow(&self) {
        if !self.is_set() {
            return;
        }
        let [_, hard] = self.kernel();
        let actual = self.soft.load(Relaxed).saturating_add(self.own()).min(hard);
        if !failed(self.set_kernel([actual, hard])) {
            self.actual.store(actual, Relaxed);
        }
    }
}

/// Maps memory of the runtime as [`sys::map`] does. Returns the kernel's result.
pub fn map(address: u64, length: u64, protection: u64) -> u64 {
    let change = |by: u64| {
        MAPPED.fetch_add(by, Relaxed);
        LIMITS.iter().for_each(Limit::follow);
    };
    change(length);
    let result = sys::try_map(address, length, protection);
    if failed(result) {
        change(length.wrapping_neg());
    }
    result
}

/// `getrlimit`, `setrlimit` and `prlimit64`, if the runtime must answer.
pub fn call(context: &Context, number: u64, [a, b, c, d, ..]: [u64; 6]) -> Option<u64> {
    let own = a == 0 || a == u64::from(context.process.get());
    let (resource, new, old) = match number {
        nr::PRLIMIT64 if own => (b, c, d),
        nr::SETRLIMIT => (a, b, 0),
        nr::GETRLIMIT => (a, 0, b),
        _ => return None,
    };
    let limit = LIMITS.iter().find(|limit| limit.resource == resource)?;
    // A process that borrows its parent's memory has limits of its own.
    if context.borrows.get() != 0 || new == 0 && !limit.is_set() {
        return None;
    }
    let before =
        if limit.is_set() { [limit.soft.load(Relaxed), limit.hard.load(Relaxed)] } else { limit.kernel() };
    if new != 0 {
        let mut wanted = [0u64; 2];
        if raw::copy(wanted.as_mut_ptr() as u64, new, 16) != 0 {
            return Some(errno::EFAULT);
        }
        let result = limit.set(wanted);
        if failed(result) {
            return Some(result);
        }
    }
    let missing = if old == 0 { 0 } else { raw::copy(old, before.as_ptr() as u64, 16) };
    Some(if missing == 0 { 0 } else { errno::EFAULT })
}

/// Before the program executes another one, the kernel gets the limits that the program set. If that failed, it gets the
/// runtime's limits again.
pub fn hand_over(execution: Execution) {
    for limit in LIMITS.iter().filter(|limit| limit.is_set()) {
        let (soft, actual) = (limit.soft.load(Relaxed), limit.actual.load(Relaxed));
        let (from, to) = match execution {
            Execution::Begins => (actual, soft),
            Execution::Failed => (soft, actual),
        };
        let [now, hard] = limit.kernel();
        if now == from {
            limit.set_kernel([to, hard]);
        }
    }
}
