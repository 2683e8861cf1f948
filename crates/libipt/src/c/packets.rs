//! The packet encoder and decoder.

use std::{ffi::c_int, ptr};

use super::{Beyond, call, count, exclusive, pointer, shared, store};
use crate::{
    Error, Settings, Status, abi,
    encode::{encode, to_raw},
    query::Scan,
    synchronize,
};

/// A packet encoder.
#[derive(Debug)]
pub(crate) struct Encoder {
    settings: Settings,
    position: usize,
}

/// A packet decoder.
#[derive(Debug)]
pub(crate) struct PacketDecoder {
    settings: Settings,
    position: Option<usize>,
    synchronized: Option<usize>,
}

/// Allocates a packet encoder.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_alloc_encoder(config: *const abi::Config) -> *mut Encoder {
    pointer(|| {
        // SAFETY: the caller passes null or a valid configuration.
        let settings = unsafe { Settings::from_raw(config) }.ok()?;
        Some(Box::into_raw(Box::new(Encoder { settings, position: 0 })))
    })
}

/// Frees a packet encoder.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_free_encoder(encoder: *mut Encoder) {
    if !encoder.is_null() {
        // SAFETY: it came from `pt_alloc_encoder`, and is not used again.
        drop(unsafe { Box::from_raw(encoder) });
    }
}

/// Sets an encoder's position.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_enc_sync_set(encoder: *mut Encoder, offset: u64) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or a valid encoder.
        let encoder = unsafe { exclusive(encoder)? };
        encoder.position = within(&encoder.settings, offset)?;
        Ok(Status::NONE)
    })
}

fn within(settings: &Settings, offset: u64) -> Result<usize, Error> {
    let position = usize::try_from(offset).map_err(|_| Error::END)?;
    if position > settings.trace.len() { Err(Error::END) } else { Ok(position) }
}

/// Returns an encoder's position.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_enc_get_offset(encoder: *const Encoder, offset: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (encoder, offset) = unsafe { (shared(encoder)?, exclusive(offset)?) };
        *offset = encoder.position as u64;
        Ok(Status::NONE)
    })
}

/// Returns an encoder's configuration.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_enc_get_config(encoder: *const Encoder) -> *const abi::Config {
    // SAFETY: the caller passes null or a valid encoder.
    unsafe { shared(encoder) }.map_or(ptr::null(), |encoder| &raw const *encoder.settings.raw)
}

/// Encodes a packet. Returns its size.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_enc_next(encoder: *mut Encoder, packet: *const abi::Packet) -> c_int {
    count(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (encoder, packet) = unsafe { (exclusive(encoder)?, shared(packet)?) };
        let raw = &encoder.settings.raw;
        let bytes = encode(packet, encoder.settings.trace.len() - encoder.position)?;
        // SAFETY: the bytes fit into the caller's buffer, and an encoder never reads it.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), raw.begin.add(encoder.position), bytes.len());
        }
        encoder.position += bytes.len();
        Ok(bytes.len())
    })
}

/// Allocates a packet decoder.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_pkt_alloc_decoder(config: *const abi::Config) -> *mut PacketDecoder {
    pointer(|| {
        // SAFETY: the caller passes null or a valid configuration.
        let settings = unsafe { Settings::from_raw(config) }.ok()?;
        Some(Box::into_raw(Box::new(PacketDecoder { settings, position: None, synchronized: None })))
    })
}

/// Frees a packet decoder.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_pkt_free_decoder(decoder: *mut PacketDecoder) {
    if !decoder.is_null() {
        // SAFETY: it came from `pt_pkt_alloc_decoder`, and is not used again.
        drop(unsafe { Box::from_raw(decoder) });
    }
}

impl PacketDecoder {
    fn synchronize(&mut self, psb: usize) -> Status {
        self.position = Some(psb);
        self.synchronized = Some(psb);
        Status::NONE
    }
}

/// Synchronizes at the next PSB.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_pkt_sync_forward(decoder: *mut PacketDecoder) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or a valid decoder.
        let decoder = unsafe { exclusive(decoder)? };
        let position = decoder.position.unwrap_or(0);
        let psb = synchronize::forward(decoder.settings.trace, position, decoder.synchronized)?;
        Ok(decoder.synchronize(psb))
    })
}

/// Synchronizes at the PSB before the position.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_pkt_sync_backward(decoder: *mut PacketDecoder) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or a valid decoder.
        let decoder = unsafe { exclusive(decoder)? };
        let from = decoder.position.unwrap_or(decoder.settings.trace.len());
        let psb = synchronize::backward(decoder.settings.trace, from)?;
        Ok(decoder.synchronize(psb))
    })
}

/// Sets a packet decoder's position.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_pkt_sync_set(decoder: *mut PacketDecoder, offset: u64) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or a valid decoder.
        let decoder = unsafe { exclusive(decoder)? };
        let position = within(&decoder.settings, offset)?;
        Ok(decoder.synchronize(position))
    })
}

/// Returns a packet decoder's position.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_pkt_get_offset(decoder: *const PacketDecoder, offset: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (decoder, offset) = unsafe { (shared(decoder)?, exclusive(offset)?) };
        *offset = decoder.position.ok_or(Error::NO_SYNC)? as u64;
        Ok(Status::NONE)
    })
}

/// Returns the position of a packet decoder's last synchronization.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_pkt_get_sync_offset(
    decoder: *const PacketDecoder,
    offset: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (decoder, offset) = unsafe { (shared(decoder)?, exclusive(offset)?) };
        *offset = decoder.synchronized.ok_or(Error::NO_SYNC)? as u64;
        Ok(Status::NONE)
    })
}

/// Returns a packet decoder's configuration.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_pkt_get_config(decoder: *const PacketDecoder) -> *const abi::Config {
    // SAFETY: the caller passes null or a valid decoder.
    unsafe { shared(decoder) }.map_or(ptr::null(), |decoder| &raw const *decoder.settings.raw)
}

/// Decodes the next packet. Returns its size.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_pkt_next(
    decoder: *mut PacketDecoder,
    packet: *mut abi::Packet,
    size: usize,
) -> c_int {
    count(|| {
        // SAFETY: the caller passes null or valid pointers.
        let decoder = unsafe { exclusive(decoder)? };
        if packet.is_null() {
            return Err(Error::INVALID);
        }
        let position = decoder.position.ok_or(Error::NO_SYNC)?;
        let scanned = Scan::new(&decoder.settings, position).next()?;
        let at = decoder.settings.trace[position..].as_ptr() as usize;
        let raw = to_raw(scanned.kind, scanned.content, scanned.size, at);
        // SAFETY: the caller's structure has `size` bytes.
        unsafe { store(packet, size, &raw, Beyond::Zero) };
        decoder.position = Some(scanned.end);
        Ok(scanned.size)
    })
}
