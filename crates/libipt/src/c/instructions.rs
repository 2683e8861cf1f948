//! The instruction flow decoder.

use std::{ffi::c_int, ptr, sync::Arc};

use super::{
    Beyond, call, exclusive, image::keep, pointer, shared, store, store_event, store_space, store_time,
};
use crate::{Error, Settings, Status, abi, flow::Flow, instruction::Instruction, memory::Image};

/// Allocates an instruction flow decoder.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_alloc_decoder(config: *const abi::Config) -> *mut Flow {
    pointer(|| {
        // SAFETY: the caller passes null or a valid configuration.
        let settings = unsafe { Settings::from_raw(config) }.ok()?;
        Some(Box::into_raw(Box::new(Flow::new(settings))))
    })
}

/// Frees an instruction flow decoder.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_free_decoder(decoder: *mut Flow) {
    if !decoder.is_null() {
        // SAFETY: it came from `pt_insn_alloc_decoder`, and is not used again.
        drop(unsafe { Box::from_raw(decoder) });
    }
}

/// Synchronizes at the next PSB.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_sync_forward(decoder: *mut Flow) -> c_int {
    // SAFETY: the caller passes null or a valid decoder.
    call(|| unsafe { exclusive(decoder)? }.synchronize_forward())
}

/// Synchronizes at the PSB before the position.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_sync_backward(decoder: *mut Flow) -> c_int {
    // SAFETY: the caller passes null or a valid decoder.
    call(|| unsafe { exclusive(decoder)? }.synchronize_backward())
}

/// Synchronizes at a given PSB.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_sync_set(decoder: *mut Flow, offset: u64) -> c_int {
    // SAFETY: the caller passes null or a valid decoder.
    call(|| unsafe { exclusive(decoder)? }.synchronize_at(offset))
}

/// Returns the position in the trace.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_get_offset(decoder: *const Flow, offset: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (decoder, offset) = unsafe { (shared(decoder)?, exclusive(offset)?) };
        *offset = decoder.walk.query.offset()? as u64;
        Ok(Status::NONE)
    })
}

/// Returns the position of the last synchronization.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_get_sync_offset(decoder: *const Flow, offset: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (decoder, offset) = unsafe { (shared(decoder)?, exclusive(offset)?) };
        *offset = decoder.walk.query.synchronized_offset()? as u64;
        Ok(Status::NONE)
    })
}

/// Returns the image.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_get_image(decoder: *mut Flow) -> *mut Image {
    // SAFETY: the caller passes null or a valid decoder.
    let decoder = unsafe { shared(decoder) };
    decoder.map_or(ptr::null_mut(), |decoder| Arc::as_ptr(decoder.walk.image()).cast_mut())
}

/// Sets the image; null is the decoder's own.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_set_image(decoder: *mut Flow, image: *mut Image) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        unsafe { exclusive(decoder)?.walk.set_image(keep(image)) };
        Ok(Status::NONE)
    })
}

/// Returns the configuration.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_get_config(decoder: *const Flow) -> *const abi::Config {
    // SAFETY: the caller passes null or a valid decoder.
    unsafe { shared(decoder) }.map_or(ptr::null(), |decoder| &raw const *decoder.walk.query.settings.raw)
}

/// Returns the time.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_time(
    decoder: *mut Flow,
    time: *mut u64,
    lost_mtc: *mut u32,
    lost_cyc: *mut u32,
) -> c_int {
    // SAFETY: the caller passes null or valid pointers.
    call(|| unsafe { store_time(shared(decoder)?.walk.query.time(), time, lost_mtc, lost_cyc) })
}

/// Returns the ratio of core to bus clock.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_core_bus_ratio(decoder: *mut Flow, ratio: *mut u32) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (decoder, ratio) = unsafe { (shared(decoder)?, exclusive(ratio)?) };
        *ratio = decoder.walk.query.ratio()?;
        Ok(Status::NONE)
    })
}

/// Returns the address space.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_asid(
    decoder: *const Flow,
    asid: *mut abi::Asid,
    size: usize,
) -> c_int {
    // SAFETY: the caller passes null or valid pointers.
    call(|| unsafe { store_space(asid, size, &shared(decoder)?.walk.space) })
}

/// Applies the pending event and returns it.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_event(
    decoder: *mut Flow,
    event: *mut abi::Event,
    size: usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let decoder = unsafe { exclusive(decoder)? };
        if event.is_null() {
            return Err(Error::INVALID);
        }
        let mut found = None;
        let status = decoder.event(&mut found);
        // SAFETY: the caller's structure has `size` bytes.
        unsafe { store_event(event, size, found) };
        status
    })
}

/// Decodes the next instruction.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_insn_next(
    decoder: *mut Flow,
    to: *mut abi::Instruction,
    size: usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let decoder = unsafe { exclusive(decoder)? };
        if to.is_null() {
            return Err(Error::INVALID);
        }
        decoder.check_enabled()?;
        let speculative = decoder.walk.speculative;
        let mut instruction = Instruction::default();
        let status = decoder.next(&mut instruction);
        let raw = abi::Instruction {
            ip: instruction.ip,
            isid: instruction.isid,
            mode: instruction.mode as u32,
            class: instruction.class as u32,
            raw: instruction.raw,
            size: instruction.size,
            flags: u32::from(speculative) | u32::from(instruction.is_truncated) << 1,
        };
        // SAFETY: the caller's structure has `size` bytes.
        unsafe { store(to, size, &raw, Beyond::Zero) };
        status
    })
}
