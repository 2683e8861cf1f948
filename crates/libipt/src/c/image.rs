//! Images and section caches. Both are shared with decoders, which keep them alive.

use std::{
    ffi::{c_char, c_int, c_void},
    ptr,
    sync::Arc,
};

use super::{call, count, pointer, shared, space, text};
use crate::{
    Error, Status, abi,
    memory::{Image, Reader, Section, SectionCache, Space},
};

impl Reader {
    /// Reads memory.
    pub(crate) fn call(&self, space: &Space, address: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let asid = space.raw();
        let context = self.context as *mut c_void;
        // SAFETY: the header documents this call; the buffer has so many bytes.
        let read =
            unsafe { (self.read)(buffer.as_mut_ptr(), buffer.len(), &raw const asid, address, context) };
        let read = usize::try_from(read).map_err(|_| Error(read))?;
        if read > buffer.len() { Err(Error::INTERNAL) } else { Ok(read) }
    }
}

/// Allocates a section cache.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_iscache_alloc(name: *const c_char) -> *mut SectionCache {
    // SAFETY: the caller passes null or a text.
    pointer(|| Some(Box::into_raw(Box::new(SectionCache::new(unsafe { text(name) })))))
}

/// Frees a section cache.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_iscache_free(cache: *mut SectionCache) {
    if !cache.is_null() {
        // SAFETY: it came from `pt_iscache_alloc`, and is not used again.
        drop(unsafe { Box::from_raw(cache) });
    }
}

/// Sets how many bytes a section cache keeps mapped.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_iscache_set_limit(cache: *mut SectionCache, limit: u64) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or a valid cache.
        unsafe { shared(cache)? }.set_limit(limit);
        Ok(Status::NONE)
    })
}

/// Returns a section cache's name.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_iscache_name(cache: *const SectionCache) -> *const c_char {
    // SAFETY: the caller passes null or a valid cache.
    let name = unsafe { shared(cache) }.ok().and_then(SectionCache::name);
    name.map_or(ptr::null(), |name| name.as_ptr())
}

/// Adds a part of a file to a section cache. Returns its number.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_iscache_add_file(
    cache: *mut SectionCache,
    file: *const c_char,
    offset: u64,
    size: u64,
    address: u64,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes null, or a valid cache and a text.
        let (cache, file) = unsafe { (shared(cache)?, text(file).ok_or(Error::INVALID)?) };
        cache.add_file(file, offset, size, address).map(Status)
    })
}

/// Reads from a section of a cache. Returns the number of bytes.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_iscache_read(
    cache: *mut SectionCache,
    buffer: *mut u8,
    size: u64,
    isid: c_int,
    address: u64,
) -> c_int {
    count(|| {
        // SAFETY: the caller passes null or a valid cache.
        let cache = unsafe { shared(cache)? };
        if buffer.is_null() || size == 0 {
            return Err(Error::INVALID);
        }
        let size = size.min(u16::MAX.into()) as usize;
        // SAFETY: the caller's buffer has at least so many bytes; they are written before they are read.
        let buffer = unsafe {
            ptr::write_bytes(buffer, 0, size);
            std::slice::from_raw_parts_mut(buffer, size)
        };
        cache.read(isid, address, buffer)
    })
}

/// Allocates an image.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_image_alloc(name: *const c_char) -> *mut Image {
    // SAFETY: the caller passes null or a text.
    pointer(|| Some(Arc::into_raw(Arc::new(Image::new(unsafe { text(name) }))).cast_mut()))
}

/// Frees an image. Decoders that use it keep it.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_image_free(image: *mut Image) {
    if !image.is_null() {
        // SAFETY: it came from `pt_image_alloc`, and the caller does not use it again.
        drop(unsafe { Arc::from_raw(image.cast_const()) });
    }
}

/// Returns a handle of a caller's image for a decoder to keep.
///
/// # Safety
/// The pointer is null, or from `pt_image_alloc` or from a decoder.
pub(super) unsafe fn keep(image: *mut Image) -> Option<Arc<Image>> {
    if image.is_null() {
        return None;
    }
    // SAFETY: all images are in an `Arc`, of which the caller or a decoder holds one handle.
    unsafe {
        Arc::increment_strong_count(image.cast_const());
        Some(Arc::from_raw(image.cast_const()))
    }
}

/// Returns an image's name.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_image_name(image: *const Image) -> *const c_char {
    // SAFETY: the caller passes null or a valid image.
    let name = unsafe { shared(image) }.ok().and_then(Image::name);
    name.map_or(ptr::null(), |name| name.as_ptr())
}

/// Adds a part of a file to an image.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_image_add_file(
    image: *mut Image,
    file: *const c_char,
    offset: u64,
    size: u64,
    asid: *const abi::Asid,
    address: u64,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes null, or valid pointers and a text.
        let (image, file) = unsafe { (shared(image)?, text(file).ok_or(Error::INVALID)?) };
        let section = Section::new(file, offset, size)?;
        image.add(Arc::new(section), unsafe { space(asid) }, address, 0); // SAFETY: as above.
        Ok(Status::NONE)
    })
}

/// Adds a section of a cache to an image.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_image_add_cached(
    image: *mut Image,
    cache: *mut SectionCache,
    isid: c_int,
    asid: *const abi::Asid,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (image, cache) = unsafe { (shared(image)?, shared(cache)?) };
        let (section, address) = cache.section(isid)?;
        image.add(section, unsafe { space(asid) }, address, isid); // SAFETY: as above.
        Ok(Status::NONE)
    })
}

/// Adds the sections of an image to another one. Returns how many could not be added.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_image_copy(image: *mut Image, from: *const Image) -> c_int {
    call(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (image, from) = unsafe { (shared(image)?, shared(from)?) };
        image.copy(from);
        Ok(Status::NONE)
    })
}

/// Removes the sections of a file from an image. Returns their number.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_image_remove_by_filename(
    image: *mut Image,
    file: *const c_char,
    asid: *const abi::Asid,
) -> c_int {
    count(|| {
        // SAFETY: the caller passes null, or valid pointers and a text.
        let (image, file) = unsafe { (shared(image)?, text(file).ok_or(Error::INVALID)?) };
        let space = unsafe { space(asid) }; // SAFETY: as above.
        Ok(image.remove(space, |section| section.file() == file))
    })
}

/// Removes the sections of an address space from an image. Returns their number.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_image_remove_by_asid(image: *mut Image, asid: *const abi::Asid) -> c_int {
    count(|| {
        // SAFETY: the caller passes null or valid pointers.
        let (image, space) = unsafe { (shared(image)?, space(asid)) };
        Ok(image.remove(space, |_| true))
    })
}

/// Sets the function that reads memory beyond an image's sections.
///
/// # Safety
/// See the [module](crate).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pt_image_set_callback(
    image: *mut Image,
    callback: Option<abi::ReadMemory>,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let reader = callback.map(|read| Reader { read, context: context as usize });
        // SAFETY: the caller passes null or a valid image.
        unsafe { shared(image)? }.set_reader(reader);
        Ok(Status::NONE)
    })
}
