//! The models of a thread after some chunks, and the blocks that ran in them.

use hodo_model::{Arrival, CacheGeometry, Code, End, FlowEvent, FunctionId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{
    cache::Cache,
    predictor::{DESIGNS, Outcome, Predictor},
    targets::Targets,
};

/// Instructions that ran one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Block {
    pub(super) function: FunctionId,
    /// Location of the first instruction, as [`Code::offset`].
    pub(super) offset: u64,
    /// From the first instruction to the last one, in bytes.
    pub(super) last: u32,
    /// The number of instructions.
    pub(super) length: u32,
    pub(super) is_conditional: bool,
}

/// Executions of a block.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Executions {
    pub(super) all: u64,
    /// Of which the outcome of its conditional branch is known.
    pub(super) branches: u64,
    /// Of which the target of its indirect branch is known.
    pub(super) jumps: u64,
}

impl Executions {
    fn add(&mut self, other: Executions) {
        self.all = self.all.saturating_add(other.all);
        self.branches = self.branches.saturating_add(other.branches);
        self.jumps = self.jumps.saturating_add(other.jumps);
    }
}

/// A branch that the next address decides.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Pending {
    Nothing,
    Conditional { address: u64, target: u64, next: u64, block: u32 },
    Indirect { address: u64, block: u32 },
}

/// The first address of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum FirstAddress {
    /// It has not arrived yet.
    Unknown,
    Address(u64),
    /// Flow is missing before it.
    Lost,
}

/// Models of a thread after some chunks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelState {
    blocks: Vec<(Block, Executions)>,
    #[serde(skip)]
    index: FxHashMap<Block, u32>,
    predictors: [Predictor; DESIGNS.len()],
    targets: Targets,
    cache: Cache,
    first: FirstAddress,
    pending: Pending,
}

/// What ran of a block, and its modelled misses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockResult {
    pub(super) executions: Executions,
    /// By design, in the order of [`DESIGNS`].
    pub(super) branch_misses: [u64; DESIGNS.len()],
    pub(super) target_misses: u64,
    pub(super) fetch_misses: u64,
}

impl BlockResult {
    pub(super) fn add(&mut self, other: &BlockResult) {
        self.executions.add(other.executions);
        for (sum, misses) in self.branch_misses.iter_mut().zip(other.branch_misses) {
            *sum = sum.saturating_add(misses);
        }
        self.target_misses = self.target_misses.saturating_add(other.target_misses);
        self.fetch_misses = self.fetch_misses.saturating_add(other.fetch_misses);
    }
}

impl ModelState {
    pub(super) fn unknown(geometry: CacheGeometry) -> ModelState {
        ModelState {
            blocks: Vec::new(),
            index: FxHashMap::default(),
            predictors: [(); DESIGNS.len()].map(|()| Predictor::unknown()),
            targets: Targets::default(),
            cache: Cache::unknown(geometry),
            first: FirstAddress::Unknown,
            pending: Pending::Nothing,
        }
    }

    #[inline]
    pub(super) fn fold(&mut self, event: FlowEvent<'_>) {
        match event {
            FlowEvent::Run { at, code, .. } => self.run(&at, &code),
            FlowEvent::Leave { next: Some(next) } => self.arrive(next),
            FlowEvent::Gap | FlowEvent::Skip { .. } => self.lose(),
            _ => {}
        }
    }

    /// The next instruction does not follow the last one.
    fn lose(&mut self) {
        self.pending = Pending::Nothing;
        if self.first == FirstAddress::Unknown {
            self.first = FirstAddress::Lost;
        }
    }

    fn run(&mut self, at: &Arrival, code: &Code<'_>) {
        self.arrive(at.address);
        let Some((&last_length, before)) = code.lengths.split_last() else { return };
        let last: u64 = before.iter().map(|&length| u64::from(length)).sum();
        let block = self.block(Block {
            function: at.function,
            offset: code.offset,
            last: last as u32,
            length: code.lengths.len() as u32,
            is_conditional: code.end == End::Conditional,
        });
        self.blocks[block as usize].1.all += 1;
        self.cache.fetch(at.address, code.lengths, block);
        let address = at.address.wrapping_add(last);
        let next = address.wrapping_add(last_length.into());
        self.pending = match code.end {
            End::Conditional => Pending::Conditional { address, target: code.target, next, block },
            End::Indirect => Pending::Indirect { address, block },
            // A direct call has a target.
            End::Call if code.target == next => Pending::Indirect { address, block },
            _ => Pending::Nothing,
        };
    }

