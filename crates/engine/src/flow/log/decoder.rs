//! Follows the entries of one block.

use hodo_clock::Tsc;
use hodo_code::{BlockId, FunctionRun, Graph, Isa, Labels};
use hodo_flow::{Event, Executed, Gap, PacketKind, Sink, Switch, Trouble};
use hodo_native_log::{Entries, Entry, Item, Table, note};

use super::{
    LogContext, Position,
    exits::{ExitCode, Exits, Ran, append},
    superblocks::{LENGTH, Superblock},
    ways::BY_BLOCKS,
};

/// Decodes a block of a log.
pub(super) struct Decoder<'d, 'c, 'a, L, S> {
    table: &'d Table,
    context: &'d mut LogContext<'c, 'a, L>,
    sink: &'d mut S,
    /// The exits of the current program and the table.
    exits: Exits,
    /// Index of the current program.
    program: usize,
    /// The context of the thread, by the schedule.
    thread_context: u32,
    /// When the schedule changes next.
    next_switch: Tsc,
    position: Position,
    /// The last reported time.
    reported: Option<u64>,
    /// While the sink takes paths: its state. The position is then where the next exit must begin.
    state: Option<u32>,
    /// A block of which only the first instructions have run, while the thread is within it.
    open: Option<(BlockId, u32)>,
    gap: Option<Gap>,
}

impl<'d, 'c, 'a, L: Labels, S: Sink> Decoder<'d, 'c, 'a, L, S> {
    pub(super) fn new(
        table: &'d Table,
        position: Position,
        context: &'d mut LogContext<'c, 'a, L>,
        sink: &'d mut S,
    ) -> Self {
        let Switch { program, context: thread_context, .. } = context.schedule[0];
        let mut decoder = Decoder {
            table,
            context,
            sink,
            exits: Exits::default(),
            program,
            thread_context,
            next_switch: Tsc(0),
            position,
            reported: None,
            state: None,
            open: None,
            gap: None,
        };
        decoder.exchange_exits();
        decoder
    }

    /// Exchanges the exits with those that are kept for the current program.
    fn exchange_exits(&mut self) {
        let key = (self.program, std::ptr::from_ref(self.table).addr());
        std::mem::swap(&mut self.exits, self.context.memos.exits.entry(key).or_default());
    }

    /// Begins the block, whose first time is `since`.
    pub(super) fn begin(&mut self, since: u64) {
        self.position.now = self.position.now.max(since);
        self.position.is_recorded &= self.position.address != 0;
        if let Some(context) = self.switch_program() {
            self.sink.event(Event::Switch(context));
        }
        if !self.position.is_recorded {
            self.event(OFF);
        }
        self.time();
    }

    /// Applies the schedule. Returns the context if it changed.
    fn switch_program(&mut self) -> Option<u32> {
        let now = Tsc(self.position.now);
        let after = self.context.schedule.partition_point(|switch| switch.at <= now);
        self.next_switch = self.context.schedule.get(after.max(1)).map_or(Tsc(u64::MAX), |switch| switch.at);
        let Switch { program, context, .. } = self.context.schedule[after.saturating_sub(1)];
        if (program, context) == (self.program, self.thread_context) {
            return None;
        }
        self.exchange_exits();
        (self.program, self.thread_context) = (program, context);
        self.exchange_exits();
        Some(context)
    }

    /// Follows all entries of the block.
    pub(super) fn entries(&mut self, entries: &mut Entries<'_>) {
        loop {
            self.known_paths(entries);
            self.known_runs(entries);
            match entries.next_exit() {
                Some(exit) => {
                    entries.pass(1);
                    self.exit(exit);
                }
                None => match entries.next() {
                    Some(entry) => self.entry(entry),
                    None => break,
                },
            }
        }
    }

