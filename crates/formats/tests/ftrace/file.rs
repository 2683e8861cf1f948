//! A trace.dat with an event class for each kind of field.

use hodo_formats::ftrace::write::Head;

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

pub(crate) const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:240;\tsigned:0;\n";

/// A small page size, so that tests have several pages.
pub(crate) const PAGE: usize = 256;

fn format(name: &str, id: u32, fields: &str) -> Vec<u8> {
    format!("name: {name}\nID: {id}\nformat:\n{COMMON}{fields}\nprint fmt: \"\"\n").into_bytes()
}

fn field(declaration: &str, offset: u32, size: u32, signed: u32) -> String {
    format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
}

/// Everything before the pages.
pub(crate) fn head() -> Head {
    let all = |fields: &[(&str, u32, u32, u32)]| -> String {
        fields
            .iter()
            .map(|&(declaration, offset, size, signed)| field(declaration, offset, size, signed))
            .collect()
    };
    let own = vec![
        format("function", 1, &all(&[("unsigned long ip", 8, 8, 0), ("unsigned long parent_ip", 16, 8, 0)])),
        format("kernel_stack", 4, &all(&[("int size", 8, 4, 1), ("unsigned long caller[8]", 16, 64, 0)])),
        format("print", 5, &all(&[("unsigned long ip", 8, 8, 0), ("char buf[]", 16, 0, 0)])),
        format(
            "bprint",
            6,
            &all(&[("unsigned long ip", 8, 8, 0), ("const char * fmt", 16, 8, 0), ("u32 buf[]", 24, 0, 0)]),
        ),
        format(
            "funcgraph_exit",
            10,
            &all(&[
                ("unsigned long func", 8, 8, 0),
                ("unsigned int depth", 16, 4, 0),
                ("unsigned int overrun", 20, 4, 0),
                ("unsigned long long calltime", 24, 8, 0),
                ("unsigned long long rettime", 32, 8, 0),
            ]),
        ),
        format(
            "funcgraph_entry",
            11,
            &all(&[("unsigned long func", 8, 8, 0), ("unsigned int depth", 16, 4, 0)]),
        ),
    ];
    let irq = vec![
        format("irq_handler_entry", 20, &all(&[("int irq", 8, 4, 1), ("__data_loc char[] name", 12, 4, 1)])),
        format(
            "mixed",
            21,
            &all(&[
                ("u8 mac[6]", 8, 6, 0),
                ("s16 short", 14, 2, 1),
                ("u16 pair[2]", 16, 4, 0),
                ("__rel_loc u32[] numbers", 20, 4, 0),
                ("struct odd thing", 24, 3, 0),
                ("char name[4]", 28, 4, 0),
            ]),
        ),
    ];
    Head {
        page_size: PAGE as u32,
        header_page: HEADER_PAGE.into(),
        header_event: b"# compressed entry header\n".into(),
        own_formats: own,
        systems: vec![("irq".to_owned(), irq)],
        symbols: b"ffffffff81000000 T main_kernel\nffffffff81000100 T vfs_read\n".into(),
        texts: b"0xffffffff82000000 : \"count %d\\n\"\n".into(),
        threads: b"7 a thread\n".into(),
        clock: b"local global [mono]".into(),
        tsc: None,
        system: "Linux host 6.1 x86_64".to_owned(),
        recorder: "test".to_owned(),
    }
}

/// A record of a class: id, flags and the thread 7, then its own bytes.
pub(crate) fn record(delta: u32, class: u16, bytes: &[u8]) -> Vec<u8> {
    let mut content = class.to_le_bytes().to_vec();
    content.extend([0, 0, 7, 0, 0, 0]);
    content.extend(bytes);
    content.resize(content.len().next_multiple_of(4), 0);
    let words = content.len() as u32 / 4;
    let mut record = match words {
        1..=28 => (delta << 5 | words).to_le_bytes().to_vec(),
        _ => [(delta << 5).to_le_bytes(), (content.len() as u32 + 4).to_le_bytes()].concat(),
    };
    record.extend(content);
    record
}

/// A page of these records, with flags and the bytes after the records.
pub(crate) fn page(time: u64, records: &[Vec<u8>], flags: u64, trailing: &[u8]) -> Vec<u8> {
    let records = records.concat();
    let mut page = time.to_le_bytes().to_vec();
    page.extend((records.len() as u64 | flags).to_le_bytes());
    page.extend(records);
    page.extend(trailing);
    assert!(page.len() <= PAGE);
    page.resize(PAGE, 0);
    page
}

/// A file with these pages for each CPU.
pub(crate) fn file(cpus: &[Vec<Vec<u8>>]) -> Vec<u8> {
    file_of(&head(), cpus)
}

/// As [`file`], with another head.
pub(crate) fn file_of(head: &Head, cpus: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let sizes: Vec<u64> = cpus.iter().map(|pages| (pages.len() * PAGE) as u64).collect();
    let mut bytes = head.bytes(&sizes);
    cpus.iter().flatten().for_each(|page| bytes.extend(page));
    bytes
}