    /// Returns the number of a block.
    fn block(&mut self, block: Block) -> u32 {
        let next = self.blocks.len() as u32;
        let number = *self.index.entry(block).or_insert(next);
        if number == next {
            self.blocks.push((block, Executions::default()));
        }
        number
    }

    /// Continues at an address.
    fn arrive(&mut self, address: u64) {
        if self.first == FirstAddress::Unknown {
            self.first = FirstAddress::Address(address);
        }
        self.decide(address);
    }

    /// Decides the branch before an address.
    fn decide(&mut self, arrived: u64) {
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => {}
            // After an interrupt, execution may continue at neither address.
            Pending::Conditional { target, next, .. } if arrived != target && arrived != next => {}
            Pending::Conditional { address, target, block, .. } => {
                self.blocks[block as usize].1.branches += 1;
                let outcome = Outcome { address, taken: arrived == target, block };
                for (predictor, design) in self.predictors.iter_mut().zip(DESIGNS) {
                    predictor.branch(design, outcome);
                }
            }
            Pending::Indirect { address, block } => {
                self.blocks[block as usize].1.jumps += 1;
                self.targets.branch(address, arrived, block);
            }
        }
    }

    /// Joins two neighbours.
    pub(super) fn merge(mut self, later: ModelState) -> ModelState {
        if self.index.len() < self.blocks.len() {
            self.index = self.blocks.iter().zip(0..).map(|((block, _), number)| (*block, number)).collect();
        }
        match later.first {
            FirstAddress::Address(address) => self.arrive(address),
            FirstAddress::Lost => self.lose(),
            FirstAddress::Unknown => {}
        }
        let mut ours = Vec::with_capacity(later.blocks.len());
        for (block, executions) in later.blocks {
            let number = self.block(block);
            self.blocks[number as usize].1.add(executions);
            ours.push(number);
        }
        for ((predictor, later), design) in self.predictors.iter_mut().zip(later.predictors).zip(DESIGNS) {
            predictor.join(design, later, &ours);
        }
        self.targets.join(later.targets, &ours);
        self.cache.join(later.cache, &ours);
        let number = |block: u32| ours[block as usize];
        if later.first != FirstAddress::Unknown {
            self.pending = match later.pending {
                Pending::Nothing => Pending::Nothing,
                Pending::Indirect { address, block } => Pending::Indirect { address, block: number(block) },
                Pending::Conditional { address, target, next, block } => {
                    Pending::Conditional { address, target, next, block: number(block) }
                }
            };
        }
        self
    }

    /// Decides what depends on the state before the first chunk: all models begin empty.
    pub(super) fn begun_empty(self, geometry: CacheGeometry) -> ModelState {
        let empty = ModelState {
            predictors: DESIGNS.map(Predictor::empty),
            cache: Cache::empty(geometry),
            ..ModelState::unknown(geometry)
        };
        let mut all = empty.merge(self);
        all.targets.began_empty();
        all
    }

    /// The blocks with their results.
    pub(super) fn results(&self) -> impl Iterator<Item = (Block, BlockResult)> {
        self.blocks.iter().zip(0..).map(|(&(block, executions), number)| {
            let branch_misses = self.predictors.each_ref().map(|predictor| predictor.misses_of(number));
            let (target_misses, fetch_misses) =
                (self.targets.misses_of(number), self.cache.misses_of(number));
            (block, BlockResult { executions, branch_misses, target_misses, fetch_misses })
        })
    }

    /// See [`hodo_model::Analysis::is_sound`].
    pub(super) fn is_sound(&self, geometry: CacheGeometry) -> bool {
        let Ok(blocks) = u32::try_from(self.blocks.len()) else { return false };
        let pending = match self.pending {
            Pending::Nothing => true,
            Pending::Conditional { block, .. } | Pending::Indirect { block, .. } => block < blocks,
        };
        pending
            && self
                .predictors
                .iter()
                .zip(DESIGNS)
                .all(|(predictor, design)| predictor.is_sound(design, blocks))
            && self.targets.is_sound(blocks)
            && self.cache.is_sound(geometry, blocks)
    }
}