    /// Follows exits while it is known what they do in the sink's state.
    ///
    /// It is never inlined, so that its speed does not depend on code elsewhere (decision 14).
    #[inline(never)]
    fn known_paths(&mut self, entries: &mut Entries<'_>) {
        let (Some(mut state), mut address, mut taken) = (self.state, self.position.address, 0) else {
            return;
        };
        loop {
            let exits = entries.ahead::<LENGTH>();
            if let Some(exits) = exits
                && let Some(superblock) = self.exits.superblocks.find(state, exits)
                && (superblock.start == address || address == 0)
            {
                self.sink.path(superblock.path);
                (state, address) = (superblock.to, superblock.leads_to);
                taken += LENGTH;
                entries.pass(LENGTH);
                continue;
            }
            let (from, mut start, mut paths, mut count) = (state, 0, [0; LENGTH], 0);
            while count < LENGTH
                && let Some(exit) = entries.next_exit()
            {
                let way = self.exits.ways.find(exit, state);
                let Some(way) =
                    way.filter(|way| (way.start == address || address == 0) && way.path != BY_BLOCKS)
                else {
                    break;
                };
                entries.pass(1);
                self.sink.path(way.path);
                if count == 0 {
                    start = way.start;
                }
                (paths[count], state, address) = (way.path, way.to, way.leads_to);
                count += 1;
            }
            taken += count;
            match exits.filter(|_| count == LENGTH) {
                Some(&exits) => {
                    let superblock = Superblock { exits, from, to: state, path: 0, start, leads_to: address };
                    self.exits.superblocks.add(superblock, &paths, self.sink);
                }
                None if count < LENGTH => break,
                None => {}
            }
        }
        (self.state, self.position.address) = (Some(state), address);
        self.context.memos.benefit.taken += taken;
    }

    #[cold]
    fn entry(&mut self, entry: Entry) {
        match entry {
            Entry::Exit(exit) => self.exit(exit),
            Entry::Retracted(exit) => match self.table.summary(exit) {
                Some(summary) => self.partial(exit, summary.instructions as u32 - 1),
                None => self.contradiction(),
            },
            Entry::Partial { exit, count } => self.partial(exit, count),
            Entry::Item(item) => self.item(item),
        }
    }

    /// Follows an exit.
    #[inline(never)]
    fn exit(&mut self, exit: u32) {
        let Some(index) = self.exits.index(exit).or_else(|| self.read_exit(exit)) else {
            return self.contradiction();
        };
        let code = self.exits.code(index);
        if !self.come_to(code.start) {
            self.contradiction();
            self.position.expected = code.leads_to;
            return;
        }
        self.begin_code(&code);
        if !self.by_path(exit, &code) {
            self.leave_paths();
            self.by_blocks(&code);
        }
        self.end_code(&code);
    }

    fn read_exit(&mut self, exit: u32) -> Option<u32> {
        let tick = self.table.path(exit)?.since.max(self.position.now);
        let graph = self.context.programs[self.program].graph(Isa::X86_64);
        self.exits.read((self.table, exit), graph, tick)
    }

    /// Follows the first instructions of the block of an exit.
    fn partial(&mut self, exit: u32, count: u32) {
        let Some((begin, part)) = self.table.start(exit).zip(self.table.part(exit, count)) else {
            return self.contradiction();
        };
        if !self.come_to(begin) {
            return self.contradiction();
        }
        self.leave_paths();
        if let Some(path) = part.path {
            let tick = path.since.max(self.position.now);
            let graph = self.context.programs[self.program].graph(Isa::X86_64);
            let ran = Ran { instructions: count.into(), address_sum: part.digest.addresses() };
            let code = self.exits.of_path(&path, ran, graph, tick);
            self.begin_code(&code);
            self.by_blocks(&code);
            self.end_code(&code);
            self.exits.drop_last(&code);
        }
        self.position.expected = part.next;
    }

    /// Returns whether the log may continue at `start`. Where code that is not selected may have run before it, turns
    /// recording off instead.
    fn come_to(&mut self, start: u64) -> bool {
        let Position { address, expected, .. } = self.position;
        let expected = if self.state.is_some() { address } else { expected };
        let fits = expected == 0 || expected == start;
        if !fits && self.table.is_of_selection() {
            self.item(Item::Loss(note::UNSELECTED));
            return true;
        }
        fits
    }

