//! Ways to withhold code of a raw buffer.

use std::ops::Range;

use fastrand::Rng;
use hodo_engine::Trace;

use crate::code::Piece;

/// A way to withhold code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withholding {
    /// None: the decoded instructions are then all that ran.
    None,
    /// Whole files, at random.
    Files,
    /// All code except that of the first mapped file, which is the program.
    Libraries,
    /// Single pages, one in this many.
    Pages(u64),
    /// Single functions, one in this many.
    Functions(u64),
    /// Code that no file contains.
    Generated,
}

/// All ways that withhold code.
pub(crate) const WAYS: [Withholding; 8] = [
    Withholding::Libraries,
    Withholding::Files,
    Withholding::Pages(2),
    Withholding::Functions(4),
    Withholding::Pages(30),
    Withholding::Functions(100),
    Withholding::Generated,
    Withholding::None,
];

const PAGE: u64 = 4096;
/// The alignment of functions by compilers.
const GRAIN: u64 = 16;

impl Withholding {
    /// The name in the table.
    pub(crate) fn name(self) -> String {
        match self {
            Withholding::None => "raw, all code".into(),
            Withholding::Files => "raw, files".into(),
            Withholding::Libraries => "raw, libraries".into(),
            Withholding::Pages(part) => format!("raw, 1 page of {part}"),
            Withholding::Functions(part) => format!("raw, 1 function of {part}"),
            Withholding::Generated => "raw, code at run time".into(),
        }
    }

    /// The remaining code.
    pub(crate) fn leave(self, pieces: &[Piece], trace: &Trace<'_>, random: &mut Rng) -> Vec<Piece> {
        let salt = random.u64(..);
        let toss = |what: u64, part: u64| Rng::with_seed(salt ^ what).u64(0..part) != 0;
        let main = pieces.iter().find_map(|piece| piece.module);
        let left = pieces.iter().flat_map(|piece| match self {
            Withholding::None => vec![piece.clone()],
            Withholding::Files => whole_if(piece, piece.module.is_none_or(|module| toss(module.into(), 2))),
            Withholding::Libraries => whole_if(piece, piece.module == main),
            Withholding::Pages(part) => parts(piece, PAGE, |address| toss(address / PAGE, part)),
            Withholding::Functions(part) => {
                parts(piece, GRAIN, |address| toss(function(piece, address, trace), part))
            }
            Withholding::Generated => whole_if(piece, piece.module.is_some()),
        });
        left.collect()
    }
}

fn whole_if(piece: &Piece, given: bool) -> Vec<Piece> {
    if given { vec![piece.clone()] } else { Vec::new() }
}

/// The rest of a piece that is cut at multiples of `size`.
fn parts(piece: &Piece, size: u64, given: impl Fn(u64) -> bool) -> Vec<Piece> {
    let mut left: Vec<Range<u64>> = Vec::new();
    let mut start = piece.addresses.start;
    while start < piece.addresses.end {
        let end = (start / size * size + size).min(piece.addresses.end);
        if given(start) {
            match left.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => left.push(start..end),
            }
        }
        start = end;
    }
    left.into_iter().map(|addresses| piece.part(addresses)).collect()
}

/// A number for the function at an address of a piece.
fn function(piece: &Piece, address: u64, trace: &Trace<'_>) -> u64 {
    let offset = piece.offset + (address - piece.addresses.start);
    let Some(module) = piece.module else { return address / PAGE };
    let modules = &trace.modules;
    let (function, _) = modules.function(hodo_code::Origin { module, offset });
    modules.start(function) ^ u64::from(module) << 48
}
