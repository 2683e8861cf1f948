//! Memory by address: the runtime's tables, translated code, and the program's memory.
//!
//! The functions are not `unsafe` although their addresses are numbers: the runtime's whole work is with such addresses.
//! Addresses of the runtime's tables come from `layout` and `state`; those of the program are read and written through
//! [`copy`] alone, which stops at inaccessible memory.

#![allow(unsafe_code)]

use core::marker::PhantomData;

use crate::context::Context;

/// Entries of a type, one after another in memory that is zero until it is written.
pub struct Table<T> {
    base: u64,
    /// Bits of an index that count: newer entries take the place of much older ones.
    mask: u32,
    entry: PhantomData<T>,
}

impl<T: Copy> Table<T> {
    /// The table that begins at an address in the heap.
    pub const fn new(base: u64) -> Table<T> {
        Table { base, mask: u32::MAX, entry: PhantomData }
    }

    /// The table at the address `base` of the heap, with `room` entries, a power of two.
    pub const fn ring(base: u64, room: u32) -> Table<T> {
        Table { base, mask: room - 1, entry: PhantomData }
    }

    /// The address of its first entry.
    pub fn begin(&self) -> u64 {
        self.base
    }

    fn at(&self, index: u32) -> *mut T {
        (self.base + u64::from(index & self.mask) * size_of::<T>() as u64) as *mut T
    }

    /// The entry at `index`.
    pub fn get(&self, index: u32) -> T {
        // SAFETY: the heap is mapped, all zero bytes are a valid entry of each table, and the lock is held.
        unsafe { self.at(index).read_volatile() }
    }

    /// Replaces the entry at `index`.
    pub fn set(&self, index: u32, value: T) {
        // SAFETY: as above.
        unsafe { self.at(index).write_volatile(value) }
    }
}

/// Reads memory of the runtime.
pub fn read<T: Copy>(address: u64) -> T {
    // SAFETY: callers pass addresses of mapped memory of the runtime, or of the frame of a signal that the kernel wrote.
    unsafe { (address as *const T).read_unaligned() }
}

/// Writes memory of the runtime.
pub fn write<T: Copy>(address: u64, value: T) {
    // SAFETY: as for `read`.
    unsafe { (address as *mut T).write_unaligned(value) }
}

/// Writes bytes to memory of the runtime.
pub fn write_bytes(address: u64, bytes: &[u8]) {
    // SAFETY: as for `read`.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) }
}

/// Replaces aligned code in one store, so that other threads see the old or the new.
pub fn patch4(address: u64, value: u32) {
    // SAFETY: emitted code is writable, and its branches are aligned for this.
    unsafe { core::sync::atomic::AtomicU32::from_ptr(address as *mut u32) }
        .store(value, core::sync::atomic::Ordering::Release);
}

/// As [`patch4`], eight bytes.
pub fn patch8(address: u64, value: u64) {
    // SAFETY: as for `patch4`.
    unsafe { core::sync::atomic::AtomicU64::from_ptr(address as *mut u64) }
        .store(value, core::sync::atomic::Ordering::Release);
}

/// Bytes of the runtime's memory.
pub fn bytes<'a>(address: u64, length: usize) -> &'a [u8] {
    // SAFETY: as for `read`; nothing writes there while the slice is in use, since the lock is held or the memory is this
    // thread's own.
    unsafe { core::slice::from_raw_parts(address as *const u8, length) }
}

/// Bytes of the runtime's memory, to write.
pub fn bytes_mut<'a>(address: u64, length: usize) -> &'a mut [u8] {
    // SAFETY: as for `bytes`, and there is no other reference to them.
    unsafe { core::slice::from_raw_parts_mut(address as *mut u8, length) }
}

/// A structure that is shared with other threads or with the recorder, and consists of atomics or cells.
pub fn shared<'a, T>(address: u64) -> &'a T {
    // SAFETY: `layout` places such structures, and they are never unmapped.
    unsafe { &*(address as *const T) }
}

/// The state of this thread.
pub fn context<'a>() -> &'a Context {
    let address: u64;
    // SAFETY: each recorded thread's `gs` points to its state, which contains its own address.
    unsafe {
        core::arch::asm!("mov {}, gs:[{offset}]", out(reg) address,
            offset = const core::mem::offset_of!(Context, address), options(nostack, readonly, preserves_flags));
    }
    shared(address)
}

/// Copies between the program's memory and the runtime's. Returns the number of bytes that were not copied because
/// memory is inaccessible.
pub fn copy(to: u64, from: u64, length: u64) -> u64 {
    // SAFETY: a fault in this function ends it; see `signal`.
    unsafe { crate::stubs::hodo_copy(to, from, length) }
}

/// Reads a word of the program.
pub fn word(address: u64) -> Option<u64> {
    let mut value = 0u64;
    (copy(&raw mut value as u64, address, 8) == 0).then_some(value)
}

/// Writes a word of the program.
pub fn set_word(address: u64, value: u64) -> bool {
    copy(address, &raw const value as u64, 8) == 0
}

/// Words of the runtime's memory.
pub fn words<'a>(address: u64, count: usize) -> &'a [u32] {
    // SAFETY: as for `bytes`; logs are aligned.
    unsafe { core::slice::from_raw_parts(address as *const u32, count) }
}

/// Words of the runtime's memory, to write.
pub fn words_mut<'a>(address: u64, count: usize) -> &'a mut [u32] {
    // SAFETY: as for `bytes_mut`; private memory is aligned.
    unsafe { core::slice::from_raw_parts_mut(address as *mut u32, count) }
}

/// A word that other threads or processes change.
pub fn atomic<'a>(address: u64) -> &'a core::sync::atomic::AtomicU32 {
    // SAFETY: it lies in the arena, and is aligned.
    unsafe { core::sync::atomic::AtomicU32::from_ptr(address as *mut u32) }
}
