//! The accounts of functions, up to the instruction at which they were last settled.

use std::mem;

use hodo_model::{Arrival, FunctionId, FunctionRun};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{
    clock::{ShortTime, Time},
    stack::{FlowEdge, FrameEntry, ReturnAddress, StackFrame, Watch},
};

/// Index of a function in its [`FunctionCosts`].
pub(super) type CostSlot = u32;

/// A push or pop of a function's frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogEntry {
    /// Instructions before it.
    pub(super) until: u64,
    /// The function that executed these instructions, since the previous entry.
    ran: CostSlot,
    /// The slot of the function that is pushed or popped, with flags in the highest bits.
    moves: u32,
}

impl LogEntry {
    const LEAVES: u32 = 1 << 31;
    const CALLED: u32 = 1 << 30;
    const SLOT: u32 = LogEntry::CALLED - 1;

    #[inline]
    pub(super) fn enter(until: u64, ran: CostSlot, slot: CostSlot) -> LogEntry {
        LogEntry { until, ran, moves: slot }
    }

    /// A push by a call, which is counted.
    #[inline]
    pub(super) fn call(until: u64, ran: CostSlot, slot: CostSlot) -> LogEntry {
        LogEntry { until, ran, moves: slot | LogEntry::CALLED }
    }

    /// The running function leaves the stack.
    #[inline]
    pub(super) fn leave(until: u64, slot: CostSlot) -> LogEntry {
        LogEntry { until, ran: slot, moves: slot | LogEntry::LEAVES }
    }
}

/// Instructions and time, up to a point or between two points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C, packed(8))]
pub(super) struct CostAmount {
    pub(super) instructions: u64,
    /// Time of execution; in inclusive sums, also time outside traced code.
    pub(super) time: Time,
}

impl CostAmount {
    /// Adds an amount.
    #[inline]
    pub(super) fn add(&mut self, other: CostAmount) {
        self.instructions = self.instructions.wrapping_add(other.instructions);
        self.time = { self.time }.wrapping_add(other.time);
    }

    /// Subtracts an amount; intermediate results may be negative, so it wraps.
    #[inline]
    fn subtract(&mut self, other: CostAmount) {
        self.instructions = self.instructions.wrapping_sub(other.instructions);
        self.time = { self.time }.wrapping_sub(other.time);
    }

    /// Adds or subtracts an amount without a branch, which would often be mispredicted.
    #[inline]
    fn count(&mut self, other: CostAmount, add: bool) {
        let sign = if add { 1 } else { u64::MAX };
        self.instructions = self.instructions.wrapping_add(other.instructions.wrapping_mul(sign));
        self.time =
            if add { { self.time }.wrapping_add(other.time) } else { { self.time }.wrapping_sub(other.time) };
    }

    /// Returns the difference to an earlier point.
    fn since(self, earlier: CostAmount) -> CostAmount {
        let instructions = self.instructions.wrapping_sub(earlier.instructions);
        CostAmount { instructions, time: { self.time }.since(earlier.time) }
    }
}

/// The account of a function: one cache line.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[repr(align(64))]
pub(super) struct FunctionAccount {
    pub(super) own: CostAmount,
    /// Inclusive costs in this piece: the totals at the function's outermost exits, minus the totals at its outermost
    /// entries.
    pub(super) sum: CostAmount,
    pub(super) calls: u64,
    /// How often it is on the stack.
    depth: u32,
    /// Whether it has inclusive costs in this piece.
    has_sum: bool,
}

/// The function of an account.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Holder {
    pub(super) function: FunctionId,
    /// Entries by jump; entries by call are counted in the account.
    pub(super) jumps: u64,
}

/// Execution above one unknown frame.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct ArrivalAtUnknown {
    /// The edge over which execution arrived at that frame.
    edge: FlowEdge,
    arrival: Arrival,
    /// What had run before it.
    before: CostAmount,
    /// Index of its first sum.
    sums: u32,
}

/// The inclusive costs of a function in a piece.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct FunctionSum {
    slot: CostSlot,
    amount: CostAmount,
}

/// The slots of functions.
#[derive(Clone, Debug, Default)]
struct FunctionSlots {
    all: FxHashMap<FunctionId, CostSlot>,
    /// Slots by the function numbers of the source of runs, or [`UNKNOWN`].
    by_number: Vec<CostSlot>,
    source: u64,
}

