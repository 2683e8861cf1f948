//! The accounts of functions, up to where it is known when they ran.

use hodo_trace::{Arrival, FunctionId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    clock::Time,
    stack::{Edge, Entry},
};

/// Index of a function in its books.
pub(super) type Slot = u32;

/// What ran: up to some point, or from one to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C, packed(8))]
pub(super) struct Amount {
    pub(super) instructions: u64,
    /// Time of execution; in all, also that outside of what is traced.
    pub(super) time: Time,
}

impl Amount {
    #[inline]
    pub(super) fn add(&mut self, other: Amount) {
        self.instructions += other.instructions;
        self.time = { self.time }.and(other.time);
    }

    /// From an earlier point to this one.
    #[inline]
    pub(super) fn since(self, earlier: Amount) -> Amount {
        let instructions = self.instructions - earlier.instructions;
        Amount { instructions, time: { self.time }.since(earlier.time) }
    }
}

/// The account of a function: a line of the cache.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[repr(align(64))]
pub(super) struct Account {
    pub(super) own: Amount,
    /// What had run when it was opened first of those times that it is open now.
    opened: Amount,
    pub(super) calls: u64,
    /// How often it stands on the stack.
    depth: u32,
    /// Where its sum of the piece is, if it has one there.
    sum: u32,
}

/// Whose account it is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Holder {
    pub(super) function: FunctionId,
    /// Calls are counted in the account.
    pub(super) jumps: u64,
}

/// What runs on one frame that was not known.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Piece {
    /// How execution arrived at that frame.
    edge: Edge,
    arrival: Arrival,
    /// What had run by then.
    at: Amount,
    /// Its first sum.
    sums: u32,
}

/// What ran in a piece while a function stood on the stack at least once.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Sum {
    slot: Slot,
    amount: Amount,
}

/// The slots of functions.
#[derive(Clone, Debug, Default)]
struct Slots {
    all: FxHashMap<FunctionId, Slot>,
    /// Some that were asked for, by the lowest bits of a function's index: a table that mostly stays in the cache.
    recent: Vec<(FunctionId, Slot)>,
}

impl Slots {
    const RECENT: usize = 1 << 12;

    #[inline]
    fn of(&mut self, function: FunctionId) -> Option<Slot> {
        let place = function.index as usize % Slots::RECENT;
        match self.recent.get(place) {
            Some(&(known, slot)) if known == function => Some(slot),
            _ => {
                let slot = *self.all.get(&function)?;
                *self.recent.get_mut(place)? = (function, slot);
                Some(slot)
            }
        }
    }

    fn add(&mut self, function: FunctionId, slot: Slot) {
        self.all.insert(function, slot);
        self.recent.resize(Slots::RECENT, (function, slot));
    }
}

/// The accounts of functions, the stack that is open, and the pieces so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Record", into = "Record")]
pub(super) struct Books {
    slots: Slots,
    accounts: Vec<Account>,
    holders: Vec<Holder>,
    pieces: Vec<Piece>,
    /// Those of the pieces, one after another; a function has one a piece at most.
    sums: Vec<Sum>,
    open: Vec<Slot>,
    now: Amount,
}

/// [`Books`] as they travel.
#[derive(Clone, Serialize, Deserialize)]
struct Record {
    accounts: Vec<(Holder, Account)>,
    pieces: Vec<Piece>,
    sums: Vec<Sum>,
    open: Vec<Slot>,
    now: Amount,
}

impl From<Record> for Books {
    fn from(record: Record) -> Books {
        let Record { accounts, pieces, sums, open, now } = record;
        let (holders, accounts): (Vec<Holder>, _) = accounts.into_iter().unzip();
        let mut slots = Slots::default();
        holders.iter().zip(0..).for_each(|(holder, slot)| slots.add(holder.function, slot));
        Books { slots, accounts, holders, pieces, sums, open, now }
    }
}

impl From<Books> for Record {
    fn from(books: Books) -> Record {
        let Books { accounts, holders, pieces, sums, open, now, .. } = books;
        Record { accounts: holders.into_iter().zip(accounts).collect(), pieces, sums, open, now }
    }
}

impl Books {
    /// The slot of a function.
    #[inline]
    pub(super) fn slot(&mut self, function: FunctionId) -> Slot {
        if let Some(slot) = self.slots.of(function) {
            return slot;
        }
        let slot = self.accounts.len() as Slot;
        self.slots.add(function, slot);
        self.accounts.push(Account { sum: u32::MAX, ..Account::default() });
        self.holders.push(Holder { function, jumps: 0 });
        slot
    }

    #[inline]
    fn account(&mut self, slot: Slot) -> &mut Account {
        &mut self.accounts[slot as usize]
    }

    /// A function was entered so many times.
    #[inline]
    pub(super) fn entered(&mut self, slot: Slot, entry: Entry, times: u64) {
        match entry {
            Entry::Call => self.account(slot).calls += times,
            Entry::Tail => self.holders[slot as usize].jumps += times,
            Entry::Root | Entry::Interrupt => {}
        }
    }

