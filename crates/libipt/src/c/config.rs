//! Version, errors, configuration.

use std::{
    ffi::{c_char, c_int},
    mem::{offset_of, zeroed},
    ptr,
};

use super::{call, exclusive, shared};
use crate::{
    Error, Settings, Status, abi, errata_of,
    error::text,
    packet::{Content, Sized},
};

/// `pcv_intel`.
const INTEL: u32 = 1;

/// Returns the version of libipt whose interface this is.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pt_library_version() -> abi::Version {
    abi::Version { major: 2, minor: 0, patch: 5, build: 0, extension: c"-hodoscope".as_ptr() }
}

/// Returns the text of an error code.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pt_errstr(code: u32) -> *const c_char {
    text(code).as_ptr()
}

/// Determines the errata of a processor.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_cpu_errata(errata: *mut abi::Errata, cpu: *const abi::Cpu) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (errata, cpu) = unsafe { (exclusive(errata)?, shared(cpu)?) };
        *errata = abi::Errata { bits: 0, reserved: [0; 15] };
        if cpu.vendor != INTEL {
            return Err(Error::BAD_CPU);
        }
        errata.bits = errata_of(cpu.family, cpu.model)?;
        Ok(Status::NONE)
    })
}

impl Settings {
    /// Copies a caller's configuration.
    ///
    /// # Safety
    /// The pointer is null or valid for the bytes that its size names. The trace stays valid, and nothing writes it, as long
    /// as a decoder uses it.
    pub(crate) unsafe fn from_raw(config: *const abi::Config) -> Result<Settings, Error> {
        if config.is_null() {
            return Err(Error::INVALID);
        }
        // SAFETY: the size comes first: the number of valid bytes. All zeros are a valid structure: integers, null
        // pointers and no function.
        let mut raw: abi::Config = unsafe { zeroed() };
        let size = unsafe { (*config).size }; // SAFETY: as above.
        if size < offset_of!(abi::Config, decode) {
            return Err(Error::BAD_CONFIG);
        }
        let size = size.min(size_of::<abi::Config>());
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(config.cast::<u8>(), ptr::from_mut(&mut raw).cast::<u8>(), size) };
        raw.size = size;
        if raw.begin.is_null() || raw.end < raw.begin {
            return Err(Error::BAD_CONFIG);
        }
        let length = raw.end as usize - raw.begin as usize;
        // SAFETY: by this function's own condition.
        let trace = unsafe { std::slice::from_raw_parts(raw.begin, length) };
        Ok(Settings { raw: Box::new(raw), trace })
    }

    /// Reads a packet that only the caller's callback knows.
    pub(crate) fn unknown_packet(&self, position: usize) -> Result<Sized, Error> {
        let callback = self.raw.decode.ok_or(Error::BAD_OPCODE)?;
        let bytes = self.trace[position..].as_ptr();
        let mut unknown = abi::UnknownPacket { bytes, private: ptr::null_mut() };
        // SAFETY: the header documents this call; all pointers are valid while it lasts.
        let size =
            unsafe { callback(&raw mut unknown, &raw const *self.raw, bytes, self.raw.decode_context) };
        let size = usize::try_from(size).map_err(|_| Error(size))?;
        if size > u8::MAX.into() {
            return Err(Error::INVALID);
        }
        if size > self.trace.len() - position {
            return Err(Error::END);
        }
        Ok(Sized { content: Content::Unknown { private: unknown.private as usize }, size })
    }
}
