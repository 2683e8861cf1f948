//! Compares the fields of an event.

use serde_json::{Map, Value};

/// Compares with trace-cmd's text: each of our fields in any form in which trace-cmd may print it.
pub(super) fn equal_text(fields: &Map<String, Value>, names: &Map<String, Value>, text: &str) -> bool {
    let mut rest = text;
    let mut left = fields.len();
    // JSON objects are unordered, so each field is looked up by the name at the front of the rest.
    while left > 0 {
        let Some((name, after)) = rest.split_once('=') else { return false };
        let Some(ours) = fields.get(name) else { return false };
        left -= 1;
        // A text may contain anything, so it ends where the name of another field follows.
        let end = after.match_indices(' ').map(|(space, _)| space).find(|space| {
            after[space + 1..]
                .split_once('=')
                .is_some_and(|(next, _)| fields.contains_key(next) && next != name)
        });
        let value = &after[..end.unwrap_or(after.len())];
        let called = names.get(&format!("{name}_name"));
        if !value_in_text(ours, called, value) {
            return false;
        }
        rest = end.map_or("", |end| &after[end + 1..]);
    }
    rest.trim().is_empty()
}

fn value_in_text(ours: &Value, called: Option<&Value>, text: &str) -> bool {
    let array = text.strip_prefix("ARRAY[").and_then(|text| text.strip_suffix(']'));
    let bytes = array.map(|text| -> Option<Vec<u8>> {
        text.split(", ")
            .filter(|text| !text.is_empty())
            .map(|byte| u8::from_str_radix(byte, 16).ok())
            .collect()
    });
    match (ours, bytes) {
        (ours, Some(Some(bytes))) => equal_bytes(ours, &bytes),
        (Value::Number(number), None) => {
            number_in_text(number, text)
                || called.and_then(Value::as_str).is_some_and(|name| is_address_in(name, text))
        }
        (Value::String(ours), None) => ours.trim_end() == text.trim_end(),
        // trace-cmd prints no empty arrays.
        (Value::Array(ours), None) => ours.is_empty() && text.trim().is_empty(),
        _ => false,
    }
}

/// `function` or `function+0x12`.
fn is_address_in(name: &str, text: &str) -> bool {
    text.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("+0x"))
}

fn number_in_text(number: &serde_json::Number, text: &str) -> bool {
    let bits = number.as_i64().map(|number| number as u64).or(number.as_u64());
    match text.strip_prefix("0x") {
        Some(digits) => {
            let theirs = u64::from_str_radix(digits, 16).ok();
            let narrow = bits.filter(|bits| number.is_i64() && *bits as i64 >= i64::from(i32::MIN));
            theirs.is_some() && (theirs == bits || theirs == narrow.map(|bits| u64::from(bits as u32)))
        }
        // Some formats pad with zeros: `target_cpu=001`.
        None => text.trim_end().parse::<i128>().is_ok_and(|theirs| Some(theirs) == number.as_i128()),
    }
}

/// Compares with perf's values, by name.
pub(super) fn equal_values(
    ours: &Map<String, Value>,
    names: &Map<String, Value>,
    theirs: &Map<String, Value>,
) -> bool {
    let own =
        ours.iter().filter(|(name, _)| !["common_flags", "common_preempt_count"].contains(&name.as_str()));
    let sampled = theirs.iter().filter_map(|(name, value)| Some((name.strip_prefix("sample ")?, value)));
    let fields = theirs.keys().filter(|name| !name.starts_with("sample ")).count();
    own.clone().count() == fields
        && own.into_iter().all(|(name, our)| theirs.get(name).is_some_and(|their| equal(our, their)))
        && sampled.into_iter().all(|(name, value)| names.get(name).is_none_or(|our| equal(our, value)))
}

fn equal(our: &Value, their: &Value) -> bool {
    match (our, their) {
        (Value::Number(our), Value::Number(their)) => {
            let bits =
                |number: &serde_json::Number| number.as_i64().map(|number| number as u64).or(number.as_u64());
            bits(our) == bits(their)
        }
        (our, Value::Array(bytes)) => {
            let bytes: Option<Vec<u8>> = bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
            bytes.is_some_and(|bytes| equal_bytes(our, &bytes))
        }
        _ => our == their,
    }
}

/// Compares our array, blob or text with its bytes.
fn equal_bytes(ours: &Value, bytes: &[u8]) -> bool {
    match ours {
        Value::Array(elements) if elements.is_empty() => bytes.is_empty(),
        Value::Array(elements) => {
            let width = bytes.len() / elements.len();
            width * elements.len() == bytes.len()
                && elements.iter().zip(bytes.chunks(width.max(1))).all(|(element, bytes)| {
                    let element = element.as_i64().map(|element| element as u64).or(element.as_u64());
                    element.is_some_and(|element| element.to_le_bytes().starts_with(bytes))
                })
        }
        Value::String(text) => {
            let hexadecimal: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
            *text == hexadecimal || *text == String::from_utf8_lossy(&bytes[..end])
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(ours: Value, names: Value, text: &str) -> bool {
        equal_text(ours.as_object().unwrap(), names.as_object().unwrap(), text)
    }

    #[test]
    fn texts_are_held_against_values() {
        assert!(check(json!({"comm": "a b=c", "pid": 7}), json!({}), "comm=a b=c pid=7"));
        assert!(!check(json!({"comm": "a b=c", "pid": 8}), json!({}), "comm=a b=c pid=7"));
        assert!(check(
            json!({"dfd": 4294967196u64, "ret": -2}),
            json!({}),
            "dfd=0xffffff9c ret=0xfffffffffffffffe"
        ));
        assert!(check(json!({"args": [1, 258]}), json!({}), "args=ARRAY[01, 00, 02, 01]"));
        assert!(check(json!({"ip": 16}), json!({"ip_name": "f"}), "ip=f+0x2"));
        assert!(!check(json!({"ip": 16, "x": 1}), json!({"ip_name": "f"}), "ip=f"));
        assert!(!check(json!({"x": 1}), json!({}), "x=1 y=2"));
    }
}
