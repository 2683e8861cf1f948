//! One recording, damaged in one way, decoded, and compared with what ran.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use fastrand::Rng;

use crate::{
    flow::{self, Segment},
    law,
    mutation::{Damaged, KINDS, Kind},
    recovered::{self, Recovered},
    truth::Subject,
};

/// The time limit of our reader for one of these small recordings.
const LIMIT: Duration = Duration::from_secs(60);

/// The environment of trials.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    /// Folder for temporary files; each worker has its own.
    pub(crate) folder: PathBuf,
    /// The program that records again.
    pub(crate) hodo: Option<PathBuf>,
    /// Whether perf decodes the same bytes.
    pub(crate) perf: bool,
    pub(crate) seed: u64,
}

/// The result of a trial.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) kind: Kind,
    /// The violated invariant.
    pub(crate) violation: Option<String>,
    pub(crate) gaps: u64,
    pub(crate) ran: u64,
    pub(crate) ours: Recovered,
    pub(crate) perf: Recovered,
}

impl Bench {
    /// The trial with this number, which is deterministic.
    pub(crate) fn trial(&self, subjects: &[Subject], number: u64) -> Result<Trial, String> {
        let subject = &subjects[number as usize % subjects.len()];
        let kinds: &[Kind] = &KINDS;
        let kind = kinds[number as usize / subjects.len() % kinds.len()];
        let mut random = Rng::with_seed(self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let file = self.folder.join("damaged.perf.data");
        let (read, violation) = match (kind, &subject.recipe, &self.hodo) {
            (Kind::Overflow, Some(recipe), Some(hodo)) => {
                let from = random.u64(0..subject.ran.instructions.len() as u64);
                let to = from + 1 + random.u64(0..subject.ran.instructions.len() as u64 - from);
                let mut record = Command::new(hodo);
                record.args(["record", "--engine", "emulate", "-q", "-e", &recipe.event, "--overflow"]);
                record.arg(format!("{from}..{to}")).arg("-o").arg(&file).arg("--").args(&recipe.command);
                let output = record.current_dir(&self.folder).stdin(Stdio::null()).output();
                output.map_err(|error| format!("can't start {}: {error}", hodo.display()))?;
                let lost = from as usize..to as usize;
                self.read(&file, subject, &mut random, |read| {
                    law::check_overflow(subject, lost, flow::counted(&file)?, read)
                })
            }
            _ => {
                let trace = subject.container.trace();
                let damaged = Damaged::random(kind, trace, &mut random);
                let (bytes, buffer_offsets) =
                    subject.container.with(&damaged.buffers(trace), damaged.snapshots);
                std::fs::write(&file, bytes).map_err(|error| error.to_string())?;
                let scratch = self.folder.join("proven.perf.data");
                self.read(&file, subject, &mut random, |read| {
                    law::check(subject, kind, &damaged, &buffer_offsets, read, &scratch)
                })
            }
        };
        let shown: Vec<u64> = read.iter().flat_map(|segment| segment.instructions.iter().copied()).collect();
        let perf = if self.perf { recovered::perf(&file, subject.symfs.as_deref())? } else { Vec::new() };
        Ok(Trial {
            kind,
            violation: violation.map(|what| format!("{} of {}: {what}", kind.name(), subject.name)),
            gaps: read.iter().map(|segment| segment.gaps.len() as u64).sum(),
            ran: subject.ran.instructions.len() as u64,
            ours: subject.ran.recovered(&shown),
            perf: subject.ran.recovered(&perf),
        })
    }

    /// Reads the file, which may be damaged in any way, and checks the result.
    fn read(
        &self,
        file: &Path,
        subject: &Subject,
        random: &mut Rng,
        check: impl FnOnce(&[Segment]) -> Result<(), String>,
    ) -> (Vec<Segment>, Option<String>) {
        let chunk_size = 1 << random.u32(6..16);
        let begin = Instant::now();
        let read = catch_unwind(AssertUnwindSafe(|| flow::read(file, subject.symfs.as_deref(), chunk_size)));
        match read {
            Ok(Ok(read)) => {
                let slow = (begin.elapsed() > LIMIT).then(|| format!("it took {:?}", begin.elapsed()));
                let violation = slow.or_else(|| law::check_paths(&read).err()).or_else(|| check(&read).err());
                (read, violation)
            }
            Ok(Err(error)) => (Vec::new(), Some(error)),
            Err(_) => (Vec::new(), Some("panic".into())),
        }
    }
}
