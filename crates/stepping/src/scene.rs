//! What is seen at a position: the instruction, its function, line and call stack.

use std::{borrow::Cow, ops::Range};

use hodo_analyses::{FrameEntry, frames::Frame};
use hodo_clock::Nanos;
use hodo_code::{Isa, Origin, Printer};
use hodo_model::{FunctionId, Names, Sources};
use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};

use crate::execution::{Position, Stepper, Stop};

/// Frames of a scene, at most: a recursion may be deeper than a reader.
pub const MOST_FRAMES: usize = 1000;
/// Bytes of a listed function, at most.
const LONGEST_FUNCTION: u64 = 1 << 20;

/// Bytes of code whose inlined functions are looked up together: reading the debugging information takes longer than a thousand
/// look-ups.
const INLINED_PAGE: u64 = 1 << 10;
/// Such pages that are kept, at most.
const INLINED_PAGES: usize = 1 << 10;

/// A page of a module's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InlinedPage {
    module: u32,
    number: u64,
}

/// Functions inlined at the addresses of a page that have any, the innermost first.
pub(crate) type InlinedNames = FxHashMap<u64, Vec<String>>;

/// What is seen at a position.
#[derive(Clone, Debug, Serialize)]
pub struct Scene {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The number of the next instruction in the thread, counted from 0.
    pub number: u64,
    /// The number of all instructions of the thread.
    pub instructions: u64,
    /// The time in nanoseconds, between the timestamps around it.
    pub time_ns: Option<u64>,
    /// Why flow is missing here; empty if it is not.
    pub gap: Vec<String>,
    /// Whether the thread comes from code that is not recorded, such as the kernel's.
    pub returned: bool,
    /// The next instruction, in AT&T syntax.
    pub instruction: String,
    /// Whether the next instruction is a conditional branch that is taken.
    pub taken: Option<bool>,
    /// The newest frames, at most [`MOST_FRAMES`].
    pub frames: Vec<SceneFrame>,
    /// The number of all frames.
    pub depth: u64,
}

/// A frame of a call stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SceneFrame {
    /// The function.
    pub function: String,
    /// Functions inlined at the address, the innermost first.
    pub inlined: Vec<String>,
    /// The file that its code was mapped from.
    pub module: String,
    /// How it was entered: `start`, `call`, `jump` or `interrupt`.
    pub entered_by: &'static str,
    /// The next instruction in it; `None` where a jump replaced the frame.
    #[serde(serialize_with = "hexadecimal_if_known")]
    pub address: Option<u64>,
    /// The distance of that instruction from the function's begin.
    pub offset: Option<u64>,
    /// The source file.
    pub file: Option<String>,
    /// The line of the instruction; of a caller, that of its call.
    pub line: Option<u32>,
    /// The number of its first instruction in the thread.
    pub begin: u64,
    #[serde(skip)]
    pub(crate) id: FunctionId,
    #[serde(skip)]
    pub(crate) origin: Option<Origin>,
}

/// An instruction of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedInstruction {
    /// Its address in the traced program.
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    /// Its bytes.
    #[serde(skip)]
    pub bytes: Vec<u8>,
    /// The instruction, in AT&T syntax.
    pub instruction: String,
    /// The source file.
    pub file: Option<String>,
    /// The source line.
    pub line: Option<u32>,
    /// The module.
    pub module: u32,
    /// The place in the module's file; the address of code without a file.
    #[serde(serialize_with = "hexadecimal")]
    pub offset: u64,
}

