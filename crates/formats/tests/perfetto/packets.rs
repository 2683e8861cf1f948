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

/// A switch in a table.
pub(crate) struct Switch {
    pub(crate) time: i64,
    /// The state of the thread that ran before.
    pub(crate) state: i64,
    /// The thread that begins to run.
    pub(crate) next: i64,
    pub(crate) priority: i64,
    /// Index of its name.
    pub(crate) name: i64,
}

/// A table of switches.
pub(crate) fn switches(rows: &[Switch], names: &[&str]) -> Vec<u8> {
    let mut last = 0;
    let times: Vec<i64> = rows.iter().map(|row| row.time - std::mem::replace(&mut last, row.time)).collect();
    let column = |value: fn(&Switch) -> i64| rows.iter().map(value).collect::<Vec<_>>();
    let mut table: Vec<Vec<u8>> = names.iter().map(|name| bytes(5, name.as_bytes())).collect();
    table.extend([
        packed(1, &times),
        packed(2, &column(|row| row.state)),
        packed(3, &column(|row| row.next)),
        packed(4, &column(|row| row.priority)),
        packed(6, &column(|row| row.name)),
    ]);
    message(4, &table)
}
