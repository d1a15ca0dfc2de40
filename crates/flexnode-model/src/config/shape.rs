//! The document against the schema: unknown keys, wrong types and numbers out of range, all of them.
//!
//! What does not fit is taken out of the document, so that what is left always becomes a [`Config`] and its values can be
//! checked in the same run.

use super::json::join;
use super::keys::LATER;
use super::problem::{Problem, Warning};
use super::types::{Config, config_schema};
use serde_json::{Map, Value};

/// What the check found.
#[derive(Default)]
pub(super) struct Findings {
    pub problems: Vec<Problem>,
    pub warnings: Vec<Warning>,
}

/// Checks `document`, takes out what does not fit, and reads the rest.
pub(super) fn read(mut document: Value, found: &mut Findings) -> Config {
    let schema = config_schema();
    let known = all_paths(&schema);
    if !check("", &mut document, &schema, &known, found) {
        return Config::default();
    }
    match serde_path_to_error::deserialize(document) {
        Ok(config) => config,
        Err(e) => {
            let fix = "write it as the documentation of the configuration says";
            found.problems.push(Problem::new(e.path().to_string(), e.inner().to_string(), fix));
            Config::default()
        }
    }
}

/// Whether `value` fits. Entries of it that do not fit are taken out.
fn check(path: &str, value: &mut Value, schema: &Value, known: &[String], found: &mut Findings) -> bool {
    let before = found.problems.len();
    let wanted = kind(schema);
    let fits = match (wanted, &mut *value) {
        ("any", _) | ("boolean", Value::Bool(_)) => true,
        ("object", Value::Object(map)) => {
            object(path, map, schema, known, found);
            true
        }
        ("array", Value::Array(items)) => {
            let mut place = 0;
            items.retain_mut(|item| {
                place += 1;
                check(&format!("{path}[{}]", place - 1), item, &schema["items"], known, found)
            });
            true
        }
        ("string", Value::String(text)) => choice(path, text, schema, found),
        ("integer", Value::Number(number)) => match number.as_i64() {
            Some(number) => within(path, number, schema, found),
            None => false,
        },
        _ => false,
    };
    if !fits && found.problems.len() == before {
        let what = format!("{} was found", describe(value));
        found.problems.push(Problem::new(if path.is_empty() { "." } else { path }, what, wish(schema)));
    }
    fits
}

fn object(path: &str, map: &mut Map<String, Value>, schema: &Value, known: &[String], found: &mut Findings) {
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    // serde_json's maps are sorted here; a stable order of messages does not depend on it.
    let mut keys: Vec<String> = map.keys().cloned().collect();
    keys.sort_unstable();
    for key in keys {
        let full = join(path, &key);
        let keep = match properties.get(&key) {
            // As in the original agent: null is "not set".
            Some(property) => !map[&key].is_null() && check(&full, &mut map[&key], property, known, found),
            None if schema["additionalProperties"] == Value::Bool(false) => {
                if LATER.contains(&full.as_str()) {
                    found.warnings.push(Warning::new(&full, "this key is not supported yet and does nothing"));
                } else {
                    found.problems.push(unknown(&full, path, &key, known));
                }
                false
            }
            None => check(&full, &mut map[&key], &schema["additionalProperties"], known, found),
        };
        if !keep {
            map.remove(&key);
        }
    }
}

/// The type that a schema asks for, without the `null` of an optional key.
fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(kind) => kind,
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("any"),
        _ if !choices(schema).is_empty() => "string",
        _ => "any",
    }
}

/// The words that a schema allows; empty when any text is right.
fn choices(schema: &Value) -> Vec<&str> {
    let list = |name: &str| schema[name].as_array().into_iter().flatten();
    let nested = list("oneOf").chain(list("anyOf")).flat_map(|inner| match inner["const"].as_str() {
        Some(word) => vec![word],
        None => choices(inner),
    });
    list("enum").filter_map(Value::as_str).chain(nested).collect()
}

fn choice(path: &str, text: &str, schema: &Value, found: &mut Findings) -> bool {
    let words = choices(schema);
    let fits = words.is_empty() || words.contains(&text);
    if !fits {
        found.problems.push(Problem::new(path, format!("{text:?} is none of its values"), wish(schema)));
    }
    fits
}

fn limits(schema: &Value) -> (i64, i64) {
    (schema["minimum"].as_i64().unwrap_or(i64::MIN), schema["maximum"].as_i64().unwrap_or(i64::MAX))
}

fn within(path: &str, number: i64, schema: &Value, found: &mut Findings) -> bool {
    let (low, high) = limits(schema);
    let fits = (low..=high).contains(&number);
    if !fits {
        found.problems.push(Problem::new(path, format!("{number} is out of range"), wish(schema)));
    }
    fits
}

fn describe(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(n) if n.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn wish(schema: &Value) -> String {
    match kind(schema) {
        "string" => match choices(schema).as_slice() {
            [] => "write a text in quotes".into(),
            words => format!("write one of: {}", words.join(", ")),
        },
        "integer" => match limits(schema) {
            (i64::MIN, _) | (_, i64::MAX) => "write a whole number without quotes".into(),
            (low, high) => format!("write a whole number from {low} to {high}, without quotes"),
        },
        "array" => "write a list, [...]".into(),
        "boolean" => "write true or false, without quotes".into(),
        _ => "write an object, {...}".into(),
    }
}

/// Every key that a configuration may have, as full paths.
fn all_paths(schema: &Value) -> Vec<String> {
    fn collect(path: &str, schema: &Value, out: &mut Vec<String>) {
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            let full = join(path, key);
            collect(&full, property, out);
            out.push(full);
        }
    }
    let mut out: Vec<String> = LATER.iter().map(|key| (*key).to_owned()).collect();
    collect("", schema, &mut out);
    out.sort_unstable();
    out.dedup();
    out
}

fn unknown(full: &str, parent: &str, key: &str, known: &[String]) -> Problem {
    let siblings: Vec<&String> = known.iter().filter(|p| parent_of(p) == parent).collect();
    let fix = match (nearest(parent, key, known), siblings.as_slice()) {
        (Some(path), _) => format!("did you mean {path}?"),
        (None, [only]) => format!("did you mean {only}?"),
        (None, many) => {
            let names: Vec<&str> = many.iter().map(|p| last(p)).collect();
            format!("remove it; known here are: {}", names.join(", "))
        }
    };
    Problem::new(full, "this key is not known", fix)
}

fn parent_of(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(parent, _)| parent)
}

fn last(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, last)| last)
}

/// The key that was probably meant: a similar one in the same object, otherwise the same one in another object.
fn nearest<'a>(parent: &str, key: &str, known: &'a [String]) -> Option<&'a str> {
    let key = key.to_lowercase();
    let distance = |path: &str| strsim::damerau_levenshtein(&key, &last(path).to_lowercase());
    let allowed = (key.chars().count() / 3).max(2);
    let best = |paths: &mut dyn Iterator<Item = &'a String>, allowed: usize| {
        paths.map(|p| (distance(p), p.as_str())).filter(|(d, _)| *d <= allowed).min().map(|(_, p)| p)
    };
    best(&mut known.iter().filter(|p| parent_of(p) == parent), allowed)
        .or_else(|| best(&mut known.iter(), usize::from(key.len() > 5)))
}