    /// Reports what comes before code that runs next: the time, a switch of programs, the begin of recording.
    fn begin_code(&mut self, code: &ExitCode) {
        if code.since > self.position.now {
            // Code that is in no file exists from the time of its translation on.
            self.position.now = code.since;
            self.time();
        }
        if self.position.is_recorded && self.position.address == 0 {
            self.position.address = code.start;
        }
        if self.position.is_recorded && self.position.address != code.start {
            self.off();
        }
        if !self.position.is_recorded {
            self.leave_paths();
            self.close_gap();
            if self.next_switch.0 <= self.position.now
                && let Some(context) = self.switch_program()
            {
                self.event(Event::Switch(context));
            }
            self.position.is_recorded = true;
            self.event(Event::Enabled(code.start));
        }
    }

    /// Sets the position after code that ran.
    fn end_code(&mut self, code: &ExitCode) {
        (self.position.address, self.position.expected) = (code.end_address, code.leads_to);
        if code.is_far {
            self.event(OFF);
            self.position.is_recorded = false;
        }
    }

    /// Reports code as a path, if the sink takes it as one; returns whether it did.
    fn by_path(&mut self, exit: u32, code: &ExitCode) -> bool {
        let benefit = &mut self.context.memos.benefit;
        if !self.context.learns || benefit.pause > 0 {
            benefit.pause = benefit.pause.saturating_sub(1);
            return false;
        }
        if !code.is_plain || self.open.is_some() || self.gap.is_some() || !self.sink.takes_paths() {
            return false;
        }
        if benefit.is_full() {
            self.forget();
        }
        if self.state.is_none() {
            self.report_runs();
            self.state = self.sink.state();
        }
        let Some(state) = self.state else { return false };
        let (path, to) = match self.exits.ways.find(exit, state) {
            Some(way) => (way.path, way.to),
            None => self.learn(exit, state, code),
        };
        if path != BY_BLOCKS {
            self.sink.path(path);
            self.state = Some(to);
        }
        path != BY_BLOCKS
    }

    fn learn(&mut self, exit: u32, state: u32, code: &ExitCode) -> (u32, u32) {
        /// How often a path must run to pay: it saves more if it replaces single blocks than if it replaces runs.
        const WORTH_FOR_BLOCKS: usize = 8;
        const WORTH_FOR_RUNS: usize = 32;
        let graph = self.context.programs[self.program].graph(Isa::X86_64);
        let memos = &mut *self.context.memos;
        self.exits.steps(code, graph, S::TAKES_BLOCKS, &mut memos.steps);
        let learned = self.sink.learn(state, &memos.steps, graph).unwrap_or((BY_BLOCKS, state));
        let worth = if self.sink.takes_function_runs() { WORTH_FOR_RUNS } else { WORTH_FOR_BLOCKS };
        memos.benefit.learned(memos.steps.len(), worth);
        self.exits.ways.insert((exit, state), code, learned);
        learned
    }

    /// Forgets all paths.
    fn forget(&mut self) {
        self.leave_paths();
        self.report_runs();
        self.exits.forget();
        self.context.memos.exits.values_mut().for_each(Exits::forget);
        self.context.memos.benefit.restart();
        self.sink.forget();
    }

