//! Compares our export of a recording to CTF 1.8 with the recording.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Map, Value};

use super::{Recording, hodo, lines_of};
use crate::{Outcome, command};

/// The folder of our CTF export of a recording.
pub(super) fn export(recording: &Recording) -> Outcome<PathBuf> {
    let folder = recording.path.with_extension("ctf");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let mut hodo = Command::new(command::hodo());
    command::quietly(hodo.args(["export", "--to", "ctf", "-q", "-o"]).arg(&folder).arg(&recording.path))?;
    Ok(folder)
}

/// The first event that differs, if any.
pub(super) fn difference(recording: &Recording, written: &Path) -> Outcome<Option<String>> {
    let events = |path: &Path| -> Outcome<_> {
        let lines = lines_of(hodo(path).args(["--format", "jsonl"]))?;
        // In CTF, lost events lie between two events; in recordings, before a page or a record.
        Ok(lines.filter(|line| line.as_ref().map_or(true, |line| !line.contains("\"lost_events\":"))))
    };
    let (mut ours, mut anew) = (events(&recording.path)?, events(written)?);
    loop {
        let (our, new) = (ours.next().transpose()?, anew.next().transpose()?);
        let same = match (&our, &new) {
            (None, None) => return Ok(None),
            (Some(our), Some(new)) => same_event(&serde_json::from_str(our)?, &serde_json::from_str(new)?),
            _ => false,
        };
        if !same {
            return Ok(Some(format!("read    {our:?}\n  written {new:?}")));
        }
    }
}

fn same_event(our: &Value, new: &Value) -> bool {
    ["ts", "stream", "name"].iter().all(|member| our[*member] == new[*member])
        && ["fields", "context"].iter().all(|member| match (&our[*member], &new[*member]) {
            (Value::Object(our), Value::Object(new)) => same_fields(our, new),
            _ => false,
        })
}

/// Only CTF has lengths and empty names; CTF 1.8 has byte arrays for blobs.
fn same_fields(our: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    let same = |name: &str, value: &Value| match (our.get(name), value) {
        (Some(Value::String(blob)), Value::Array(bytes)) => {
            let byte = |byte: &Value| format!("{:02x}", byte.as_u64().unwrap_or(u64::MAX));
            *blob == bytes.iter().map(byte).collect::<String>()
        }
        (Some(our), new) => our == new,
        (None, Value::String(name)) => name.is_empty(),
        (None, new) => name.ends_with("_length") && new.is_u64(),
    };
    new.iter().all(|(name, value)| same(name, value)) && our.keys().all(|name| new.contains_key(name))
}