/// The slot of a number that has none yet.
pub(super) const UNKNOWN: CostSlot = CostSlot::MAX;

/// The accounts of functions, the open stack, and the pieces so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "SerializedCosts", into = "SerializedCosts")]
pub(super) struct FunctionCosts {
    slots: FunctionSlots,
    accounts: Vec<FunctionAccount>,
    holders: Vec<Holder>,
    pieces: Vec<ArrivalAtUnknown>,
    /// The sums of all pieces except the last, concatenated; at most one per function and piece.
    sums: Vec<FunctionSum>,
    /// The functions with a sum in the last piece; it is in their accounts.
    summed: Vec<CostSlot>,
    now: CostAmount,
}

/// [`FunctionCosts`] in serialized form.
#[derive(Clone, Serialize, Deserialize)]
struct SerializedCosts {
    accounts: Vec<(Holder, FunctionAccount)>,
    pieces: Vec<ArrivalAtUnknown>,
    sums: Vec<FunctionSum>,
    summed: Vec<CostSlot>,
    now: CostAmount,
}

impl From<SerializedCosts> for FunctionCosts {
    fn from(record: SerializedCosts) -> FunctionCosts {
        let SerializedCosts { accounts, pieces, sums, summed, now } = record;
        let (holders, accounts): (Vec<Holder>, _) = accounts.into_iter().unzip();
        let mut slots = FunctionSlots::default();
        slots.all.extend(holders.iter().map(|holder| holder.function).zip(0..));
        FunctionCosts { slots, accounts, holders, pieces, sums, summed, now }
    }
}

impl From<FunctionCosts> for SerializedCosts {
    fn from(costs: FunctionCosts) -> SerializedCosts {
        let FunctionCosts { accounts, holders, pieces, sums, summed, now, .. } = costs;
        SerializedCosts { accounts: holders.into_iter().zip(accounts).collect(), pieces, sums, summed, now }
    }
}

impl FunctionCosts {
    /// Returns whether all slots are valid, and `open` are the open frames of the last piece.
    pub(super) fn are_sound(&self, open: impl Iterator<Item = CostSlot>) -> bool {
        let FunctionCosts { slots, accounts, pieces, sums, summed, .. } = self;
        let mut depths = vec![0; accounts.len()];
        for slot in open {
            match depths.get_mut(slot as usize) {
                Some(depth) if !pieces.is_empty() => *depth += 1,
                _ => return false,
            }
        }
        slots.all.len() == accounts.len()
            && accounts.iter().map(|account| account.depth).eq(depths)
            && accounts.iter().filter(|account| account.has_sum).count() == summed.len()
            && summed.iter().all(|&slot| accounts.get(slot as usize).is_some_and(|account| account.has_sum))
            && sums.iter().all(|sum| (sum.slot as usize) < accounts.len())
            && pieces.is_sorted_by_key(|piece| piece.sums)
            && pieces.last().is_none_or(|last| last.sums as usize <= sums.len())
    }

    /// The slot of a function.
    pub(super) fn slot(&mut self, function: FunctionId) -> CostSlot {
        *self.slots.all.entry(function).or_insert_with(|| {
            self.accounts.push(FunctionAccount::default());
            self.holders.push(Holder { function, jumps: 0 });
            self.holders.len() as CostSlot - 1
        })
    }

    /// Sets the source of function numbers; 0 has no numbers.
    #[inline]
    pub(super) fn use_numbers_of(&mut self, source: u64) {
        if source != 0 && self.slots.source != source {
            self.slots.source = source;
            self.slots.by_number.clear();
        }
    }

    /// Returns the slot of the function with this number, and adds it if it is new.
    #[inline]
    pub(super) fn slot_of(&mut self, number: u32, function: impl FnOnce() -> FunctionId) -> CostSlot {
        match self.slots.by_number.get(number as usize) {
            Some(&slot) if slot != UNKNOWN => slot,
            _ => self.number(number, function()),
        }
    }

    /// Assigns a number to a function.
    #[cold]
    fn number(&mut self, number: u32, function: FunctionId) -> CostSlot {
        let slot = self.slot(function);
        let (index, by_number) = (number as usize, &mut self.slots.by_number);
        if by_number.len() <= index {
            by_number.resize(index + 1, UNKNOWN);
        }
        by_number[index] = slot;
        slot
    }

    #[inline]
    fn account(&mut self, slot: CostSlot) -> &mut FunctionAccount {
        &mut self.accounts[slot as usize]
    }

