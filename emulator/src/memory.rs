//! The emulated program's memory, at unchecked addresses that the program passes.

/// The longest string that is read, as the kernel limits paths and arguments (MAX_ARG_STRLEN).
const LONGEST: usize = 128 << 10;
const PAGE: u64 = 4096;

/// Fills `buffer` from `address`; `false` if that is unreadable. Guest addresses are host addresses: [`crate::plugin`]
/// checks that when the program starts.
pub(crate) fn read(address: u64, buffer: &mut [u8]) -> bool {
    let length = buffer.len();
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: length };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length };
    // SAFETY: both vectors describe `length` bytes; the kernel checks the remote one.
    let count = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    count == length as isize
}

/// The 64-bit word at `address`.
pub(crate) fn word(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
}

/// The bytes at `address` up to a NUL.
pub(crate) fn string(address: u64) -> Option<Vec<u8>> {
    let mut string = Vec::new();
    while string.len() < LONGEST {
        let next = address.wrapping_add(string.len() as u64);
        let mut piece = [0; 256];
        // A string may end just before unmapped memory.
        let length = (PAGE - next % PAGE).min(piece.len() as u64) as usize;
        let piece = &mut piece[..length];
        if !read(next, piece) {
            return None;
        }
        match piece.iter().position(|&byte| byte == 0) {
            Some(end) => {
                string.extend_from_slice(&piece[..end]);
                return Some(string);
            }
            None => string.extend_from_slice(piece),
        }
    }
    None
}

/// The strings of a vector of addresses that ends with 0, such as argv; empty for address 0.
pub(crate) fn strings(mut address: u64) -> Option<Vec<Vec<u8>>> {
    let mut strings = Vec::new();
    while address != 0 {
        match word(address)? {
            0 => break,
            text => strings.push(string(text)?),
        }
        address += 8;
    }
    Some(strings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_and_wild_addresses_are_refused() {
        let text = c"two words";
        assert_eq!(string(text.as_ptr() as u64).as_deref(), Some(&b"two words"[..]));
        let vector = [text.as_ptr(), text.as_ptr(), std::ptr::null()];
        assert_eq!(strings(vector.as_ptr() as u64).map(|strings| strings.len()), Some(2));
        assert_eq!(string(8), None);
        assert_eq!(word(u64::MAX - 3), None);
    }
}
