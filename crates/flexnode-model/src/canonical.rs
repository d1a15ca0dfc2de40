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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, json};

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::vec((any::<String>(), inner), 0..6)
                    .prop_map(|e| Value::Object(e.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn keys_are_sorted_and_nothing_stands_between_tokens() {
        let value = json!({"b": [1, {"z": null, "a": "x\n\u{e4}"}], "a": {}, "B": true});
        assert_eq!(to_string(&value), "{\"B\":true,\"a\":{},\"b\":[1,{\"a\":\"x\\n\u{e4}\",\"z\":null}]}");
        assert_eq!(digest(&json!({})), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    }

    proptest! {
        #[test]
        fn it_means_the_same_and_is_stable(value in value()) {
            let text = to_string(&value);
            let back: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&back, &value);
            prop_assert_eq!(to_string(&back), text);
        }
        #[test]
        fn the_order_of_keys_does_not_matter(entries in prop::collection::btree_map(any::<String>(), value(), 0..8)) {
            let forward: Map<String, Value> = entries.clone().into_iter().collect();
            let backward: Map<String, Value> = entries.into_iter().rev().collect();
            prop_assert_eq!(to_string(&Value::Object(forward)), to_string(&Value::Object(backward)));
        }
    }
}
