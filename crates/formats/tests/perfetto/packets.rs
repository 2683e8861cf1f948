//! Writes packets of Perfetto.

/// A number in protobuf's form.
pub(crate) fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field with an integer.
pub(crate) fn integer(number: u32, value: i64) -> Vec<u8> {
    [varint(u64::from(number) << 3), varint(value as u64)].concat()
}

/// A field with bytes: text, a message, or packed integers.
pub(crate) fn bytes(number: u32, value: &[u8]) -> Vec<u8> {
    [varint(u64::from(number) << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

/// A field with a message of these fields.
pub(crate) fn message(number: u32, fields: &[Vec<u8>]) -> Vec<u8> {
    bytes(number, &fields.concat())
}

/// A field with packed integers.
pub(crate) fn packed(number: u32, values: &[i64]) -> Vec<u8> {
    bytes(number, &values.iter().flat_map(|&value| varint(value as u64)).collect::<Vec<_>>())
}

/// A packet of the first sequence.
pub(crate) fn packet(fields: &[Vec<u8>]) -> Vec<u8> {
    message(1, &[&[integer(10, 1)], fields].concat())
}

/// A packet with a bundle of events.
pub(crate) fn bundle(cpu: i64, fields: &[Vec<u8>]) -> Vec<u8> {
    packet(&[message(1, &[&[integer(1, cpu)], fields].concat())])
}

/// An event of thread 7, whose own fields are in a field of this number.
pub(crate) fn event(time: i64, number: u32, own: &[Vec<u8>]) -> Vec<u8> {
    message(2, &[integer(1, time), integer(2, 7), message(number, own)])
}

/// A table of switches: time, state of the thread before, next thread, priority and name.
pub(crate) fn switches(rows: &[(i64, i64, i64, i64, i64)], names: &[&str]) -> Vec<u8> {
    let mut last = 0;
    let times: Vec<i64> = rows.iter().map(|row| row.0 - std::mem::replace(&mut last, row.0)).collect();
    let column = |of: fn(&(i64, i64, i64, i64, i64)) -> i64| rows.iter().map(of).collect::<Vec<_>>();
    let mut table: Vec<Vec<u8>> = names.iter().map(|name| bytes(5, name.as_bytes())).collect();
    table.extend([
        packed(1, &times),
        packed(2, &column(|row| row.1)),
        packed(3, &column(|row| row.2)),
        packed(4, &column(|row| row.3)),
        packed(6, &column(|row| row.4)),
    ]);
    message(4, &table)
}
