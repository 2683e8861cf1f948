//! The block decoder.

use std::{ffi::c_int, ptr, sync::Arc};

use super::{
    Beyond, call, exclusive, image::keep, pointer, shared, store, store_event, store_space, store_time,
};
use crate::{
    Error, Settings, Status, abi,
    block::{Block, Blocks},
    memory::Image,
};

/// Allocates a block decoder.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_blk_alloc_decoder(config: *const abi::Config) -> *mut Blocks {
    pointer(|| {
        // SAFETY: the caller passes null or a valid configuration.
        let settings = unsafe { Settings::from_raw(config) }.ok()?;
        Some(Box::into_raw(Box::new(Blocks::new(settings))))
    })
}

/// Frees a block decoder.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_blk_free_decoder(decoder: *mut Blocks) {
    if !decoder.is_null() {
        // SAFETY: it came from `pt_blk_alloc_decoder`, and is not used again.
        drop(unsafe { Box::from_raw(decoder) });
    }
}

/// Synchronizes at the next PSB.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_blk_sync_forward(decoder: *mut Blocks) -> c_int {
    // SAFETY: the caller passes null or a valid decoder.
    call(|| unsafe { exclusive(decoder)? }.synchronize_forward())
}

/// Synchronizes at the PSB before the position.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_blk_sync_backward(decoder: *mut Blocks) -> c_int {
    // SAFETY: the caller passes null or a valid decoder.
    call(|| unsafe { exclusive(decoder)? }.synchronize_backward())
}

/// Synchronizes at a given PSB.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_blk_sync_set(decoder: *mut Blocks, offset: u64) -> c_int {
    // SAFETY: the caller passes null or a valid decoder.
    call(|| unsafe { exclusive(decoder)? }.synchronize_at(offset))
}

/// Returns the position in the trace.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_blk_get_offset(decoder: *const Blocks, offset: *mut u64) -> c_int {
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
pub(crate) unsafe extern "C" fn pt_blk_get_sync_offset(decoder: *const Blocks, offset: *mut u64) -> c_int {
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
pub(crate) unsafe extern "C" fn pt_blk_get_image(decoder: *mut Blocks) -> *mut Image {
    // SAFETY: the caller passes null or a valid decoder.
    let decoder = unsafe { shared(decoder) };
    decoder.map_or(ptr::null_mut(), |decoder| Arc::as_ptr(decoder.walk.image()).cast_mut())
}

/// Sets the image; null is the decoder's own.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_blk_set_image(decoder: *mut Blocks, image: *mut Image) -> c_int {
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
pub(crate) unsafe extern "C" fn pt_blk_get_config(decoder: *const Blocks) -> *const abi::Config {
    // SAFETY: the caller passes null or a valid decoder.
    unsafe { shared(decoder) }.map_or(ptr::null(), |decoder| &raw const *decoder.walk.query.settings.raw)
}

/// Returns the time.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_blk_time(
    decoder: *mut Blocks,
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
pub(crate) unsafe extern "C" fn pt_blk_core_bus_ratio(decoder: *mut Blocks, ratio: *mut u32) -> c_int {
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
pub(crate) unsafe extern "C" fn pt_blk_asid(
    decoder: *const Blocks,
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
pub(crate) unsafe extern "C" fn pt_blk_event(
    decoder: *mut Blocks,
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

/// Decodes the next block.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_blk_next(decoder: *mut Blocks, to: *mut abi::Block, size: usize) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let decoder = unsafe { exclusive(decoder)? };
        if to.is_null() {
            return Err(Error::INVALID);
        }
        let speculative = decoder.walk.speculative;
        let mut block = Block::default();
        let status = decoder.next(&mut block);
        let truncated = block.truncated;
        let raw = abi::Block {
            ip: block.ip,
            end_ip: block.end_ip,
            isid: block.isid,
            mode: block.mode as u32,
            class: block.class as u32,
            instructions: block.instructions,
            raw: truncated.map_or([0; abi::MAX_INSTRUCTION], |truncated| truncated.raw),
            size: truncated.map_or(0, |truncated| truncated.size),
            flags: u8::from(speculative) | u8::from(truncated.is_some()) << 1,
            unused: 0,
        };
        // SAFETY: the caller's structure has `size` bytes.
        unsafe { store(to, size, &raw, Beyond::Zero) };
        status
    })
}
