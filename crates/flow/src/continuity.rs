//! Whether what is shown is a path through the code.

use hodo_code::{Block, Terminator};

use crate::{Event, Executed};

/// A law of every decoder, whatever the trace: unless a gap or an event says otherwise, a block begins where the one before it
/// leads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Continuity {
    /// Where the last block leads to; `None` if anything is possible.
    leads_to: Option<[u64; 2]>,
    /// The first address that nothing leads to.
    pub jump: Option<u64>,
}

impl Continuity {
    /// The next block.
    pub fn executed(&mut self, executed: &Executed<'_>) {
        let start = executed.block.start;
        if self.leads_to.is_some_and(|targets| !targets.contains(&start)) {
            self.jump.get_or_insert(start);
        }
        self.leads_to = if executed.is_whole() && !executed.condition_failed {
            continuations(executed.block)
        } else {
            let length: u64 = executed.lengths.iter().map(|&length| u64::from(length)).sum();
            Some([start + length; 2])
        };
    }

    /// An event between two blocks.
    pub fn event(&mut self, event: &Event) {
        if let Event::Gap(_) | Event::Disabled { .. } | Event::Enabled(_) | Event::Asynchronous { .. } = event
        {
            self.leads_to = None;
        }
    }
}

/// Where execution may continue after a block that ran to its end; `None` if anywhere.
fn continuations(block: &Block) -> Option<[u64; 2]> {
    match block.terminator {
        Terminator::Conditional => Some([block.target, block.end]),
        Terminator::Jump | Terminator::Call => Some([block.target; 2]),
        Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return | Terminator::Far => None,
        _ => Some([block.end; 2]),
    }
}
