//! How fast our decoder counts what a snapshot's traces show, like the harness of OpenCSD (`lab/peers/opencsd.c`).

use std::path::Path;

use hodo_clock::Tsc;
use hodo_code::{Graph, Labels, NoLabels, Program};
use hodo_etm::{
    flow::{Decoder, Memos},
    packet::{A_SYNC, find_sync},
};
use hodo_flow::{Event, Executed, Sink, Step, Switch};
use hodo_formats::{Unpacked, coresight, recording::StreamKind};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    Outcome,
    foreign::{Files, space},
};

/// Counts instructions: by block, or by path, whose instructions are counted once.
#[derive(Default)]
struct Count {
    instructions: u64,
    gaps: u64,
    /// Instructions of each path.
    paths: Vec<u32>,
}

impl Sink for Count {
    fn executed(&mut self, executed: Executed<'_>) {
        self.instructions += executed.lengths.len() as u64;
    }

    fn event(&mut self, event: Event) {
        self.gaps += u64::from(matches!(event, Event::Gap(_)));
    }

    fn takes_paths(&self) -> bool {
        true
    }

    fn state(&mut self) -> Option<u32> {
        Some(0)
    }

    fn learn<L: Labels>(&mut self, state: u32, steps: &[Step], _: &Graph<'_, L>) -> Option<(u32, u32)> {
        self.paths.push(steps.iter().map(|step| u32::from(step.instructions)).sum());
        Some((self.paths.len() as u32 - 1, state))
    }

    fn path(&mut self, path: u32) {
        self.instructions += u64::from(self.paths[path as usize]);
    }

    fn forget(&mut self) {
        self.paths.clear();
    }
}

/// Decodes the traces twice with a memo and twice without, and prints a line of JSON for each: processor time of the first pass, with
/// empty caches, and of the second.
pub(crate) fn measure(folder: &Path) -> Outcome {
    let unpacked = Unpacked::default();
    let files = Files::read(folder)?;
    let input = files.input(&unpacked)?;
    let recording = hodo_formats::read(&input)?;
    for with_memo in [true, false] {
        for buffer in coresight::buffers(&input)? {
            let pid =
                buffer.sources.iter().find_map(|source| source.stream.thread).map_or(0, |thread| thread.pid);
            let space = space(&files, &recording, pid);
            for source in &buffer.sources {
                let StreamKind::Etm(config) = &source.stream.kind else { continue };
                let bytes: usize = source.stream.pieces.iter().map(|piece| piece.bytes.len()).sum();
                let mut programs = [Program::new(&space, &NoLabels)];
                let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
                let (mut memos, mut count) = (Memos::default(), Count::default());
                let mut times = [0; 2];
                for time in &mut times {
                    let begin = processor_time();
                    (count.instructions, count.gaps) = (0, 0);
                    for piece in &source.stream.pieces {
                        let mut next = find_sync(piece.bytes);
                        while let Some(start) = next {
                            let behind = start + A_SYNC.len();
                            next = find_sync(&piece.bytes[behind..]).map(|at| behind + at);
                            let span = start..next.unwrap_or(piece.bytes.len());
                            let decoder = Decoder::new(piece.bytes, span, config, &schedule);
                            match with_memo {
                                true => decoder.decode_with_memo(&mut programs, &mut memos, &mut count),
                                false => decoder.decode(&mut programs, &mut count),
                            }
                        }
                    }
                    *time = processor_time() - begin;
                }
                let (Count { instructions, gaps, .. }, [cold, hot]) = (count, times);
                println!(
                    "{{\"memo\":{with_memo},\"bytes\":{bytes},\"cold_ns\":{cold},\"hot_ns\":{hot},\"instructions\":{instructions},\"gaps\":{gaps}}}"
                );
            }
        }
    }
    Ok(())
}

/// Processor time of this thread so far, in nanoseconds.
fn processor_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
