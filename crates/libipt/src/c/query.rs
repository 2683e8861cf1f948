//! The query decoder.

use std::{ffi::c_int, mem::offset_of, ptr};

use super::{call, exclusive, pointer, shared, store_event, store_time};
use crate::{
    Error, Settings, Status, abi,
    event::{Event, What},
    query::{Query, Start},
};

/// Allocates a query decoder.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_qry_alloc_decoder(config: *const abi::Config) -> *mut Query {
    pointer(|| {
        // SAFETY: the caller passes null or a valid configuration.
        let settings = unsafe { Settings::from_raw(config) }.ok()?;
        Some(Box::into_raw(Box::new(Query::new(settings))))
    })
}

/// Frees a query decoder.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_qry_free_decoder(decoder: *mut Query) {
    if !decoder.is_null() {
        // SAFETY: it came from `pt_qry_alloc_decoder`, and is not used again.
        drop(unsafe { Box::from_raw(decoder) });
    }
}

/// Stores where a segment begins, if the caller wants to know.
///
/// # Safety
/// The pointer is null or valid for writes.
unsafe fn store_start(start: Start, ip: *mut u64) -> Status {
    // SAFETY: by this function's own condition.
    match unsafe { exclusive(ip) } {
        Ok(ip) => {
            *ip = start.ip;
            start.status()
        }
        Err(_) => start.status_without_ip(),
    }
}

/// Synchronizes at the next PSB.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_qry_sync_forward(decoder: *mut Query, ip: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let start = unsafe { exclusive(decoder)? }.synchronize_forward()?;
        Ok(unsafe { store_start(start, ip) }) // SAFETY: as above.
    })
}

/// Synchronizes at the PSB before the position.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_qry_sync_backward(decoder: *mut Query, ip: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let start = unsafe { exclusive(decoder)? }.synchronize_backward()?;
        // SAFETY: as above.
        if let Ok(ip) = unsafe { exclusive(ip) } {
            *ip = start;
        }
        Ok(Status::NONE)
    })
}

/// Synchronizes at a given PSB.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_qry_sync_set(decoder: *mut Query, ip: *mut u64, offset: u64) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let start = unsafe { exclusive(decoder)? }.synchronize_at(offset)?;
        Ok(unsafe { store_start(start, ip) }) // SAFETY: as above.
    })
}

/// Returns a query decoder's position.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_qry_get_offset(decoder: *const Query, offset: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (decoder, offset) = unsafe { (shared(decoder)?, exclusive(offset)?) };
        *offset = decoder.offset()? as u64;
        Ok(Status::NONE)
    })
}

/// Returns the position of a query decoder's last synchronization.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_qry_get_sync_offset(decoder: *const Query, offset: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (decoder, offset) = unsafe { (shared(decoder)?, exclusive(offset)?) };
        *offset = decoder.synchronized_offset()? as u64;
        Ok(Status::NONE)
    })
}

/// Returns a query decoder's configuration.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_qry_get_config(decoder: *const Query) -> *const abi::Config {
    // SAFETY: the caller passes null or a valid decoder.
    unsafe { shared(decoder) }.map_or(ptr::null(), |decoder| &raw const *decoder.settings.raw)
}

/// Tells whether the next conditional branch is taken.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_qry_cond_branch(decoder: *mut Query, taken: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (decoder, taken) = unsafe { (exclusive(decoder)?, exclusive(taken)?) };
        let answer = decoder.conditional_branch()?;
        *taken = answer.value.into();
        Ok(answer.status)
    })
}

/// Returns the target of the next indirect branch.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_qry_indirect_branch(decoder: *mut Query, ip: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (decoder, ip) = unsafe { (exclusive(decoder)?, exclusive(ip)?) };
        decoder.indirect_branch(ip)
    })
}

/// Returns the next event.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_qry_event(
    decoder: *mut Query,
    event: *mut abi::Event,
    size: usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let decoder = unsafe { exclusive(decoder)? };
        if event.is_null() || size < offset_of!(abi::Event, variant) {
            return Err(Error::INVALID);
        }
        let mut found = Event::new(What::Stop);
        let status = decoder.event(&mut found)?;
        // SAFETY: the caller's structure has `size` bytes.
        unsafe { store_event(event, size, Some(found)) };
        Ok(status)
    })
}

/// Returns the time at the last answer.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_qry_time(
    decoder: *mut Query,
    time: *mut u64,
    lost_mtc: *mut u32,
    lost_cyc: *mut u32,
) -> c_int {
    // SAFETY: the caller passes null or valid pointers.
    call(|| unsafe { store_time(shared(decoder)?.time(), time, lost_mtc, lost_cyc) })
}

/// Returns the ratio of core to bus clock at the last answer.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_qry_core_bus_ratio(decoder: *mut Query, ratio: *mut u32) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (decoder, ratio) = unsafe { (shared(decoder)?, exclusive(ratio)?) };
        *ratio = decoder.ratio()?;
        Ok(Status::NONE)
    })
}
