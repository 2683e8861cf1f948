//! A known program: a loop around a call and a branch that alternates.

/// Returns the program's code:
///
/// ```text
///  0      mov ecx, ROUNDS
///  5 loop call function
/// 10      test cl, 1
/// 13      jz skip
/// 15      nop
/// 16 skip dec ecx
/// 18      jnz loop
/// 20      mov eax, 60 (exit)
/// 25      xor edi, edi
/// 27      syscall
/// 29 function: nop
/// 30      ret
/// ```
pub(crate) fn code(rounds: u32) -> Vec<u8> {
    let mut code = vec![0xb9];
    code.extend(rounds.to_le_bytes());
    code.extend([0xe8, 19, 0, 0, 0]);
    code.extend([0xf6, 0xc1, 0x01, 0x74, 0x01, 0x90]);
    code.extend([0xff, 0xc9, 0x75, 0xf1]);
    code.extend([0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]);
    code.extend([0x90, 0xc3]);
    code
}

/// Returns the address of every executed instruction of the code at `base`.
pub(crate) fn addresses(base: u64, rounds: u32) -> Vec<u64> {
    let mut offsets = vec![0];
    for round in (1..=rounds).rev() {
        offsets.extend([5, 29, 30, 10, 13]);
        offsets.extend((round % 2 == 1).then_some(15));
        offsets.extend([16, 18]);
    }
    offsets.extend([20, 25, 27]);
    offsets.into_iter().map(|offset| base + offset).collect()
}

/// Returns whether each conditional branch is taken; a return counts as taken, because each goes to its call.
pub(crate) fn branches(rounds: u32) -> Vec<bool> {
    (1..=rounds).rev().flat_map(|round| [true, round % 2 == 0, round > 1]).collect()
}

/// Returns the lines of `hodo script --insns --fields ip`.
pub(crate) fn lines(addresses: &[u64]) -> String {
    addresses.iter().map(|address| format!("{address:x}\n")).collect()
}

/// Address at which [`elf`] is loaded.
pub(crate) const LOADED_AT: u64 = 0x40_0000;
/// Address of its code.
pub(crate) const ENTRY: u64 = LOADED_AT + CODE_OFFSET;

const HEADER_SIZE: u64 = 64;
const SEGMENT_SIZE: u64 = 56;
const NOTE_OFFSET: u64 = HEADER_SIZE + 2 * SEGMENT_SIZE;
const NOTE_SIZE: u64 = 36;
const CODE_OFFSET: u64 = 224;

/// Returns a static ELF executable of this code, with a build id.
pub(crate) fn elf(code: &[u8], build_id: [u8; 20]) -> Vec<u8> {
    elf_at(LOADED_AT, code, build_id)
}

/// Like [`elf`], loaded at another address.
pub(crate) fn elf_at(loaded_at: u64, code: &[u8], build_id: [u8; 20]) -> Vec<u8> {
    let whole = CODE_OFFSET + code.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // ET_EXEC, x86-64, version 1; entry, segments at 64, no sections; sizes and counts of headers.
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    file.extend([loaded_at + CODE_OFFSET, HEADER_SIZE, 0].iter().flat_map(|word| word.to_le_bytes()));
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 64, 0, 0, 0, 0, 0]);
    let mut segment = |kind: u32, flags: u32, offset: u64, size: u64, alignment: u64| {
        file.extend(kind.to_le_bytes().into_iter().chain(flags.to_le_bytes()));
        let words = [offset, loaded_at + offset, loaded_at + offset, size, size, alignment];
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    const LOAD: u32 = 1;
    const NOTE: u32 = 4;
    const READ: u32 = 4;
    const EXECUTE: u32 = 1;
    segment(LOAD, READ | EXECUTE, 0, whole, 4096);
    segment(NOTE, READ, NOTE_OFFSET, NOTE_SIZE, 4);
    file.extend(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0");
    file.extend(build_id);
    file.resize(CODE_OFFSET as usize, 0);
    file.extend(code);
    file
}
