//! The code that an exit stands for: the blocks of its path.

use hodo_code::{BlockId, FunctionRun, Graph, Labels, Transfer};
use hodo_flow::{Expected, Step, Trouble};
use hodo_native_log::{Path, Span, Table, exit};
use rustc_hash::FxHashMap;

use super::{superblocks::Superblocks, ways::Ways};

/// The exits of one program that are known so far, and the effect of some of them on the sink.
#[derive(Debug, Default)]
pub(super) struct Exits {
    /// By number of the exit, in pages.
    plain: Vec<Option<Box<[PlainExit; PAGE]>>>,
    /// By number of the exit: the index of its code.
    indices: FxHashMap<u32, u32>,
    codes: Vec<ExitCode>,
    /// The blocks of all codes, one after the other.
    blocks: Vec<BlockId>,
    /// The function runs of all codes.
    runs: Vec<FunctionRun>,
    pub(super) ways: Ways,
    pub(super) superblocks: Superblocks,
}

/// Number of exits in a page.
const PAGE: usize = 64;

/// What a sink that takes function runs needs of an [exit that is plain](ExitCode::is_plain): one line of the cache, because
/// decoding much code mostly waits for memory.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct PlainExit {
    /// The first function run. It begins where the exit's code does, and has no instructions if the exit is not plain.
    pub(super) first: FunctionRun,
    /// Where it leads; 0 if only the next entry says it.
    pub(super) leads_to: u64,
    /// Index of the second function run in [`Exits::runs`], and the number of runs from there on.
    further_begin: u32,
    further_count: u32,
}

const NOT_PLAIN: PlainExit = PlainExit {
    first: FunctionRun { start: 0, begins: 0, until: 0, transfer: Transfer::None, end: 0 },
    leads_to: 0,
    further_begin: 0,
    further_count: 0,
};

/// The code of an exit.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExitCode {
    /// Where it begins.
    pub(super) start: u64,
    /// Where the log continues; 0 if only the next entry says it.
    pub(super) leads_to: u64,
    /// Where the thread is after it; 0 if only the next entry says it.
    pub(super) end_address: u64,
    /// When its code was translated, if that is in no file.
    pub(super) since: u64,
    /// Whether it ends with a system call or another far transfer.
    pub(super) is_far: bool,
    /// Whether all of its blocks run to their end and never change, and recorded code follows, where the log continues.
    pub(super) is_plain: bool,
    /// The number of instructions of its last block that run, if not all.
    pub(super) tail: u32,
    /// Why its code is not known beyond its blocks.
    pub(super) trouble: Option<Trouble>,
    /// Its blocks in [`Exits::blocks`].
    blocks: IndexRange,
    /// Its function runs in [`Exits::runs`].
    runs: IndexRange,
}

/// Indices from `begin` up to, but not including, `end`.
#[derive(Clone, Copy, Debug)]
struct IndexRange {
    begin: u32,
    end: u32,
}

/// What ran of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) instructions: u64,
    /// The sum of their addresses, which wraps.
    pub(super) address_sum: u64,
}

impl Exits {
    /// Forgets what depends on the sink.
    pub(super) fn forget(&mut self) {
        self.ways.clear();
        self.superblocks.clear();
    }

    /// The index of the code of an exit, if it was read.
    #[inline]
    pub(super) fn index(&self, exit: u32) -> Option<u32> {
        self.indices.get(&exit).copied()
    }

    #[inline]
    pub(super) fn code(&self, index: u32) -> ExitCode {
        self.codes[index as usize]
    }

    /// The blocks of a code.
    #[inline]
    pub(super) fn blocks(&self, code: &ExitCode) -> &[BlockId] {
        &self.blocks[code.blocks.begin as usize..code.blocks.end as usize]
    }

    /// Returns an exit, if it is known to be plain.
    #[inline(always)]
    pub(super) fn plain(&self, exit: u32) -> Option<&PlainExit> {
        let page = self.plain.get(exit as usize / PAGE)?.as_ref()?;
        Some(&page[exit as usize % PAGE]).filter(|plain| plain.first.until > 0)
    }

    /// The function runs of a plain exit after its first, whose instructions are counted from the exit's begin.
    #[inline(always)]
    pub(super) fn further_runs(&self, plain: &PlainExit) -> &[FunctionRun] {
        &self.runs[plain.further_begin as usize..][..plain.further_count as usize]
    }

    fn add_plain(&mut self, exit: u32, code: &ExitCode) {
        let (page, IndexRange { begin, end }) = (exit as usize / PAGE, code.runs);
        if self.plain.len() <= page {
            self.plain.resize_with(page + 1, || None);
        }
        let page = self.plain[page].get_or_insert_with(|| Box::new([NOT_PLAIN; PAGE]));
        page[exit as usize % PAGE] = PlainExit {
            first: self.runs[begin as usize],
            leads_to: code.leads_to,
            further_begin: begin + 1,
            further_count: end - begin - 1,
        };
    }

    /// Reads the code of an exit as it is at `tick`. Returns the index of the code; `None` if there is no such exit.
    pub(super) fn read<L: Labels>(
        &mut self,
        (table, exit): (&Table, u32),
        graph: &mut Graph<'_, L>,
        tick: u64,
    ) -> Option<u32> {
        let (path, summary) = (table.path(exit)?, table.summary(exit)?);
        let ran = Ran { instructions: summary.instructions, address_sum: summary.digest.addresses() };
        let code = self.of_path(&path, ran, graph, tick);
        let index = self.codes.len() as u32;
        let leads_to = summary.target;
        let is_plain = code.is_plain && leads_to == code.end_address;
        let code = ExitCode { leads_to, is_plain, ..code };
        if is_plain {
            self.add_plain(exit, &code);
        }
        self.codes.push(code);
        self.indices.insert(exit, index);
        Some(index)
    }