    /// Counts entries of a function.
    #[inline]
    pub(super) fn entered(&mut self, slot: CostSlot, entry: FrameEntry, times: u64) {
        let count = match entry {
            FrameEntry::Call => &mut self.account(slot).calls,
            FrameEntry::Tail => &mut self.holders[slot as usize].jumps,
            _ => return,
        };
        *count = count.wrapping_add(times);
    }

    /// Converts the slot of a frame to its function.
    pub(super) fn named(&self, frame: &StackFrame<(), CostSlot>) -> StackFrame<()> {
        let &StackFrame { function: slot, entry, return_address, note } = frame;
        StackFrame { function: self.holders[slot as usize].function, entry, return_address, note }
    }

    /// Adds costs to a function's own costs.
    #[inline]
    pub(super) fn credit(&mut self, slot: CostSlot, amount: CostAmount) {
        self.account(slot).own.add(amount);
    }

    /// Adds costs to a function's own costs, and to the total.
    #[inline]
    pub(super) fn ran(&mut self, slot: CostSlot, amount: CostAmount) {
        self.credit(slot, amount);
        self.add_to_total(amount);
    }

    #[inline]
    pub(super) fn add_to_total(&mut self, amount: CostAmount) {
        self.now.add(amount);
    }

    /// Replays log entries from instruction `from`, at `each` per instruction; returns the end instruction count.
    pub(super) fn follow(&mut self, entries: &[LogEntry], from: u64, each: Time) -> u64 {
        match each.short() {
            Some(short) => self.follow_in(entries, from, |count| short.times(count)),
            None => self.follow_in(entries, from, |count| each.times(count)),
        }
    }

    #[inline(always)]
    fn follow_in(&mut self, entries: &[LogEntry], mut from: u64, time: impl Fn(u64) -> Time) -> u64 {
        let FunctionCosts { accounts, summed, now: so_far, .. } = self;
        let mut now = *so_far;
        for &LogEntry { until, ran, moves } in entries {
            let (slot, leaves) = (moves & LogEntry::SLOT, moves & LogEntry::LEAVES != 0);
            let instructions = until - from;
            let amount = CostAmount { instructions, time: time(instructions) };
            accounts[ran as usize].own.add(amount);
            now.add(amount);
            from = until;
            let account = &mut accounts[slot as usize];
            account.calls += u64::from(moves & LogEntry::CALLED != 0);
            let before = account.depth;
            account.depth = if leaves { before - 1 } else { before + 1 };
            if before.min(account.depth) == 0 {
                account.sum.count(now, leaves);
                if !account.has_sum {
                    account.has_sum = true;
                    summed.push(slot);
                }
            }
        }
        *so_far = now;
        from
    }

    /// Returns the slots of functions by their numbers, or [`UNKNOWN`]; and a writer for the accounts.
    #[inline(always)]
    pub(super) fn open(&mut self, each: ShortTime) -> (&[CostSlot], CostWriter<'_>) {
        let FunctionCosts { slots, accounts, holders, summed, now: so_far, .. } = self;
        let open = CostWriter { accounts, holders, summed, so_far, ran: 0, each, calls: 0 };
        (&slots.by_number, open)
    }

    /// Pushes a frame of a function.
    fn enter_frame(&mut self, slot: CostSlot) {
        self.follow(&[LogEntry::enter(0, slot, slot)], 0, Time::default());
    }

    /// Pops the newest frame, which must be of this function.
    fn leave_frame(&mut self, slot: CostSlot) {
        self.follow(&[LogEntry::leave(0, slot)], 0, Time::default());
    }

    /// Adds to the inclusive costs of a function in this piece.
    fn sum(&mut self, slot: CostSlot, amount: CostAmount) {
        let account = &mut self.accounts[slot as usize];
        account.sum.add(amount);
        if !mem::replace(&mut account.has_sum, true) {
            self.summed.push(slot);
        }
    }

    /// Adds costs of a frame that is not open here: `own` to the function's own costs, and for the outermost frame,
    /// `all` to its inclusive costs.
    pub(super) fn add(&mut self, slot: CostSlot, own: CostAmount, all: Option<CostAmount>) {
        self.credit(slot, own);
        if let Some(all) = all {
            self.sum(slot, all);
        }
    }