    /// What has run so far.
    #[inline]
    pub(super) fn now(&self) -> Amount {
        self.now
    }

    /// So much has run by now.
    #[inline]
    pub(super) fn advance(&mut self, now: Amount) {
        self.now = now;
    }

    /// The newest frame ran.
    #[inline]
    pub(super) fn ran(&mut self, amount: Amount) {
        self.credit(amount);
        self.now.add(amount);
    }

    /// What ran was the newest frame.
    #[inline]
    pub(super) fn credit(&mut self, amount: Amount) {
        if let Some(&slot) = self.open.last() {
            self.account(slot).own.add(amount);
        }
    }

    /// Something ran that stands in other books.
    #[inline]
    pub(super) fn passed(&mut self, amount: Amount) {
        self.now.add(amount);
    }

    /// A frame of a function is entered, when so much had run.
    #[inline]
    pub(super) fn open(&mut self, slot: Slot, now: Amount) {
        let account = self.account(slot);
        account.depth += 1;
        if account.depth == 1 {
            account.opened = now;
        }
        self.open.push(slot);
    }

    /// The newest frame is left; likewise.
    #[inline]
    pub(super) fn close(&mut self, now: Amount) {
        let Some(slot) = self.open.pop() else { return };
        let account = self.account(slot);
        account.depth -= 1;
        if account.depth == 0 {
            let amount = now.since(account.opened);
            self.sum(slot, amount);
        }
    }

    /// Adds to what ran in this piece while a function stood on the stack.
    #[inline]
    fn sum(&mut self, slot: Slot, amount: Amount) {
        let begin = self.pieces.last().map_or(0, |piece| piece.sums as usize);
        let index = self.account(slot).sum as usize;
        if index >= begin
            && let Some(sum) = self.sums.get_mut(index)
        {
            return sum.amount.add(amount);
        }
        self.account(slot).sum = self.sums.len() as u32;
        self.sums.push(Sum { slot, amount });
    }

    /// Adds what ran in frames that are not open here: of a function itself, and while it stood on the stack, where
    /// it did so once.
    pub(super) fn add(&mut self, slot: Slot, own: Amount, all: Option<Amount>) {
        self.account(slot).own.add(own);
        if let Some(all) = all {
            self.sum(slot, all);
        }
    }

    /// All frames are left, and execution arrives at one that is not known; likewise.
    pub(super) fn begin_piece(&mut self, edge: Edge, arrival: Arrival, slot: Slot, now: Amount) {
        self.pieces.push(Piece { edge, arrival, at: now, sums: self.sums.len() as u32 });
        self.open(slot, now);
    }

    /// All frames are left.
    pub(super) fn close_all(&mut self) {
        while !self.open.is_empty() {
            self.close(self.now);
        }
    }

    /// Adds what later books say of functions: their slots here.
    pub(super) fn add_accounts(&mut self, later: &Books) -> Vec<Slot> {
        let add = |(holder, account): (&Holder, &Account)| {
            let slot = self.slot(holder.function);
            let mine = self.account(slot);
            mine.own.add(account.own);
            mine.calls += account.calls;
            self.holders[slot as usize].jumps += holder.jumps;
            slot
        };
        later.holders.iter().zip(&later.accounts).map(add).collect()
    }

    /// How execution arrived at the pieces, in order.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = (Edge, &Arrival)> {
        self.pieces.iter().map(|piece| (piece.edge, &piece.arrival))
    }

    /// Adds the sums of a piece of later books, whose functions have these slots, on the frames that are open.
    pub(super) fn add_piece(&mut self, later: &Books, index: usize, slots: &[Slot]) {
        let next = later.pieces.get(index + 1);
        let end = next.map_or(later.sums.len(), |next| next.sums as usize);
        for &Sum { slot, amount } in &later.sums[later.pieces[index].sums as usize..end] {
            let slot = slots[slot as usize];
            if self.account(slot).depth == 0 {
                self.sum(slot, amount);
            }
        }
        let begin = self.now;
        let at = later.pieces[index].at;
        self.now.add(next.map_or(later.now, |next| next.at).since(at));
        if next.is_some() {
            return;
        }
        // The frames above its first one are still open.
        for &slot in later.open.get(1..).unwrap_or_default() {
            let mut opened = begin;
            opened.add(later.accounts[slot as usize].opened.since(at));
            let slot = slots[slot as usize];
            let account = self.account(slot);
            account.depth += 1;
            if account.depth == 1 {
                account.opened = opened;
            }
            self.open.push(slot);
        }
    }

    /// The accounts, and of each what ran while it stood on the stack.
    pub(super) fn balance(&self) -> impl Iterator<Item = (&Holder, &Account, Amount)> {
        let mut all = vec![Amount::default(); self.accounts.len()];
        for sum in &self.sums {
            all[sum.slot as usize].add(sum.amount);
        }
        let accounts = self.holders.iter().zip(&self.accounts).zip(all);
        accounts.map(|((holder, account), all)| (holder, account, all))
    }
}
