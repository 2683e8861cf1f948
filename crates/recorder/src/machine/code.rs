//! Selects the pieces of a machine's executed code that a recording must keep.
//!
//! ```text
//! code of the kernel ──────────────────► its first state, as large pieces; then each change
//! code of user space ──which process?──► what differs from the files that the process maps
//! code of a guest ─────────────────────► as that of the kernel, by its VMCB
//! ```
//!
//! The plugin identifies address spaces by CR3 and reports new code in each. After a process leaves a CR3, another may
//! use it, with the same code at the same place: code that no file contains is kept for that process too.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::File,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::Path,
};

use hodo_clock::{Nanos, PerfClock, Tsc};
use hodo_emulator::machine::spool::{CodeNote, GUEST, SpaceNote};
use hodo_formats::{
    perf::ring::RingRecord,
    recording::{KeptCode, Mapping, SidebandKind},
};

const PAGE: u64 = 4096;

/// A piece of code that the recording keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) pid: u32,
    /// The VMCB of the guest that it belongs to.
    pub(super) guest: Option<u64>,
    pub(super) time: Nanos,
    pub(super) address: u64,
    pub(super) bytes: Vec<u8>,
}

/// The pieces to keep, in order of time; those of the kernel exist from `begin`. `records` are in order of time.
pub(super) fn pieces(
    notes: Vec<(CodeNote, Vec<u8>)>,
    spaces: &[SpaceNote],
    records: &[RingRecord<'_>],
    clock: &PerfClock,
    begin: Nanos,
) -> Vec<Piece> {
    let (guests, notes): (Vec<_>, Vec<_>) = notes.into_iter().partition(|(note, _)| note.space & GUEST != 0);
    let (kernel, user): (Vec<_>, Vec<_>) = notes.into_iter().partition(|(note, _)| note.space == 0);
    let mut pieces = of_one(kernel, KeptCode::KERNEL, None, clock, begin);
    let mut by_guest: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for (note, bytes) in guests {
        by_guest.entry(note.space & !GUEST).or_default().push((note, bytes));
    }
    for (vmcb, notes) in by_guest {
        pieces.extend(of_one(notes, 0, Some(vmcb), clock, begin));
    }
    pieces.extend(of_processes(user, spaces, records, clock));
    pieces.sort_by_key(|piece| piece.time);
    pieces
}

/// The code of the kernel or a guest: its first state, then its changes.
fn of_one(
    notes: Vec<(CodeNote, Vec<u8>)>,
    pid: u32,
    guest: Option<u64>,
    clock: &PerfClock,
    begin: Nanos,
) -> Vec<Piece> {
    let mut first: BTreeMap<u64, u8> = BTreeMap::new();
    let mut changes = Vec::new();
    for (note, bytes) in notes {
        for (address, &byte) in (note.address..).zip(&bytes) {
            first.entry(address).or_insert(byte);
        }
        if note.changed {
            let time = clock.nanos(Tsc(note.time));
            changes.push(Piece { pid, guest, time, address: note.address, bytes });
        }
    }
    let mut pieces: Vec<Piece> = Vec::new();
    for (address, byte) in first {
        match pieces.last_mut() {
            Some(last) if last.address + last.bytes.len() as u64 == address => last.bytes.push(byte),
            _ => {
                pieces.push(Piece { pid, guest, time: begin, address, bytes: vec![byte] });
            }
        }
    }
    pieces.extend(changes);
    pieces
}

/// Events in order of time.
enum Event<'r, 'b> {
    Record(&'r RingRecord<'b>),
    Space(&'r SpaceNote),
    Code(CodeNote, Vec<u8>),
}

fn of_processes(
    notes: Vec<(CodeNote, Vec<u8>)>,
    spaces: &[SpaceNote],
    records: &[RingRecord<'_>],
    clock: &PerfClock,
) -> Vec<Piece> {
    let time = |ticks: u64| clock.nanos(Tsc(ticks)).0;
    let mut events: Vec<(u64, Event<'_, '_>)> =
        records.iter().map(|record| (record.time.unwrap_or_default().0, Event::Record(record))).collect();
    events.extend(spaces.iter().map(|space| (time(space.time), Event::Space(space))));
    events.extend(notes.into_iter().map(|(note, bytes)| (time(note.time), Event::Code(note, bytes))));
    events.sort_by_key(|&(time, _)| time);
    let mut processes = Processes::new(records);
    for (time, event) in events {
        match event {
            Event::Record(record) => processes.record(record, time),
            Event::Space(note) => processes.switched(note, time),
            Event::Code(note, bytes) => processes.code(&note, bytes, time),
        }
    }
    processes.pieces
}

/// A part of a file that a process maps.
#[derive(Clone, Debug)]
struct Map {
    address: u64,
    length: u64,
    file_offset: u64,
    name: Vec<u8>,
}

/// Code that no file contains, in an address space.
#[derive(Default)]
struct Space {
    /// Its process, and the number of programs that the process had executed.
    owner: Option<(u32, u32)>,
    /// The bytes by address.
    kept: BTreeMap<u64, Vec<u8>>,
}

/// The state of processes at a time.
#[derive(Default)]
struct Processes {
    /// The running process by CPU.
    running: HashMap<u32, u32>,
    /// The address space, by CPU.
    at: HashMap<u32, u64>,
    maps: HashMap<u32, Vec<Map>>,
    programs: HashMap<u32, u32>,
    spaces: HashMap<u64, Space>,
    /// Pages of processes with kept code.
    kept: HashSet<(u32, u64)>,
    files: HashMap<Vec<u8>, Option<File>>,
    pieces: Vec<Piece>,
}

impl Processes {
    /// The process that runs first on a CPU is the one that its first switch leaves.
    fn new(records: &[RingRecord<'_>]) -> Processes {
        let mut processes = Processes::default();
        for record in records {
            if let Some(said) = &record.said
                && let SidebandKind::SwitchOut { .. } = said.kind
            {
                let cpu = record.cpu.unwrap_or(0);
                processes.running.entry(cpu).or_insert(said.thread.pid);
            }
        }
        processes
    }

    fn record(&mut self, record: &RingRecord<'_>, time: u64) {
        let Some(said) = &record.said else { return };
        let (cpu, pid) = (record.cpu.unwrap_or(0), said.thread.pid);
        match &said.kind {
            SidebandKind::SwitchOut { next: Some(next), .. } => {
                self.running.insert(cpu, next.pid);
            }
            SidebandKind::Comm { exec: true, .. } => {
                *self.programs.entry(pid).or_default() += 1;
                self.maps.remove(&pid);
                self.kept.retain(|&(of, _)| of != pid);
                self.take_over(cpu, time);
            }
            SidebandKind::Fork { parent } if parent.pid != pid => {
                let inherited = self.maps.get(&parent.pid).cloned().unwrap_or_default();
                self.maps.insert(pid, inherited);
                let pages: Vec<u64> =
                    self.kept.iter().filter(|&&(of, _)| of == parent.pid).map(|&(_, page)| page).collect();
                self.kept.extend(pages.into_iter().map(|page| (pid, page)));
            }
            SidebandKind::Map(Mapping { address, length, file_offset, name, kernel: false, .. }) => {
                let (address, length, file_offset) = (*address, *length, *file_offset);
                let map = Map { address, length, file_offset, name: name.to_vec() };
                self.maps.entry(pid).or_default().push(map);
            }
            _ => {}
        }
    }

    fn switched(&mut self, note: &SpaceNote, time: u64) {
        self.at.insert(note.cpu, note.space);
        self.take_over(note.cpu, time);
    }

    /// Assigns the address space of a CPU to the process that runs there, which may be a new one.
    fn take_over(&mut self, cpu: u32, time: u64) {
        let (Some(&space), Some(&pid)) = (self.at.get(&cpu), self.running.get(&cpu)) else { return };
        let owner = (pid, self.programs.get(&pid).copied().unwrap_or(0));
        let space = self.spaces.entry(space).or_default();
        // Kernel threads (and pid 0) borrow the present address space.
        if pid == 0 || space.owner == Some(owner) {
            return;
        }
        space.owner = Some(owner);
        for (&address, bytes) in &space.kept {
            self.kept.extend(pages(address, bytes.len()).map(|page| (pid, page)));
            self.pieces.push(Piece { pid, guest: None, time: Nanos(time), address, bytes: bytes.clone() });
        }
    }

    fn code(&mut self, note: &CodeNote, bytes: Vec<u8>, time: u64) {
        self.at.insert(note.cpu, note.space);
        let pid = self.running.get(&note.cpu).copied().unwrap_or(0);
        self.take_over(note.cpu, time);
        let mut touched = pages(note.address, bytes.len());
        if !touched.any(|page| self.kept.contains(&(pid, page))) && self.is_of_file(pid, note.address, &bytes)
        {
            return;
        }
        self.kept.extend(pages(note.address, bytes.len()).map(|page| (pid, page)));
        self.spaces.entry(note.space).or_default().kept.insert(note.address, bytes.clone());
        self.pieces.push(Piece { pid, guest: None, time: Nanos(time), address: note.address, bytes });
    }

    /// Whether the file that a process maps at an address contains these bytes there.
    fn is_of_file(&mut self, pid: u32, address: u64, bytes: &[u8]) -> bool {
        let maps = self.maps.get(&pid).map_or(&[][..], Vec::as_slice);
        let end = address + bytes.len() as u64;
        let covers = |map: &&Map| map.address <= address && end <= map.address.saturating_add(map.length);
        let Some(map) = maps.iter().rev().find(covers) else { return false };
        let at = map.file_offset + (address - map.address);
        let open = |name: &Vec<u8>| {
            let path = Path::new(std::ffi::OsStr::from_bytes(name));
            File::open(path).ok().filter(|_| path.is_absolute())
        };
        let name = &map.name;
        if !self.files.contains_key(name) {
            self.files.insert(name.clone(), open(name));
        }
        let Some(Some(file)) = self.files.get(name) else { return false };
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, at).is_ok() && found == bytes
    }
}

fn pages(address: u64, length: usize) -> impl Iterator<Item = u64> {
    address / PAGE..=(address + length.max(1) as u64 - 1) / PAGE
}