    /// Begins a piece: all frames have been left, and execution arrives at an unknown one.
    pub(super) fn begin_piece(&mut self, edge: FlowEdge, arrival: Arrival, slot: CostSlot) {
        let FunctionCosts { accounts, sums, summed, .. } = self;
        for slot in summed.drain(..) {
            let account = &mut accounts[slot as usize];
            account.has_sum = false;
            sums.push(FunctionSum { slot, amount: mem::take(&mut account.sum) });
        }
        self.pieces.push(ArrivalAtUnknown { edge, arrival, before: self.now, sums: self.sums.len() as u32 });
        self.enter_frame(slot);
    }

    /// Adds the accounts of a later partial; returns the slots here by its slots.
    pub(super) fn add_accounts(&mut self, later: &FunctionCosts) -> Vec<CostSlot> {
        let mut slots = Vec::with_capacity(later.holders.len());
        for (holder, account) in later.holders.iter().zip(&later.accounts) {
            let slot = self.slot(holder.function);
            let merged = self.account(slot);
            merged.own.add(account.own);
            merged.calls = merged.calls.saturating_add(account.calls);
            let jumps = &mut self.holders[slot as usize].jumps;
            *jumps = jumps.saturating_add(holder.jumps);
            slots.push(slot);
        }
        slots
    }

    /// Returns the edge over which execution arrived at each piece, in order.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = (FlowEdge, &Arrival)> {
        self.pieces.iter().map(|piece| (piece.edge, &piece.arrival))
    }

    /// Adds the sums of a piece of a later partial to the open frames; `slots` maps its slots to those here. `open` are
    /// the frames that are still open above its first frame if it is the last piece, as slots of the later partial.
    pub(super) fn add_piece(
        &mut self,
        later: &FunctionCosts,
        index: usize,
        slots: &[CostSlot],
        open: &[CostSlot],
    ) {
        let next = later.pieces.get(index + 1);
        let end = next.map_or(later.sums.len(), |next| next.sums as usize);
        for &FunctionSum { slot, amount } in &later.sums[later.pieces[index].sums as usize..end] {
            self.sum_on_stack(slots[slot as usize], amount);
        }
        let begin = self.now;
        let before = later.pieces[index].before;
        self.now.add(next.map_or(later.now, |next| next.before).since(before));
        if next.is_some() {
            return;
        }
        for &slot in &later.summed {
            let FunctionAccount { mut sum, depth, .. } = later.accounts[slot as usize];
            if depth > 0 {
                // The account counts from an entry point that the earlier pieces shift.
                sum.add(before);
                sum.subtract(begin);
            }
            self.sum_on_stack(slots[slot as usize], sum);
        }
        for &slot in open {
            self.account(slots[slot as usize]).depth += 1;
        }
    }

    /// Adds to a function's inclusive costs, unless it is on the stack: then the outermost frame includes them.
    fn sum_on_stack(&mut self, slot: CostSlot, amount: CostAmount) {
        if self.account(slot).depth == 0 {
            self.sum(slot, amount);
        }
    }

    /// Returns the accounts, whose sums are the functions' inclusive costs; all frames have been left.
    pub(super) fn by_function(&self) -> impl Iterator<Item = (&Holder, FunctionAccount)> {
        let mut accounts = self.accounts.clone();
        for sum in &self.sums {
            accounts[sum.slot as usize].sum.add(sum.amount);
        }
        self.holders.iter().zip(accounts)
    }
}

impl Watch<(), CostSlot> for FunctionCosts {
    fn enter(&mut self, _: &StackFrame<(), CostSlot>, slot: CostSlot, entry: FrameEntry, _: ReturnAddress) {
        self.entered(slot, entry, 1);
        self.enter_frame(slot);
    }

    fn leave(&mut self, frame: &StackFrame<(), CostSlot>) {
        self.leave_frame(frame.function);
    }
}

/// Writes entries and exits of frames and their costs directly to the accounts.
pub(super) struct CostWriter<'b> {
    accounts: &'b mut [FunctionAccount],
    holders: &'b mut [Holder],
    summed: &'b mut Vec<CostSlot>,
    /// The total up to here, updated on close.
    so_far: &'b mut CostAmount,
    /// Number of instructions since then, and the time of each.
    ran: u64,
    each: ShortTime,
    /// Number of entries by call.
    calls: u64,
}