    /// Finds the blocks of a path, of which the table says what ran.
    pub(super) fn of_path<L: Labels>(
        &mut self,
        path: &Path<'_>,
        ran: Ran,
        graph: &mut Graph<'_, L>,
        tick: u64,
    ) -> ExitCode {
        let (first_block, first_run) = (self.blocks.len() as u32, self.runs.len() as u32);
        let mut walk = Walk { exits: self, is_lasting: true, tail: 0, ran: Ran::default() };
        let mut trouble = path.all().find_map(|span| walk.span(&span, graph, tick).err());
        let Walk { is_lasting, tail, ran: walked, .. } = walk;
        let start = path.all().next().map_or(0, |span| span.start);
        if trouble.is_none() && walked != ran {
            // The code is not what ran, so nothing of it is certain.
            self.blocks.truncate(first_block as usize);
            trouble = Some(Trouble::Contradiction { at: start, expected: Expected::Reach(path.last.last) });
        }
        let is_far = matches!(path.last.kind, exit::SYSCALL | exit::FAR);
        let is_plain = trouble.is_none() && tail == 0 && is_lasting && !is_far;
        if is_plain {
            self.add_runs(first_block, graph);
        }
        ExitCode {
            start,
            leads_to: 0,
            end_address: end_address(&path.last),
            since: path.since,
            is_far,
            is_plain,
            tail: if trouble.is_none() { tail } else { 0 },
            trouble,
            blocks: IndexRange { begin: first_block, end: self.blocks.len() as u32 },
            runs: IndexRange { begin: first_run, end: self.runs.len() as u32 },
        }
    }

    /// Frees the blocks and runs of the code that was found last.
    pub(super) fn drop_last(&mut self, code: &ExitCode) {
        self.blocks.truncate(code.blocks.begin as usize);
        self.runs.truncate(code.runs.begin as usize);
    }

    /// Joins the blocks from `first` on to function runs.
    fn add_runs<L: Labels>(&mut self, first: u32, graph: &Graph<'_, L>) {
        let begin = self.runs.len();
        let mut until = 0;
        for &id in &self.blocks[first as usize..] {
            let (block, function) = (graph.block(id), graph.compact(id).function);
            until += block.instructions;
            let (transfer, end) = (block.transfer(), block.end);
            let run = FunctionRun {
                start: block.start,
                begins: FunctionRun::begins(function, block.label.place),
                until,
                transfer,
                end: if matches!(transfer, Transfer::Call | Transfer::PushOnly) { end } else { 0 },
            };
            append(&mut self.runs, begin, run);
        }
    }

    /// Replaces `steps` by those of a code: its blocks one by one, or joined as far as they are of one function.
    pub(super) fn steps<L: Labels>(
        &self,
        code: &ExitCode,
        graph: &Graph<'_, L>,
        are_blocks: bool,
        steps: &mut Vec<Step>,
    ) {
        steps.clear();
        for &id in self.blocks(code) {
            let step = Step::of_block(id, graph.block(id));
            if are_blocks || !steps.last_mut().is_some_and(|last| last.join(&step)) {
                steps.push(step);
            }
        }
    }
}

/// Appends a run to those from `begin` on, or extends the last one if it goes on in the same function.
#[inline]
pub(super) fn append(runs: &mut Vec<FunctionRun>, begin: usize, run: FunctionRun) {
    match runs[begin..].last_mut() {
        Some(last) if last.transfer == Transfer::None && last.function() == run.function() => {
            (last.until, last.transfer, last.end) = (run.until, run.transfer, run.end);
        }
        _ => runs.push(run),
    }
}

/// Returns where a thread is after a span; 0 if only the next entry says it.
fn end_address(last: &Span) -> u64 {
    match last.kind {
        exit::NONE | exit::NOT_TAKEN => last.end,
        _ => last.target,
    }
}

/// The walk over the spans of a path.
struct Walk<'e> {
    exits: &'e mut Exits,
    /// Whether none of the code so far changes.
    is_lasting: bool,
    /// See [`ExitCode::tail`].
    tail: u32,
    /// What ran so far.
    ran: Ran,
}

impl Walk<'_> {
    fn span<L: Labels>(&mut self, span: &Span, graph: &mut Graph<'_, L>, tick: u64) -> Result<(), Trouble> {
        let (mut address, mut left) = (span.start, span.count);
        while left > 0 {
            if self.tail > 0 {
                return Err(Trouble::Contradiction { at: address, expected: Expected::Reach(span.start) });
            }
            let id = graph.at(address, tick).map_err(Trouble::Code)?;
            let block = graph.block(id);
            let lengths = graph.lengths(block);
            let count = block.instructions.min(left);
            for &length in &lengths[..count as usize] {
                self.ran.instructions += 1;
                self.ran.address_sum = self.ran.address_sum.wrapping_add(address);
                address = address.wrapping_add(length.into());
            }
            self.tail = if count < block.instructions { count } else { 0 };
            self.is_lasting &= graph.provenance(id).is_lasting();
            self.exits.blocks.push(id);
            left -= count;
        }
        Ok(())
    }
}
