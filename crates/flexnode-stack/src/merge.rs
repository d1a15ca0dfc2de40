//! What a person wrote over what we render: objects merge key by key, anything else replaces.

use serde_json::{Map, Value};

/// Merges `over` into `base`. Keys that differ in case only are one key, as kubelet reads them; the spelling of `base`
/// stays. `null` takes a key away, so that the program's own default holds.
pub(crate) fn merge(base: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        let known = base.keys().find(|known| known.eq_ignore_ascii_case(key)).cloned();
        let key = known.unwrap_or_else(|| key.clone());
        match (base.get_mut(&key), value) {
            (_, Value::Null) => {
                base.remove(&key);
            }
            (Some(Value::Object(base)), Value::Object(over)) => merge(base, over),
            _ => {
                base.insert(key, value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(mut base: Value, over: &Value) -> Value {
        merge(base.as_object_mut().unwrap(), over.as_object().unwrap());
        base
    }

    #[test]
    fn objects_merge_and_all_else_replaces() {
        let base = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1, "e": {"f": 1}, "g": "x"});
        let over = json!({"a": {"c": [3]}, "d": {"x": 1}, "e": 5, "h": true});
        let wanted = json!({"a": {"b": 1, "c": [3]}, "d": {"x": 1}, "e": 5, "g": "x", "h": true});
        assert_eq!(merged(base, &over), wanted);
    }

    #[test]
    fn keys_match_whatever_their_case_and_null_removes() {
        let base = json!({"podPidsLimit": -1, "logging": {"verbosity": 2, "format": "text"}});
        let over = json!({"PODPIDSLIMIT": 10, "Logging": {"format": null}});
        assert_eq!(merged(base, &over), json!({"podPidsLimit": 10, "logging": {"verbosity": 2}}));
    }
}
