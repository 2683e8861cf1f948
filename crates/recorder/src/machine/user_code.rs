//! The code of processes, as far as it differs from the files that they map.
//!
//! ```text
//! notes of the plugin ──► image: what is known of each address space ──┐
//!                                                                      ├─ differs? ──► pieces
//! kernel's records ─────► view: files mapped, pieces so far ───────────┘
//! ```
//!
//! The plugin notes code that is new in an address space or has changed there, and does not repeat code that it knows.
//! Processes use an address space one after the other, and a process can get one in which its code is known already. So
//! the image and the view are compared whenever a process gets an address space, maps something, or runs new code.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    ops::Range,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::Path,
    rc::Rc,
};

use hodo_clock::{Nanos, PerfClock, Tsc};
use hodo_emulator::machine::spool::{CodeNote, SpaceNote};
use hodo_formats::{
    perf::ring::RingRecord,
    recording::{KeptCode, Mapping, Sideband, SidebandKind},
};

use super::code::Piece;

const PAGE: u64 = 4096;
/// The first address of the kernel's half.
const KERNEL: u64 = 1 << 63;

/// Events in order of time.
enum Event<'r, 'b> {
    Record(&'r RingRecord<'b>),
    Space(&'r SpaceNote),
    Code(CodeNote, Vec<u8>),
}

/// The pieces to keep of the processes' code, in order of time. `beginning` is what was mapped before the first record.
pub(super) fn of_processes(
    notes: Vec<(CodeNote, Vec<u8>)>,
    spaces: &[SpaceNote],
    beginning: &[Sideband<'_>],
    records: &[RingRecord<'_>],
    clock: &PerfClock,
) -> Vec<Piece> {
    let time = |ticks: u64| clock.nanos(Tsc(ticks)).0;
    // A processor changes the address space before the stack, and records contain the change of the stack.
    let mut events: Vec<(u64, Event<'_, '_>)> =
        spaces.iter().map(|space| (time(space.time), Event::Space(space))).collect();
    events.extend(records.iter().map(|record| (record.time.unwrap_or_default().0, Event::Record(record))));
    events.extend(notes.into_iter().map(|(note, bytes)| (time(note.time), Event::Code(note, bytes))));
    events.sort_by_key(|&(time, _)| time);
    let mut processes = Processes::new(beginning, records);
    for (time, event) in events {
        match event {
            Event::Record(record) => processes.record(record, time),
            Event::Space(note) => _ = processes.current_space.insert(note.cpu, note.space),
            Event::Code(note, bytes) => processes.code(&note, &bytes, time),
        }
    }
    processes.pieces
}

/// The known bytes of a page.
#[derive(Clone)]
struct Page {
    bytes: [u8; PAGE as usize],
    known: [u64; PAGE as usize / 64],
}

impl Page {
    fn byte(&self, offset: usize) -> Option<u8> {
        (self.known[offset / 64] >> (offset % 64) & 1 == 1).then(|| self.bytes[offset])
    }

    fn set(&mut self, offset: usize, byte: u8) {
        self.bytes[offset] = byte;
        self.known[offset / 64] |= 1 << (offset % 64);
    }
}

/// Bytes by address.
#[derive(Clone, Default)]
struct Bytes(BTreeMap<u64, Rc<Page>>);

impl Bytes {
    fn write(&mut self, address: u64, bytes: &[u8]) {
        for (address, &byte) in (address..).zip(bytes) {
            let unknown = || Rc::new(Page { bytes: [0; PAGE as usize], known: [0; PAGE as usize / 64] });
            let page = self.0.entry(address / PAGE).or_insert_with(unknown);
            Rc::make_mut(page).set((address % PAGE) as usize, byte);
        }
    }

    /// Forgets the pages in a range.
    fn forget(&mut self, range: &Range<u64>) {
        self.0.retain(|page, _| !range.contains(&(page * PAGE)));
    }
}

/// What a process maps at an address.
#[derive(Clone)]
struct Map {
    range: Range<u64>,
    /// The file and the offset at the range's begin; `None` if no file is mapped.
    file: Option<(Vec<u8>, u64)>,
}

/// A process as a decoder sees it.
#[derive(Clone, Default)]
struct View {
    /// Number of programs that it has executed.
    programs: u32,
    /// Whether it has run code: threads of the kernel only borrow address spaces.
    runs: bool,
    /// The latest last.
    maps: Vec<Map>,
    /// The pieces that were kept for it.
    kept: Bytes,
}

impl View {
    fn map_at(&self, address: u64) -> Option<&Map> {
        self.maps.iter().rev().find(|map| map.range.contains(&address))
    }

    /// The addresses at which a decoder looks for code.
    fn ranges(&self) -> Vec<Range<u64>> {
        let unknown = self.maps.is_empty().then_some(0..KERNEL);
        self.maps.iter().map(|map| map.range.clone()).chain(unknown).collect()
    }

    /// Maps something, in the same way as a decoder does: only a file replaces the code there.
    fn map(&mut self, mapping: &Mapping<'_>) -> Range<u64> {
        let range = mapping.address..mapping.address.saturating_add(mapping.length);
        if is_file(mapping.name) {
            self.kept.forget(&range);
            self.maps.retain(|map| map.range.start < range.start || range.end < map.range.end);
            let file = Some((mapping.name.to_vec(), mapping.file_offset));
            self.maps.push(Map { range: range.clone(), file });
        } else if self.map_at(range.start).is_none_or(|map| map.range.end < range.end) {
            // Behind all others, which it does not hide.
            self.maps.insert(0, Map { range: range.clone(), file: None });
        }
        range
    }
}

/// Whether a mapping's name is that of a file, as a decoder decides it.
fn is_file(name: &[u8]) -> bool {
    !name.starts_with(b"//") && !name.starts_with(b"[") && !name.is_empty()
}

/// A program of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner {
    pid: u32,
    /// The number of programs that the process had executed.
    programs: u32,
}

/// An address space.
#[derive(Default)]
struct Space {
    owner: Option<Owner>,
    /// What the plugin knows of it.
    image: Bytes,
}

/// The files that are mapped, by name; a file that can't be read has no pages.
#[derive(Default)]
struct Files(HashMap<Vec<u8>, Option<Mapped>>);

/// A file, and its pages that were read, by offset.
struct Mapped {
    file: File,
    pages: HashMap<u64, Vec<u8>>,
}

impl Files {
    /// The page at this offset, which is shorter at the file's end.
    fn page(&mut self, name: &[u8], offset: u64) -> &[u8] {
        if !self.0.contains_key(name) {
            let path = Path::new(std::ffi::OsStr::from_bytes(name));
            let file = File::open(path).ok().filter(|_| path.is_absolute());
            self.0.insert(name.to_vec(), file.map(|file| Mapped { file, pages: HashMap::new() }));
        }
        let Some(Some(Mapped { file, pages })) = self.0.get_mut(name) else { return &[] };
        pages.entry(offset).or_insert_with(|| {
            let (mut page, mut filled) = (vec![0; PAGE as usize], 0);
            while let Ok(count @ 1..) = file.read_at(&mut page[filled..], offset + filled as u64) {
                filled += count;
            }
            page.truncate(filled);
            page
        })
    }
}

/// The state of processes at a time.
#[derive(Default)]
struct Processes {
    /// The running process by CPU.
    running: HashMap<u32, u32>,
    /// The address space in use, by CPU.
    current_space: HashMap<u32, u64>,
    views: HashMap<u32, View>,
    spaces: HashMap<u64, Space>,
    files: Files,
    pieces: Vec<Piece>,
}

impl Processes {
    /// The process that runs first on a CPU is the one that its first switch leaves.
    fn new(beginning: &[Sideband<'_>], records: &[RingRecord<'_>]) -> Processes {
        let mut processes = Processes::default();
        for said in beginning.iter().filter(|said| said.thread.pid != KeptCode::KERNEL) {
            if let SidebandKind::Map(mapping) = &said.kind {
                processes.views.entry(said.thread.pid).or_default().map(mapping);
            }
        }
        for record in records {
            if let Some(said) = &record.sideband
                && let SidebandKind::SwitchOut { .. } = said.kind
            {
                let cpu = record.cpu.unwrap_or(0);
                processes.running.entry(cpu).or_insert(said.thread.pid);
            }
        }
        processes
    }

    fn record(&mut self, record: &RingRecord<'_>, time: u64) {
        let Some(said) = &record.sideband else { return };
        let (cpu, pid) = (record.cpu.unwrap_or(0), said.thread.pid);
        match &said.kind {
            SidebandKind::SwitchOut { next: Some(next), .. } => {
                self.running.insert(cpu, next.pid);
                self.take_over(cpu, time);
            }
            SidebandKind::Comm { exec: true, .. } => {
                let view = self.views.entry(pid).or_default();
                *view = View { programs: view.programs + 1, ..View::default() };
                self.take_over(cpu, time);
            }
            SidebandKind::Fork { parent } if parent.pid != pid => {
                let inherited = self.views.get(&parent.pid).cloned().unwrap_or_default();
                self.views.insert(pid, inherited);
            }
            SidebandKind::Map(mapping) if !mapping.kernel => {
                let range = self.views.entry(pid).or_default().map(mapping);
                if let Some(&space) = self.current_space.get(&cpu) {
                    self.keep_differing(pid, space, range, time);
                }
            }
            _ => {}
        }
    }

    /// Assigns the address space of a CPU to the process that runs there, if it is a new one.
    fn take_over(&mut self, cpu: u32, time: u64) {
        let (Some(&number), Some(&pid)) = (self.current_space.get(&cpu), self.running.get(&cpu)) else {
            return;
        };
        let Some(view) = self.views.get(&pid).filter(|view| view.runs || !view.maps.is_empty()) else {
            return;
        };
        let owner = Some(Owner { pid, programs: view.programs });
        let space = self.spaces.entry(number).or_default();
        if space.owner != owner {
            space.owner = owner;
            for range in view.ranges() {
                self.keep_differing(pid, number, range, time);
            }
        }
    }

    fn code(&mut self, note: &CodeNote, bytes: &[u8], time: u64) {
        self.current_space.insert(note.cpu, note.space);
        let pid = self.running.get(&note.cpu).copied().unwrap_or(0);
        self.views.entry(pid).or_default().runs |= pid != 0;
        self.take_over(note.cpu, time);
        self.spaces.entry(note.space).or_default().image.write(note.address, bytes);
        self.keep_differing(pid, note.space, note.address..note.address + bytes.len() as u64, time);
    }

    /// Keeps the known code at these addresses of an address space where it differs from what a decoder finds in the process.
    fn keep_differing(&mut self, pid: u32, space: u64, range: Range<u64>, time: u64) {
        let Some(Space { image, .. }) = self.spaces.get(&space).filter(|_| !range.is_empty()) else { return };
        let view = self.views.entry(pid).or_default();
        for (&number, page) in image.0.range(range.start / PAGE..=(range.end - 1) / PAGE) {
            let start = number * PAGE;
            let file = view.map_at(start).and_then(|map| {
                let (name, offset) = map.file.as_ref()?;
                Some(self.files.page(name, offset + (start - map.range.start)))
            });
            let file = file.unwrap_or_default();
            let kept = view.kept.0.get(&number).cloned();
            let within = range.start.max(start)..range.end.min(start + PAGE);
            let mut differing: Vec<Piece> = Vec::new();
            for (address, offset) in within.clone().zip((within.start - start) as usize..) {
                let decoded = kept.as_ref().and_then(|kept| kept.byte(offset)).or(file.get(offset).copied());
                let Some(byte) = page.byte(offset).filter(|&byte| decoded != Some(byte)) else { continue };
                match differing.last_mut() {
                    Some(last) if last.address + last.bytes.len() as u64 == address => last.bytes.push(byte),
                    _ => {
                        let (time, bytes) = (Nanos(time), vec![byte]);
                        differing.push(Piece { pid, guest: None, time, address, bytes });
                    }
                }
            }
            for piece in differing {
                view.kept.write(piece.address, &piece.bytes);
                self.pieces.push(piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hodo_formats::recording::Thread;

    use super::*;

    const SPACE: u64 = 0x5000;
    const CODE: u64 = 0x40_1000;

    struct Case {
        /// Two pages of NOPs.
        file: tempfile::NamedTempFile,
        actions: Vec<Action>,
        notes: Vec<(CodeNote, Vec<u8>)>,
        spaces: Vec<SpaceNote>,
    }

    /// What a process does at a time.
    struct Action {
        time: u64,
        pid: u32,
        what: What,
    }

    enum What {
        /// The process is left for this one.
        Switch(u32),
        Exec,
        Fork(u32),
        /// The file is mapped at the code's address, or nothing is.
        File,
        Bare,
    }

    impl Case {
        fn new() -> Case {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), [0x90; 2 * PAGE as usize]).unwrap();
            Case { file, actions: Vec::new(), notes: Vec::new(), spaces: vec![in_space(0, SPACE)] }
        }

        fn pieces(&self) -> Vec<Piece> {
            let name = self.file.path().as_os_str().as_bytes();
            let clock = PerfClock::new(0, 1, 0).unwrap();
            let records: Vec<_> = self.actions.iter().map(|action| record(action, name)).collect();
            of_processes(self.notes.clone(), &self.spaces, &[], &records, &clock)
        }
    }

    fn action(time: u64, pid: u32, what: What) -> Action {
        Action { time, pid, what }
    }

    /// New code at this distance from the code's address.
    fn note(time: u64, space: u64, offset: u64, bytes: &[u8]) -> (CodeNote, Vec<u8>) {
        let (address, length) = (CODE + offset, bytes.len() as u64);
        (CodeNote { cpu: 0, changed: false, time, space, address, length }, bytes.to_vec())
    }

    fn in_space(time: u64, space: u64) -> SpaceNote {
        SpaceNote { cpu: 0, time, space }
    }

    /// Code that is kept, at this distance from the code's address.
    fn piece(time: u64, pid: u32, offset: u64, bytes: &[u8]) -> Piece {
        Piece { pid, guest: None, time: Nanos(time), address: CODE + offset, bytes: bytes.to_vec() }
    }

    fn record<'n>(&Action { time, pid, ref what }: &Action, name: &'n [u8]) -> RingRecord<'n> {
        let thread = |pid| Thread { pid, tid: pid };
        let map = |name| {
            let (length, file_offset) = (2 * PAGE, 0);
            SidebandKind::Map(Mapping {
                address: CODE,
                length,
                file_offset,
                name,
                build_id: &[],
                kernel: false,
            })
        };
        let kind = match what {
            What::Switch(next) => SidebandKind::SwitchOut { preempted: false, next: Some(thread(*next)) },
            What::Exec => SidebandKind::Comm { name: b"x", exec: true },
            What::Fork(parent) => SidebandKind::Fork { parent: thread(*parent) },
            What::File => map(name),
            What::Bare => map(b"//anon"),
        };
        let (time, cpu, thread) = (Some(Nanos(time)), Some(0), thread(pid));
        let sideband = Some(Sideband { time, cpu, thread, guest: None, kind });
        RingRecord { kind: 0, misc: 0, body: &[], thread, time, cpu, sideband }
    }

    #[test]
    fn code_that_differs_from_its_file_is_kept_and_so_is_what_replaces_it() {
        let mut case = Case::new();
        case.actions =
            vec![action(1, 6, What::Switch(7)), action(2, 7, What::Exec), action(3, 7, What::File)];
        case.notes = vec![
            // A breakpoint before the code first runs, the code, the breakpoint again; and code as in the file.
            note(4, SPACE, 8, &[0xcc]),
            note(5, SPACE, 8, &[0x90, 0x90]),
            note(6, SPACE, 8, &[0xcc]),
            note(7, SPACE, PAGE - 1, &[0x90, 0x90, 0x90]),
            note(8, SPACE, PAGE - 2, &[0x90, 1, 2, 0x90]),
        ];
        let one = |time, offset, byte| piece(time, 7, offset, &[byte]);
        let [first, second] = [one(8, PAGE - 1, 1), one(8, PAGE, 2)];
        assert_eq!(case.pieces(), [one(4, 8, 0xcc), one(5, 8, 0x90), one(6, 8, 0xcc), first, second]);
    }

    /// The plugin knows the breakpoint, and does not note it again.
    #[test]
    fn an_address_space_that_another_process_had_brings_its_code() {
        let mut case = Case::new();
        case.actions = vec![
            action(1, 6, What::Switch(7)),
            action(2, 7, What::Exec),
            action(3, 7, What::File),
            action(6, 7, What::Switch(8)),
            action(7, 8, What::Exec),
            action(8, 8, What::File),
            // A process without the code in another space, and back.
            action(10, 8, What::Switch(9)),
            action(12, 9, What::Switch(8)),
        ];
        case.notes = vec![note(4, SPACE, 0, &[0xcc])];
        case.spaces.extend([in_space(9, 0x6000), in_space(11, SPACE)]);
        let breakpoint = |time, pid| piece(time, pid, 0, &[0xcc]);
        assert_eq!(case.pieces(), [breakpoint(4, 7), breakpoint(8, 8)]);
    }

    /// A processor changes the address space before the stack.
    #[test]
    fn a_process_that_is_left_does_not_get_the_code_of_the_next_one() {
        let mut case = Case::new();
        case.actions = vec![
            action(1, 6, What::Switch(7)),
            action(2, 7, What::File),
            action(5, 7, What::Switch(8)),
            action(6, 8, What::File),
            action(9, 8, What::Switch(7)),
            action(12, 7, What::Switch(8)),
        ];
        case.notes = vec![note(3, SPACE, 0, &[0x90]), note(7, 0x6000, 0, &[0xcc])];
        case.spaces.extend([in_space(4, 0x6000), in_space(8, SPACE), in_space(11, 0x6000)]);
        assert_eq!(case.pieces(), [piece(7, 8, 0, &[0xcc])]);
    }

    #[test]
    fn a_fork_has_the_code_of_its_parent_in_an_address_space_with_other_code() {
        let mut case = Case::new();
        case.actions = vec![
            action(1, 6, What::Switch(7)),
            action(2, 7, What::File),
            action(3, 8, What::Fork(7)),
            action(5, 7, What::Switch(8)),
            // It ends, and the next child gets its address space, in which code is known.
            action(8, 8, What::Switch(7)),
            action(9, 9, What::Fork(7)),
            action(11, 7, What::Switch(9)),
        ];
        case.notes =
            vec![note(2, SPACE, 0, &[0xcc]), note(6, 0x6000, 0, &[0xcc]), note(7, 0x6000, 4, &[0xcd])];
        case.spaces.extend([in_space(4, 0x6000), in_space(8, SPACE), in_space(10, 0x6000)]);
        assert_eq!(
            case.pieces(),
            [piece(2, 7, 0, &[0xcc]), piece(7, 8, 4, &[0xcd]), piece(11, 9, 4, &[0xcd])]
        );
    }

    #[test]
    fn code_without_a_file_is_kept_once() {
        let mut case = Case::new();
        case.actions = vec![
            action(1, 6, What::Switch(7)),
            action(2, 7, What::Bare),
            action(4, 7, What::Bare),
            action(5, 7, What::File),
        ];
        case.notes = vec![note(3, SPACE, 0, &[0x90, 1]), note(6, SPACE, 1, &[1, 2])];
        // The code that ran last at the address differs from the file.
        assert_eq!(case.pieces(), [piece(3, 7, 0, &[0x90, 1]), piece(5, 7, 1, &[1]), piece(6, 7, 2, &[2])]);
    }

    /// A processor that starts runs code at addresses without a mapping, and no process.
    #[test]
    fn code_of_no_process_is_kept() {
        let mut case = Case::new();
        case.notes = vec![note(3, 0, 0, &[0xfa])];
        assert_eq!(case.pieces(), [piece(3, 0, 0, &[0xfa])]);
    }
}
