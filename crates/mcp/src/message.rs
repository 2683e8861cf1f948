//! Messages: JSON-RPC 2.0, one on each line.

use std::io::{self, BufRead, Read, Write};

use serde::Deserialize;
use serde_json::{Value, json};

/// The longest line that is read, in bytes.
const LONGEST: u64 = 4 << 20;

/// Codes of errors (JSON-RPC 2.0, section 5.1).
pub(crate) mod code {
    pub(crate) const PARSE: i64 = -32_700;
    pub(crate) const REQUEST: i64 = -32_600;
    pub(crate) const METHOD: i64 = -32_601;
    pub(crate) const PARAMETERS: i64 = -32_602;
}

/// A request, or a notification if it has no `id`.
#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    pub(crate) id: Option<Value>,
    pub(crate) method: String,
    #[serde(default)]
    pub(crate) params: Value,
}

/// What a line is.
#[derive(Debug)]
pub(crate) enum Line {
    Request(Request),
    /// No request: the error to answer with.
    Wrong(Value),
}

/// Reads the next line that is not empty; `None` at the end of the input.
///
/// # Errors
/// The input can't be read, or a line is too long.
pub(crate) fn read(input: &mut dyn BufRead) -> io::Result<Option<Line>> {
    loop {
        let mut bytes = Vec::new();
        if Read::take(&mut *input, LONGEST).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        if bytes.len() as u64 == LONGEST {
            let why = format!("a message is longer than {LONGEST} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        if !bytes.trim_ascii().is_empty() {
            return Ok(Some(parse(&bytes)));
        }
    }
}

fn parse(bytes: &[u8]) -> Line {
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(problem) => return Line::Wrong(error(&Value::Null, code::PARSE, &problem.to_string())),
    };
    let id = value["id"].clone();
    match serde_json::from_value(value) {
        Ok(request) => Line::Request(request),
        Err(problem) => Line::Wrong(error(&id, code::REQUEST, &problem.to_string())),
    }
}

pub(crate) fn result(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

pub(crate) fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

pub(crate) fn write(output: &mut dyn Write, message: &Value) -> io::Result<()> {
    writeln!(output, "{message}")?;
    output.flush()
}