impl CostWriter<'_> {
    /// Returns the slot of a function run's function, if it has an account.
    #[inline(always)]
    pub(super) fn known(&self, slots: &[CostSlot], function_run: &FunctionRun) -> Option<CostSlot> {
        let slot = *slots.get(function_run.function() as usize)?;
        ((slot as usize) < self.accounts.len()).then_some(slot)
    }

    /// Adds the instructions of a function.
    #[inline(always)]
    pub(super) fn ran(&mut self, slot: CostSlot, instructions: u64) {
        let amount = CostAmount { instructions, time: self.each.few_times(instructions) };
        self.accounts[slot as usize].own.add(amount);
        self.ran += instructions;
    }

    /// Adds a call of a function that returned without calling another.
    #[inline(always)]
    pub(super) fn called(&mut self, slot: CostSlot, instructions: u64) {
        let amount = CostAmount { instructions, time: self.each.few_times(instructions) };
        let account = &mut self.accounts[slot as usize];
        account.own.add(amount);
        self.ran += instructions;
        account.calls += 1;
        self.calls += 1;
        if account.depth == 0 {
            account.sum.add(amount);
            if !account.has_sum {
                CostWriter::begin_sum(account, self.summed, slot);
            }
        }
    }

    /// The total up to the present.
    #[inline(always)]
    fn now(&self) -> CostAmount {
        let mut now = *self.so_far;
        now.add(CostAmount { instructions: self.ran, time: self.each.few_times(self.ran) });
        now
    }

    /// Adds up, and returns the number of entries by call.
    #[inline(always)]
    pub(super) fn close(self) -> u64 {
        *self.so_far = self.now();
        self.calls
    }

    /// Slow path: the first outermost entry of a function in this piece.
    #[cold]
    #[inline(never)]
    fn begin_sum(account: &mut FunctionAccount, summed: &mut Vec<CostSlot>, slot: CostSlot) {
        account.has_sum = true;
        summed.push(slot);
    }
}

impl Watch<(), CostSlot> for CostWriter<'_> {
    #[inline(always)]
    fn enter(&mut self, _: &StackFrame<(), CostSlot>, slot: CostSlot, entry: FrameEntry, _: ReturnAddress) {
        let now = self.now();
        let account = &mut self.accounts[slot as usize];
        account.calls += u64::from(entry == FrameEntry::Call);
        self.calls += u64::from(entry == FrameEntry::Call);
        account.depth += 1;
        if account.depth == 1 {
            account.sum.subtract(now);
            if !account.has_sum {
                CostWriter::begin_sum(account, self.summed, slot);
            }
        }
        if entry == FrameEntry::Tail {
            self.holders[slot as usize].jumps += 1;
        }
    }

    #[inline(always)]
    fn leave(&mut self, frame: &StackFrame<(), CostSlot>) {
        let now = self.now();
        let account = &mut self.accounts[frame.function as usize];
        account.depth -= 1;
        if account.depth == 0 {
            debug_assert!(account.has_sum, "its entry began the sum");
            account.sum.add(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use hodo_model::Place;

    use super::*;

    /// Returns the costs of one function that is on the stack in the second piece.
    fn costs() -> FunctionCosts {
        let (mut costs, function) = (FunctionCosts::default(), FunctionId { module: 1, index: 0 });
        let slot = costs.slot(function);
        let arrival = Arrival { address: 0, function, place: Place::Entry };
        costs.begin_piece(FlowEdge::Gap, arrival, slot);
        costs.leave_frame(slot);
        costs.begin_piece(FlowEdge::Gap, arrival, slot);
        costs
    }

    #[test]
    fn costs_with_wrong_indices_are_not_sound() {
        assert!(costs().are_sound([0].into_iter()));
        assert!(!costs().are_sound([1].into_iter()));
        let changes: [fn(&mut FunctionCosts); 9] = [
            |costs| costs.accounts[0].depth = 2,
            |costs| costs.accounts[0].has_sum = false,
            |costs| costs.summed[0] = 1,
            |costs| costs.summed.clear(),
            |costs| costs.sums[0].slot = 1,
            |costs| costs.pieces[0].sums = 2,
            |costs| costs.pieces[1].sums = 2,
            |costs| costs.pieces.clear(),
            |costs| {
                costs.accounts.push(FunctionAccount::default());
                costs.holders.push(costs.holders[0]);
            },
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut costs = costs();
            change(&mut costs);
            assert!(!FunctionCosts::from(SerializedCosts::from(costs)).are_sound([0].into_iter()), "{index}");
        }
    }
}