    /// Follows plain exits as function runs, which are reported later and together, if the sink takes them and no paths.
    ///
    /// It is never inlined, so that its speed does not depend on code elsewhere (decision 14).
    #[inline(never)]
    fn known_runs(&mut self, entries: &mut Entries<'_>) {
        /// Pending runs, and instructions in them, after which they are reported.
        const MOST_RUNS: usize = 1 << 12;
        const MOST_INSTRUCTIONS: u32 = 1 << 30;
        let takes_paths = self.context.learns && self.sink.takes_paths();
        let most = if takes_paths { self.context.memos.benefit.pause } else { usize::MAX };
        let is_in_plain_code = self.position.is_recorded && self.open.is_none() && self.gap.is_none();
        if self.state.is_some() || !is_in_plain_code || !self.sink.takes_function_runs() {
            return;
        }
        let Position { mut address, mut expected, .. } = self.position;
        let (mut count, runs) = (0, &mut self.context.memos.runs);
        let mut until = runs.last().map_or(0, |last| last.until);
        while count < most
            && runs.len() < MOST_RUNS
            && until < MOST_INSTRUCTIONS
            && let Some(exit) = entries.next_exit()
            && let Some(plain) = self.exits.plain(exit)
            && (address == plain.first.start || address == 0)
            && (expected == plain.first.start || expected == 0)
        {
            let before = until;
            for &run in [plain.first].iter().chain(self.exits.further_runs(plain)) {
                until = before + run.until;
                append(runs, 0, FunctionRun { until, ..run });
            }
            (address, expected) = (plain.leads_to, plain.leads_to);
            count += 1;
            entries.pass(1);
        }
        (self.position.address, self.position.expected) = (address, expected);
        let pause = &mut self.context.memos.benefit.pause;
        *pause = pause.saturating_sub(count);
        if self.context.memos.runs.len() >= MOST_RUNS || until >= MOST_INSTRUCTIONS {
            self.report_runs();
        }
    }

    fn report_runs(&mut self) {
        if !self.context.memos.runs.is_empty() {
            let graph = self.context.programs[self.program].graph(Isa::X86_64);
            self.sink.packet(PacketKind::Other);
            self.sink.function_runs(&self.context.memos.runs, graph, None);
            self.context.memos.runs.clear();
        }
    }

    /// Reports code block by block.
    fn by_blocks(&mut self, code: &ExitCode) {
        self.report_runs();
        let Some(&last) = self.exits.blocks(code).last() else { return self.lose(code) };
        self.close_gap();
        self.sink.packet(PacketKind::Other);
        let graph = self.context.programs[self.program].graph(Isa::X86_64);
        let mut ids = self.exits.blocks(code);
        let now = self.position.now;
        let mut report = |id: BlockId, count: Option<u32>| report(self.sink, graph, (id, count), now);
        let mut tail = (code.tail > 0).then_some((last, code.tail));
        if tail.is_some() {
            ids = &ids[..ids.len() - 1];
        }
        if let Some((begun, ran)) = self.open.take() {
            // The path goes on within a block.
            match (ids.split_first(), tail) {
                (Some((&first, rest)), _) if graph.block(first).end == graph.block(begun).end => {
                    report(begun, None);
                    ids = rest;
                }
                (None, Some((_, more))) if ran + more < graph.block(begun).instructions => {
                    tail = Some((begun, ran + more));
                }
                _ => report(begun, Some(ran)),
            }
        }
        ids.iter().for_each(|&id| report(id, None));
        self.open = tail;
        if code.trouble.is_some() {
            self.lose(code);
        }
    }

    /// Begins a gap after a code whose last part could not be read, if there is one.
    fn lose(&mut self, code: &ExitCode) {
        let Some(trouble) = code.trouble else { return };
        self.report_open();
        let since = self.reported.map(Tsc);
        let gap = Gap { from: 0, to: 0, since, until: None, doubtful_since: None, trouble };
        self.gap.get_or_insert(gap);
    }

    #[cold]
    fn item(&mut self, item: Item<'_>) {
        match item {
            Item::Call(_, time) | Item::CallEnd(time) | Item::Time(time) => {
                self.position.now = self.position.now.max(time);
                self.time();
            }
            Item::Signal(_, handler) => {
                self.off();
                (self.position.address, self.position.expected) = (handler, handler);
            }
            Item::Continue(pc) => {
                if self.position.is_recorded && self.position.address != 0 && self.position.address != pc {
                    self.off();
                }
                self.leave_paths();
                (self.position.address, self.position.expected) = (pc, pc);
            }
            Item::Loss(note::UNSELECTED) => {
                self.off();
                (self.position.address, self.position.expected) = (0, 0);
            }
            Item::Loss(_) | Item::Contradiction | Item::Path(_) => self.contradiction(),
            Item::End => self.off(),
        }
    }

