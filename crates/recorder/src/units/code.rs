//! The code that programs ran, by process and time; of a machine, by address space and time.

use std::{collections::HashMap, ffi::OsStr, ops::Range, os::unix::ffi::OsStrExt, path::Path, rc::Rc};

use hodo_bytes::Map;
use hodo_code::{AddressSpace, Content, Isa, Origin, Step, Terminator};
use hodo_emulator::{
    machine::spool::CodeNote,
    spool::{MapNote, Note, NoteKind},
};

/// Instructions of a block, at most.
const LONGEST: usize = 64;

/// An instruction of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    pub(super) address: u64,
    pub(super) step: Step,
    /// Its bytes, as far as there are so many.
    pub(super) bytes: [u8; 4],
}

impl Instruction {
    /// The address after it.
    pub(super) fn end(&self) -> u64 {
        self.address.wrapping_add(self.step.length.into())
    }
}

/// The mapped files, by path.
pub(super) struct Files(HashMap<Vec<u8>, Map>);

impl Files {
    /// Opens the files of all mappings, as far as they exist.
    pub(super) fn open(notes: &[Note]) -> Files {
        let mut files = HashMap::new();
        for note in notes {
            if let NoteKind::Map(map) = &note.kind
                && !files.contains_key(&map.name)
                && let Ok(file) = Map::open(Path::new(OsStr::from_bytes(&map.name)))
            {
                files.insert(map.name.clone(), file);
            }
        }
        Files(files)
    }

    /// The content of a mapping; empty if no file has it.
    fn content(&self, map: &MapNote) -> &[u8] {
        let Some(file) = self.0.get(&map.name) else { return &[] };
        let offset = usize::try_from(map.file_offset).unwrap_or(usize::MAX);
        let rest = file.get(offset..).unwrap_or(&[]);
        &rest[..rest.len().min(usize::try_from(map.length).unwrap_or(usize::MAX))]
    }
}

/// A program that a process executed.
#[derive(Default)]
struct Image<'a> {
    start: u64,
    space: AddressSpace<'a>,
}

/// Instructions up to one that may branch.
struct Block {
    instructions: Vec<Instruction>,
    /// When the code is there.
    valid: Range<u64>,
}

/// The first address of the kernel's half.
const KERNEL: u64 = 1 << 63;
/// The kernel's half of all address spaces of a machine, as the notes have it.
const KERNEL_SPACE: u64 = 0;

/// The code of all processes, or of all address spaces.
pub(crate) struct Code<'a> {
    isa: Isa,
    /// By process, or by address space.
    images: HashMap<u64, Vec<Image<'a>>>,
    is_machine: bool,
    /// The program whose instructions are read: key and index of its image.
    chosen: (u64, usize),
    blocks: HashMap<(u64, u64), Rc<Block>>,
    /// The block of the last instruction, and its index in it.
    current: Option<(Rc<Block>, usize)>,
}

impl<'a> Code<'a> {
    /// Collects the code. `bytes` are those of the notes about code, in their order.
    pub(super) fn new(isa: Isa, notes: &'a [Note], bytes: &'a [Vec<u8>], files: &'a Files) -> Code<'a> {
        let mut images: HashMap<u64, Vec<Image<'a>>> = HashMap::new();
        let mut kept = bytes.iter();
        for note in notes {
            let time = note.time;
            match &note.kind {
                NoteKind::Fork { parent_pid, .. } if *parent_pid != note.pid => {
                    let parent = images.get(&u64::from(*parent_pid)).and_then(|images| images.last());
                    let space = parent.map(|image| image.space.fork(time)).unwrap_or_default();
                    images.entry(note.pid.into()).or_default().push(Image { start: time, space });
                }
                NoteKind::Comm { exec: true, .. } => {
                    let image = Image { start: time, space: AddressSpace::new() };
                    images.entry(note.pid.into()).or_default().push(image);
                }
                NoteKind::Map(map) => {
                    let range = map.address..map.address.saturating_add(map.length);
                    current(&mut images, note.pid).map(range, content(files.content(map)), time);
                }
                NoteKind::Code { address, length, .. } => {
                    let Some(bytes) = kept.next() else { continue };
                    let range = *address..address.saturating_add(*length);
                    current(&mut images, note.pid).map(range, content(bytes), time);
                }
                _ => {}
            }
        }
        Code::of_images(isa, images, false)
    }

    /// Collects the code of a machine. `nanos` converts the times of notes.
    pub(crate) fn of_machine(
        isa: Isa,
        notes: &'a [(CodeNote, Vec<u8>)],
        nanos: impl Fn(u64) -> u64,
    ) -> Code<'a> {
        let mut images: HashMap<u64, Vec<Image<'a>>> = HashMap::new();
        for (note, bytes) in notes {
            let images = images.entry(note.space).or_insert_with(|| vec![Image::default()]);
            let range = note.address..note.address.saturating_add(note.length);
            images[0].space.map(range, content(bytes), nanos(note.time));
        }
        Code::of_images(isa, images, true)
    }

