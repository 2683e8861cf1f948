//! UUIDs, which identify parts of one trace.

/// Parses text such as `bf4863da-c8f8-7d41-af1b-10ffd20a7d42`.
pub(super) fn parse(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u32> =
        text.chars().filter(|&c| c != '-').map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
    if digits.len() == 32 { bytes.try_into().ok() } else { None }
}

/// Formats a UUID.
pub fn show(uuid: &[u8; 16]) -> String {
    let hex = |range: std::ops::Range<usize>| {
        uuid[range].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-")
}
