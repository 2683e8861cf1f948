//! Laws of traces that are not whole: code is withheld, the encoder loses packets, bytes are damaged.
//!
//! Between two gaps, the decoder shows what ran, in order. Of damaged bytes, it shows what the bytes before the damage prove, and
//! then only what the code allows.

use std::{collections::BTreeMap, ops::Range};

use fastrand::Rng;
use hodo_code::{AddressSpace, NoLabels, Program};
use hodo_flow::{Continuity, Event, Executed, Sink};

use crate::{account::Account, ours};

/// Encodes a thread without the instructions in the range, and decodes with one kind of trace.
pub(crate) trait Subject {
    /// The trace of a thread, whose encoder loses these instructions.
    fn encode(&self, thread: usize, lost: Range<usize>) -> Vec<u8>;

    /// Decodes a stream as a whole.
    fn decode(&self, stream: &[u8], program: &mut Program<'_, NoLabels>, sink: &mut impl Sink);

    /// Whether its encoder can lose packets.
    const LOSES: bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// One span of code in this many, of this many bytes, is withheld.
    Withheld { size: u64, part: u64 },
    /// The encoder loses a part of the instructions.
    Lost,
    /// A few bits are flipped.
    FlippedBits,
    /// A few bytes have other values.
    OtherBytes,
    /// A few bytes are missing.
    Missing,
    /// A few bytes are inserted.
    Inserted,
}

const WAYS: [Way; 9] = [
    Way::Withheld { size: 4096, part: 2 },
    Way::Withheld { size: 4096, part: 10 },
    Way::Withheld { size: 64, part: 4 },
    Way::Withheld { size: 64, part: 100 },
    Way::Lost,
    Way::FlippedBits,
    Way::OtherBytes,
    Way::Missing,
    Way::Inserted,
];

/// What trials showed.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) trials: u64,
    pub(crate) ran: u64,
    pub(crate) shown: u64,
    pub(crate) violations: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: Totals) {
        self.trials += other.trials;
        self.ran += other.ran;
        self.shown += other.shown;
        self.violations += other.violations;
    }
}

/// Tries each thread in each way.
pub(crate) fn judge(account: &Account, subject: &impl Subject, name: &str) -> Totals {
    let mut totals = Totals::default();
    for thread in 0..account.threads() {
        let ran = account.retired(thread);
        for (number, way) in WAYS.into_iter().enumerate() {
            if way == Way::Lost && !lost_by(subject) || ran.len() < 2 {
                continue;
            }
            let mut random = Rng::with_seed((thread * WAYS.len() + number) as u64);
            let (shown, law) = one(account, subject, thread, &ran, way, &mut random);
            totals.trials += 1;
            totals.ran += ran.len() as u64;
            totals.shown += shown;
            if let Err(violation) = law {
                println!("{name} thread {thread}, {way:?}: {violation}");
                totals.violations += 1;
            }
        }
    }
    totals
}

fn lost_by<S: Subject>(_: &S) -> bool {
    S::LOSES
}

fn one(
    account: &Account,
    subject: &impl Subject,
    thread: usize,
    ran: &[u64],
    way: Way,
    random: &mut Rng,
) -> (u64, Result<(), String>) {
    let lost = match way {
        Way::Lost => {
            let from = random.usize(1..ran.len());
            from..from + 1 + random.usize(..ran.len() / 4 + 1)
        }
        _ => 0..0,
    };
    let stream = subject.encode(thread, lost);
    let code = withhold(&account.code, way, random);
    let space = ours::space_of(&code);
    let mut program = Program::new(&space, &NoLabels);
    if let Way::Withheld { .. } | Way::Lost = way {
        let mut comparison = ours::Comparison::new(ran);
        subject.decode(&stream, &mut program, &mut comparison);
        let opinion = comparison.spoilt();
        return (opinion.equal, opinion.difference.map_or(Ok(()), Err));
    }
    let (damage, damaged) = damage(&stream, way, random);
    let mut path = Path::default();
    subject.decode(&damaged, &mut program, &mut path);
    let law = law(subject, &space, &stream[..damage], &path);
    (path.addresses.iter().zip(ran).take_while(|(shown, ran)| shown == ran).count() as u64, law)
}

/// What is shown of a damaged stream begins with what the bytes before the damage show, and is a path through the code.
fn law(subject: &impl Subject, space: &AddressSpace<'_>, intact: &[u8], path: &Path) -> Result<(), String> {
    if let Some(jump) = path.continuity.jump {
        return Err(format!("nothing leads to {jump:x}"));
    }
    let mut proved = Path::default();
    subject.decode(intact, &mut Program::new(space, &NoLabels), &mut proved);
    match path.addresses.starts_with(&proved.addresses) {
        true => Ok(()),
        false => {
            let same = path.addresses.iter().zip(&proved.addresses).take_while(|(one, other)| one == other);
            let (same, proved) = (same.count(), proved.addresses.len());
            Err(format!("wrong from instruction {same} on, {proved} are proved before the damage"))
        }
    }
}

/// The code that is left.
fn withhold(code: &BTreeMap<u64, Vec<u8>>, way: Way, random: &mut Rng) -> BTreeMap<u64, Vec<u8>> {
    let Way::Withheld { size, part } = way else { return code.clone() };
    let salt = random.u64(..);
    let mut left = BTreeMap::new();
    for (&start, bytes) in code {
        let mut at = start;
        while at < start + bytes.len() as u64 {
            let end = (at / size * size + size).min(start + bytes.len() as u64);
            if Rng::with_seed(salt ^ (at / size)).u64(..part) != 0 {
                left.insert(at, bytes[(at - start) as usize..(end - start) as usize].to_vec());
            }
            at = end;
        }
    }
    left
}

/// Damages a stream; returns where the damage begins, too.
fn damage(stream: &[u8], way: Way, random: &mut Rng) -> (usize, Vec<u8>) {
    let at = random.usize(..stream.len());
    let count = random.usize(1..=8).min(stream.len() - at);
    let replaced: Vec<u8> = match way {
        Way::FlippedBits => stream[at..at + count].iter().map(|byte| byte ^ 1 << random.u8(..8)).collect(),
        Way::OtherBytes | Way::Inserted => (0..count).map(|_| random.u8(..)).collect(),
        _ => Vec::new(),
    };
    let behind = if way == Way::Inserted { at } else { at + count };
    (at, [&stream[..at], &replaced, &stream[behind..]].concat())
}

/// What is shown, and whether it is a path through the code.
#[derive(Default)]
struct Path {
    addresses: Vec<u64>,
    continuity: Continuity,
}

impl Sink for Path {
    fn executed(&mut self, executed: Executed<'_>) {
        self.continuity.executed(&executed);
        self.addresses.extend(executed.addresses());
    }

    fn event(&mut self, event: Event) {
        self.continuity.event(&event);
    }
}