    /// Reports a gap: the log contradicts itself or its table, or says that something is missing.
    #[cold]
    fn contradiction(&mut self) {
        self.off();
        (self.position.address, self.position.expected) = (0, 0);
        let since = self.reported.map(Tsc);
        let trouble = Trouble::Overflow;
        self.event(Event::Gap(Gap { from: 0, to: 0, since, until: since, doubtful_since: None, trouble }));
        self.event(OFF);
    }

    /// Turns recording off, if it is on: what follows is not recorded.
    fn off(&mut self) {
        self.leave_paths();
        if std::mem::take(&mut self.position.is_recorded) {
            let from = Some(self.position.address).filter(|&address| address != 0);
            self.event(Event::Disabled { from, to: None, asynchronous: from.is_some(), cause: None });
        }
    }

    /// Reports the time, if it changed.
    fn time(&mut self) {
        let now = self.position.now;
        if self.reported.replace(now) == Some(now) {
            return;
        }
        self.report_runs();
        self.sink.packet(PacketKind::Other);
        self.sink.event(Event::Time(Tsc(now)));
        if !self.sink.takes_paths() {
            self.leave_paths();
        }
    }

    /// Reports an event, after everything before it.
    fn event(&mut self, event: Event) {
        self.leave_paths();
        self.report_runs();
        self.report_open();
        self.close_gap();
        self.sink.packet(PacketKind::Other);
        self.sink.event(event);
    }

    /// Sets the sink to the state to which paths led.
    #[inline]
    fn leave_paths(&mut self) {
        if let Some(state) = self.state.take() {
            self.position.expected = self.position.address;
            self.sink.resume(state);
        }
    }

    /// Reports the block in which the thread is.
    fn report_open(&mut self) {
        let Some((id, count)) = self.open.take() else { return };
        let graph = self.context.programs[self.program].graph(Isa::X86_64);
        report(self.sink, graph, (id, Some(count)), self.position.now);
    }

    fn close_gap(&mut self) {
        if let Some(gap) = self.gap.take() {
            self.sink.event(Event::Gap(Gap { until: Some(Tsc(self.position.now)), ..gap }));
        }
    }

    /// Ends the block.
    pub(super) fn end(mut self, after: AfterBlock) -> Position {
        let Position { is_recorded, address, .. } = self.position;
        match after {
            AfterBlock::Continues { start: Some(start) } if is_recorded && address == 0 => {
                self.leave_paths();
                self.position.address = start;
            }
            AfterBlock::Continues { start: None } if is_recorded && address == 0 => self.off(),
            AfterBlock::Continues { .. } => self.leave_paths(),
            AfterBlock::Ends => self.off(),
        }
        self.report_runs();
        self.report_open();
        self.close_gap();
        self.exchange_exits();
        self.position
    }
}

/// What the log contains after a block.
pub(super) enum AfterBlock {
    /// The next block follows without a gap.
    Continues {
        /// Its first address, if its first entry says it.
        start: Option<u64>,
    },
    /// The end of the log, or a gap.
    Ends,
}

/// Nothing is recorded, from the end of an instruction on.
const OFF: Event = Event::Disabled { from: None, to: None, asynchronous: false, cause: None };

/// Reports a block, or its first `count` instructions.
#[inline]
fn report<L: Labels>(
    sink: &mut impl Sink,
    graph: &Graph<'_, L>,
    (id, count): (BlockId, Option<u32>),
    now: u64,
) {
    let block = graph.block(id);
    let lengths = graph.lengths(block);
    let lengths = count.map_or(lengths, |count| &lengths[..count as usize]);
    let (bytes, provenances) = (graph.bytes(), graph.provenances());
    let (code, condition_failed) = (graph.snapshot(now), false);
    sink.executed(Executed { block, lengths, id, bytes, provenances, code, condition_failed });
}
