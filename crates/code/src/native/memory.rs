//! Executable memory, and the call into it.

use std::io;

use super::code::{CodeOffset, Target};
use crate::{BranchBatch, FunctionRun, ReturnStack};

/// State of a walk. Native code accesses it by offset, hence the C layout.
#[repr(C)]
pub(super) struct State {
    /// The branch batch being followed.
    pub(super) batch: *mut BranchBatch,
    /// Instructions so far, as function runs count them.
    pub(super) instructions: u64,
    /// The open function run.
    pub(super) function_run: *mut FunctionRun,
    /// The newest call, in bytes of the codes of [`ReturnStack`].
    pub(super) top: u64,
    pub(super) returns: *mut ReturnStack,
    /// Base address of the code, and the address to start at.
    pub(super) base: u64,
    pub(super) target: u64,
    /// Cached targets of indirect branches.
    pub(super) targets: *const Target,
    /// The checked entry of the block at the exit.
    pub(super) checked: CodeOffset,
}

/// Creates a file without a name. `flags`: of `memfd_create`.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[allow(unsafe_code)]
fn memory_file(flags: libc::c_uint) -> io::Result<std::fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the name is a C string.
    let descriptor = unsafe { libc::memfd_create(c"code".as_ptr(), flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned the descriptor, which nobody else has.
    Ok(unsafe { std::fs::File::from_raw_fd(descriptor) })
}

/// Memory with two mappings, one writable and one executable, so that no mapping is both.
#[derive(Debug)]
pub(super) struct Memory {
    write: memmap2::MmapMut,
    run: memmap2::Mmap,
}

impl Memory {
    /// Maps `size` bytes.
    ///
    /// # Errors
    /// The system's error if it grants no memory, or no executable memory.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    #[allow(unsafe_code)]
    pub(super) fn new(size: usize) -> io::Result<Memory> {
        // Linux before 6.3 does not know `MFD_EXEC`.
        let file =
            memory_file(libc::MFD_CLOEXEC | libc::MFD_EXEC).or_else(|_| memory_file(libc::MFD_CLOEXEC))?;
        file.set_len(size as u64)?;
        // SAFETY: the file has no name and is closed here, so nothing else has it. The processor reads what is
        // written through one mapping through the other, not through references.
        let (write, run) = unsafe {
            (memmap2::MmapOptions::new().map_mut(&file)?, memmap2::MmapOptions::new().map_exec(&file)?)
        };
        Ok(Memory { write, run })
    }

    /// Fails: code generation supports x86-64 Linux only.
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    pub(super) fn new(_size: usize) -> io::Result<Memory> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn size(&self) -> usize {
        self.write.len()
    }

    /// Returns the bytes in a range of offsets.
    #[cfg(test)]
    pub(super) fn bytes(&self, offsets: std::ops::Range<u32>) -> &[u8] {
        &self.write[offsets.start as usize..offsets.end as usize]
    }

    /// Returns the byte at an offset.
    pub(super) fn byte(&self, offset: u32) -> u8 {
        self.write[offset as usize]
    }

    /// Returns the 32-bit word at an offset.
    pub(super) fn word(&self, offset: u32) -> u32 {
        let bytes = self.write[offset as usize..].first_chunk().copied();
        u32::from_le_bytes(bytes.expect("code does not end within a word"))
    }

    /// Writes bytes at an offset.
    #[inline]
    pub(super) fn put(&mut self, offset: u32, bytes: &[u8]) {
        self.write[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the address at which the code of an offset runs.
    pub(super) fn address(&self, offset: u32) -> u64 {
        self.run.as_ptr() as u64 + u64::from(offset)
    }

    /// Calls the code at an offset.
    ///
    /// # Safety
    /// The offset holds whole instructions that end in a return, and that write only to registers that a function may
    /// change, and to what the state points to.
    #[inline]
    #[allow(unsafe_code)]
    pub(super) unsafe fn call(&self, offset: u32, state: &mut State) -> u32 {
        let code = self.run.as_ptr().wrapping_add(offset as usize);
        // SAFETY: the caller guarantees valid code there.
        let enter: extern "sysv64" fn(&mut State) -> u32 = unsafe { std::mem::transmute(code) };
        enter(state)
    }
}
