//! The functions of `intel-pt.h`. Here, and only here, pointers of C become references; panics do not pass.
//!
//! A caller must pass pointers as the header documents them: null, or valid for what the function does with it. Then each
//! function is sound. Two threads may not use a decoder at once; images and section caches may be shared.

#![allow(unsafe_code)]

pub(crate) mod abi;
mod blocks;
mod config;
mod image;
mod instructions;
pub(crate) mod map;
mod packets;
mod query;
#[cfg(test)]
mod tests;

use std::{
    ffi::{CStr, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{Error, Status, event::Event, memory::Space};

/// Calls a function and returns its result as C expects it. A panic is an internal error.
fn call(function: impl FnOnce() -> Result<Status, Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(Status(status))) => status,
        Ok(Err(Error(error))) => error,
        Err(_) => Error::INTERNAL.0,
    }
}

/// As [`call`], for a function that returns a number.
fn count(function: impl FnOnce() -> Result<usize, Error>) -> c_int {
    call(|| function().map(|count| Status(c_int::try_from(count).unwrap_or(c_int::MAX))))
}

/// Calls a function that returns a pointer; null if it panics or fails.
fn pointer<T>(function: impl FnOnce() -> Option<*mut T>) -> *mut T {
    catch_unwind(AssertUnwindSafe(function)).ok().flatten().unwrap_or(std::ptr::null_mut())
}

/// Returns what a pointer points to.
///
/// # Safety
/// The pointer is null or valid, and nothing else uses what it points to.
unsafe fn exclusive<'a, T>(pointer: *mut T) -> Result<&'a mut T, Error> {
    // SAFETY: by this function's own condition.
    unsafe { pointer.as_mut() }.ok_or(Error::INVALID)
}

/// Returns what a pointer points to.
///
/// # Safety
/// The pointer is null or valid, and nothing changes what it points to.
unsafe fn shared<'a, T>(pointer: *const T) -> Result<&'a T, Error> {
    // SAFETY: by this function's own condition.
    unsafe { pointer.as_ref() }.ok_or(Error::INVALID)
}

/// Returns a text, if there is one.
///
/// # Safety
/// The pointer is null, or to a text with a zero at its end.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: by this function's own condition.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Stores the first `size` bytes of a structure. If the caller's is longer, `beyond` says what becomes of the rest.
///
/// # Safety
/// The pointer is valid for writes of `size` bytes.
unsafe fn store<T: Copy>(to: *mut T, size: usize, value: &T, beyond: Beyond) {
    let known = size.min(size_of::<T>());
    // SAFETY: both are valid for `known` bytes, and the caller's for `size`. They do not overlap: one is ours.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), to.cast::<u8>(), known);
        if beyond == Beyond::Zero {
            std::ptr::write_bytes(to.cast::<u8>().add(known), 0, size - known);
        }
    }
}

/// What happens to the part of a caller's structure that this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beyond {
    Keep,
    Zero,
}

/// Returns an address space given by a caller; none means any.
///
/// # Safety
/// The pointer is null or valid for the bytes that its size names.
unsafe fn space(asid: *const abi::Asid) -> Space {
    let mut known = Space::default().raw();
    if !asid.is_null() {
        // SAFETY: the first field is the number of valid bytes.
        unsafe {
            let size = (*asid).size.min(size_of::<abi::Asid>());
            let to = std::ptr::from_mut(&mut known).cast::<u8>();
            std::ptr::copy_nonoverlapping(asid.cast::<u8>(), to, size);
        }
    }
    Space::of_fields(known.cr3, known.vmcs)
}

/// Stores an address space.
///
/// # Safety
/// The pointer is null or valid for writes of `size` bytes.
unsafe fn store_space(to: *mut abi::Asid, size: usize, space: &Space) -> Result<Status, Error> {
    if to.is_null() || size < size_of::<usize>() {
        return Err(Error::INVALID);
    }
    let size = size.min(size_of::<abi::Asid>());
    let raw = abi::Asid { size, ..space.raw() };
    // SAFETY: by this function's own condition.
    unsafe { store(to, size, &raw, Beyond::Keep) };
    Ok(Status::NONE)
}

/// Stores an event, as far as the caller's structure has room.
///
/// # Safety
/// The pointer is valid for writes of `size` bytes.
unsafe fn store_event(to: *mut abi::Event, size: usize, event: Option<Event>) {
    if let Some(event) = event {
        let size = size.min(size_of::<abi::Event>());
        // SAFETY: by this function's own condition.
        unsafe { store(to, size, &event.raw(), Beyond::Keep) };
    }
}

/// Stores a time and what was lost of it, as far as the caller asks. Returns an error if there is no timestamp yet.
///
/// # Safety
/// The pointers are null or valid for writes.
unsafe fn store_time(
    reading: crate::time::Reading,
    time: *mut u64,
    lost_mtc: *mut u32,
    lost_cyc: *mut u32,
) -> Result<Status, Error> {
    // SAFETY: by this function's own condition.
    unsafe {
        *exclusive(time)? = reading.tsc;
        if let Ok(lost) = exclusive(lost_mtc) {
            *lost = reading.lost_mtc;
        }
        if let Ok(lost) = exclusive(lost_cyc) {
            *lost = reading.lost_cyc;
        }
    }
    if reading.is_absolute { Ok(Status::NONE) } else { Err(Error::NO_TIME) }
}