/// Addresses are text: readers of JSON round large numbers.
fn hexadecimal<S: Serializer>(address: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{address:#x}"))
}

fn hexadecimal_if_known<S: Serializer>(address: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    match address {
        Some(address) => hexadecimal(address, to),
        None => to.serialize_none(),
    }
}

impl Stepper<'_, '_> {
    /// Returns what is seen at a position.
    pub fn scene(&mut self, at: Position) -> Scene {
        let instructions = self.thread(at.thread).instructions;
        let gap = self.gap_reasons(at);
        let thread = self.trace.threads[at.thread as usize];
        let (time, number) = (self.time(at), at.number);
        let mut scene = Scene {
            pid: thread.pid,
            tid: thread.tid,
            number,
            instructions,
            time_ns: time.map(|time| time.0),
            gap,
            returned: false,
            instruction: String::new(),
            taken: None,
            frames: Vec::new(),
            depth: 0,
        };
        // Where flow is missing, nothing is known of the stack.
        if at.stop == Stop::Gap {
            return scene;
        }
        let piece = self.piece(at.thread, number);
        let instruction = piece.instruction(number);
        let address = instruction.address();
        let bytes = instruction.block.bytes(instruction.index);
        scene.instruction = disassemble(bytes, instruction.block.isa, address).0;
        scene.returned = piece.returned.binary_search(&number).is_ok();
        scene.depth = u64::from(piece.frame(instruction.frame).depth) + 1;
        scene.taken = self.taken(at.thread, number);
        let mut next = Some((address, Some(instruction.origin())));
        for frame in piece.frames.stack(Some(instruction.frame)).take(MOST_FRAMES) {
            scene.frames.push(self.frame(frame, next, scene.frames.is_empty()));
            next = self.in_caller(at.thread, frame, time);
        }
        scene
    }

    /// The address at which the caller of a frame continues, and its origin.
    fn in_caller(&self, thread: u32, frame: &Frame, time: Option<Nanos>) -> Option<(u64, Option<Origin>)> {
        let address = frame.return_address.filter(|_| frame.entry != FrameEntry::Tail)?.get();
        Some((address, self.trace.origin(thread, time, address)))
    }

    fn frame(&mut self, frame: &Frame, next: Option<(u64, Option<Origin>)>, is_newest: bool) -> SceneFrame {
        let trace = self.trace;
        let modules = &trace.modules;
        let (function, module) = modules.names(frame.function);
        let origin =
            next.and_then(|(_, origin)| origin).filter(|origin| origin.module == frame.function.module);
        // A caller's line is that of its call, which is directly before.
        let line_origin = origin
            .map(|origin| Origin { offset: origin.offset.wrapping_sub(u64::from(!is_newest)), ..origin });
        let line = line_origin.and_then(|origin| modules.line(origin.module, modules.address(origin)));
        let inlined = match line_origin.filter(|_| is_newest) {
            Some(origin) => self.inlined(origin),
            None => Vec::new(),
        };
        SceneFrame {
            function,
            inlined,
            module,
            entered_by: frame.entry.name(),
            address: next.map(|(address, _)| address),
            offset: origin.map(|origin| modules.address(origin).wrapping_sub(modules.start(frame.function))),
            file: line.map(|line| line.file.to_owned()),
            line: line.map(|line| line.line),
            begin: frame.begin,
            id: frame.function,
            origin,
        }
    }

    /// The functions inlined at an instruction, the innermost first.
    fn inlined(&mut self, origin: Origin) -> Vec<String> {
        let modules = &self.trace.modules;
        let address = modules.address(origin);
        let page = InlinedPage { module: origin.module, number: address / INLINED_PAGE };
        let kept = &mut self.execution.inlined;
        if kept.len() >= INLINED_PAGES {
            kept.clear();
        }
        let known = kept.entry(page).or_insert_with(|| {
            let begin = page.number * INLINED_PAGE;
            let addresses: Vec<u64> = (begin..begin.saturating_add(INLINED_PAGE)).collect();
            let mut names = FxHashMap::default();
            modules.inlined_frames(page.module, &addresses, &mut |index, frames| {
                names.insert(addresses[index], frames.to_vec());
            });
            names
        });
        known.get(&address).cloned().unwrap_or_default()
    }

    /// Returns the code of a frame's function, as its file has it: at most `around` instructions before and after the
    /// frame's; empty if the frame's place in the file is unknown.
    pub fn listing(&self, frame: &SceneFrame, around: usize) -> Vec<ListedInstruction> {
        let modules = &self.trace.modules;
        let Some((address, origin)) = frame.address.zip(frame.origin) else { return Vec::new() };
        let here = modules.address(origin);
        let (isa, start) = (modules.isa(origin.module), modules.start(frame.id));
        let end = modules.end(frame.id).min(start.saturating_add(LONGEST_FUNCTION));
        let place = |at: u64| Origin { offset: origin.offset.wrapping_add(at.wrapping_sub(here)), ..origin };
        let begins = instruction_begins(isa, start..end, here, |at| {
            self.trace.code_at(origin.module, place(at).offset)
        });
        let index = begins.partition_point(|&at| at < here);
        let shown =
            index.saturating_sub(around)..(index.saturating_add(around).saturating_add(1)).min(begins.len());
        let listed = |&at: &u64| {
            let in_program = address.wrapping_add(at.wrapping_sub(here));
            let bytes = self.trace.code_at(origin.module, place(at).offset);
            let (text, length) = disassemble(&bytes, isa, in_program);
            let line = modules.line(origin.module, at);
            ListedInstruction {
                address: in_program,
                bytes: bytes[..bytes.len().min(length as usize)].to_vec(),
                instruction: text,
                file: line.map(|line| line.file.to_owned()),
                line: line.map(|line| line.line),
                module: origin.module,
                offset: place(at).offset,
            }
        };
        begins[shown].iter().map(listed).collect()
    }
}

/// Returns where the instructions of a function begin. `here` is one of them: data before it must not hide it.
fn instruction_begins<'c>(
    isa: Isa,
    function: Range<u64>,
    here: u64,
    code_at: impl Fn(u64) -> Cow<'c, [u8]>,
) -> Vec<u64> {
    let mut begins = Vec::new();
    let mut at = function.start;
    while at < function.end {
        begins.push(at);
        let decoded = isa.instruction(&code_at(at), at);
        let length = u64::from(decoded.map_or(isa.alignment(), |instruction| instruction.step().length));
        at += if at < here { length.min(here - at) } else { length };
    }
    begins
}

/// Returns the text and the length of an instruction; of one that is none, the shortest.
fn disassemble(bytes: &[u8], isa: Isa, address: u64) -> (String, u64) {
    let Ok(instruction) = isa.instruction(bytes, address) else {
        return ("(bad)".to_owned(), isa.alignment().into());
    };
    let mut text = String::new();
    Printer::default().print(&instruction, &mut text);
    (text, instruction.step().length.into())
}
