//! Memory for machine code, and the way into it.

use std::io;

use super::code::{Place, Target};
use crate::{BranchBatch, FunctionRun, ReturnStack};

/// What machine code works on: by its offsets, so it is laid out as in C.
#[repr(C)]
pub(super) struct State {
    /// What is being followed.
    pub(super) leg: *mut BranchBatch,
    /// Instructions up to the present, as function runs count them.
    pub(super) instructions: u64,
    /// The function run that has begun.
    pub(super) function_run: *mut FunctionRun,
    /// The newest call, in bytes of the codes of [`ReturnStack`].
    pub(super) top: u64,
    pub(super) returns: *mut ReturnStack,
    /// Where machine code lies, and where in it to begin.
    pub(super) base: u64,
    pub(super) target: u64,
    /// Where indirect branches go.
    pub(super) targets: *const Target,
    /// The gate of the block before which code was left.
    pub(super) gate: Place,
}

/// Memory that is written in one place and run in another, so that no place is both.
#[derive(Debug)]
pub(super) struct Memory {
    write: memmap2::MmapMut,
    run: memmap2::Mmap,
}

impl Memory {
    /// Memory of so many bytes.
    ///
    /// # Errors
    /// What the system says when it grants none, or none that may be run.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    #[allow(unsafe_code)]
    pub(super) fn new(size: usize) -> io::Result<Memory> {
        use rustix::fs::{MemfdFlags, memfd_create};
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::EXEC;
        // Linux before 6.3 does not know that it is to be run.
        let file = memfd_create("code", flags).or_else(|_| memfd_create("code", MemfdFlags::CLOEXEC))?;
        let file = std::fs::File::from(file);
        file.set_len(size as u64)?;
        // SAFETY: nobody else has the file, which has no name and is closed here. What is written through one
        // mapping is read by the processor through the other, not through references.
        let (write, run) = unsafe {
            (memmap2::MmapOptions::new().map_mut(&file)?, memmap2::MmapOptions::new().map_exec(&file)?)
        };
        Ok(Memory { write, run })
    }

    /// There is none for processors and systems that no code is made for.
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    pub(super) fn new(_size: usize) -> io::Result<Memory> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn size(&self) -> usize {
        self.write.len()
    }

    /// The bytes from one place to another.
    #[cfg(test)]
    pub(super) fn bytes(&self, places: std::ops::Range<u32>) -> &[u8] {
        &self.write[places.start as usize..places.end as usize]
    }

    /// The byte at a place.
    pub(super) fn byte(&self, place: u32) -> u8 {
        self.write[place as usize]
    }

    /// The word at a place.
    pub(super) fn word(&self, place: u32) -> u32 {
        let bytes = self.write[place as usize..].first_chunk().copied();
        u32::from_le_bytes(bytes.expect("code does not end within a word"))
    }

    /// Writes bytes to a place.
    #[inline]
    pub(super) fn put(&mut self, place: u32, bytes: &[u8]) {
        self.write[place as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// The address at which a place is run.
    pub(super) fn address(&self, place: u32) -> u64 {
        self.run.as_ptr() as u64 + u64::from(place)
    }

    /// Calls the code at a place.
    ///
    /// # Safety
    /// Whole instructions were put there, which end in a return and write nothing but registers that a function may
    /// change, and what the state points to.
    #[inline]
    #[allow(unsafe_code)]
    pub(super) unsafe fn call(&self, place: u32, state: &mut State) -> u32 {
        let code = self.run.as_ptr().wrapping_add(place as usize);
        // SAFETY: the caller vouches for what is there.
        let enter: extern "sysv64" fn(&mut State) -> u32 = unsafe { std::mem::transmute(code) };
        enter(state)
    }
}
