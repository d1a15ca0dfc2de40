//! Canonical JSON: keys sorted by their bytes, no white space between tokens. The same value always has the same bytes,
//! whatever order its maps are kept in.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The canonical text of a value.
pub fn to_string(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                // Display of a string value is its JSON text with the escapes that it needs.
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                write(&map[key], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// SHA-256 over the canonical JSON of `document`, 64 hex digits.
///
/// # Panics
/// When the type has map keys that are not text, which none of this crate has.
pub fn digest<T: Serialize>(document: &T) -> String {
    let value = serde_json::to_value(document).expect("the documents of this crate are plain data");
    hex_digest(to_string(&value).as_bytes())
}

/// SHA-256 of bytes as 64 lower-case hex digits.
pub fn hex_digest(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        let _ = write!(out, "{byte:02x}");
    }
    out
}