    fn of_images(isa: Isa, images: HashMap<u64, Vec<Image<'a>>>, is_machine: bool) -> Code<'a> {
        Code { isa, images, is_machine, chosen: (0, 0), blocks: HashMap::new(), current: None }
    }

    pub(super) fn isa(&self) -> Isa {
        self.isa
    }

    /// Chooses the program that a process ran from this time on.
    pub(super) fn choose(&mut self, pid: u32, time: u64) {
        let pid = u64::from(pid);
        let after = self
            .images
            .get(&pid)
            .map_or(0, |images| images.iter().rposition(|image| image.start <= time).unwrap_or_default());
        if self.chosen != (pid, after) {
            self.chosen = (pid, after);
            self.blocks.clear();
        }
        self.current = None;
    }

    /// Chooses the address space of a machine.
    pub(super) fn choose_space(&mut self, space: u64) {
        if self.is_machine && self.chosen.0 != space {
            self.chosen = (space, 0);
            self.current = None;
        }
    }

    /// The key and the index of the image with an address.
    fn image_at(&self, address: u64) -> (u64, usize) {
        if self.is_machine && address & KERNEL != 0 { (KERNEL_SPACE, 0) } else { self.chosen }
    }

    /// Returns the instruction at an address; `None` if there is none.
    pub(super) fn instruction(&mut self, address: u64, now: u64) -> Option<Instruction> {
        if let Some((block, index)) = &mut self.current
            && let Some(next) = block.instructions.get(*index + 1)
            && next.address == address
            && block.valid.contains(&now)
        {
            *index += 1;
            return Some(*next);
        }
        let key = (self.image_at(address).0, address);
        let block = match self.blocks.get(&key) {
            Some(block) if block.valid.contains(&now) => block.clone(),
            _ => {
                let block = Rc::new(self.decode(address, now)?);
                self.blocks.insert(key, block.clone());
                block
            }
        };
        let first = block.instructions.first().copied();
        self.current = Some((block, 0));
        first
    }

    fn decode(&self, start: u64, now: u64) -> Option<Block> {
        let (key, index) = self.image_at(start);
        let space = &self.images.get(&key)?.get(index)?.space;
        let mut block = Block { instructions: Vec::new(), valid: 0..u64::MAX };
        let mut address = start;
        while block.instructions.len() < LONGEST {
            let Some((bytes, valid)) = bytes_at(space, address, now) else { break };
            let Ok(instruction) = self.isa.instruction(&bytes, address) else { break };
            let step = instruction.step();
            block.instructions.push(Instruction { address, step, bytes });
            block.valid = block.valid.start.max(valid.start)..block.valid.end.min(valid.end);
            if step.terminator != Terminator::None {
                break;
            }
            address = address.wrapping_add(step.length.into());
        }
        (!block.instructions.is_empty()).then_some(block)
    }
}

/// Reads four bytes, or fewer with zeros after them; they may lie in two mappings.
fn bytes_at(space: &AddressSpace<'_>, address: u64, now: u64) -> Option<([u8; 4], Range<u64>)> {
    let mut bytes = [0; 4];
    let (mut read, mut valid) = (0, 0..u64::MAX);
    while read < bytes.len() {
        let Some((content, here)) = space.at(address.wrapping_add(read as u64), now) else { break };
        let count = content.bytes.len().min(bytes.len() - read);
        if count == 0 {
            break;
        }
        bytes[read..read + count].copy_from_slice(&content.bytes[..count]);
        read += count;
        valid = valid.start.max(here.start)..valid.end.min(here.end);
    }
    (read >= 2).then_some((bytes, valid))
}

fn current<'i, 'a>(images: &'i mut HashMap<u64, Vec<Image<'a>>>, pid: u32) -> &'i mut AddressSpace<'a> {
    let images = images.entry(pid.into()).or_default();
    if images.is_empty() {
        images.push(Image::default());
    }
    let last = images.len() - 1;
    &mut images[last].space
}

fn content(bytes: &[u8]) -> Content<'_> {
    Content { bytes, origin: Origin::default() }
}
