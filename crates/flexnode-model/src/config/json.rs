//! JSON with the duplicate keys found: readers disagree on which one counts, so none does.

use super::problem::Problem;
use super::text;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::fmt;

/// Reads one JSON document. Problems are all duplicate keys, or the one place where it is no JSON.
pub(super) fn parse(source: &str) -> (Option<Value>, Vec<Problem>) {
    let duplicates = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_str(source);
    let seed = Seed { path: String::new(), duplicates: &duplicates };
    let result = seed.deserialize(&mut reader);
    let result = result.and_then(|value| reader.end().map(|()| value));
    match result {
        Ok(value) => (Some(value), duplicates.into_inner()),
        Err(error) => (None, explain(source, &error)),
    }
}

fn explain(source: &str, error: &serde_json::Error) -> Vec<Problem> {
    let mut problems = text::odd_characters(source);
    if !problems.is_empty() {
        return problems;
    }
    let offset = byte_offset(source, error.line(), error.column());
    let (line, column) = text::position(source, offset);
    // The text of serde_json ends in its own " at line L column C", which counts bytes.
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    let first = source.trim_start().chars().next().unwrap_or('{');
    let rest = &source[source.floor_char_boundary(offset)..];
    let (what, fix) = if first != '{' {
        ("this is no JSON object".to_owned(), "write a JSON object, {\"components\": ...} (YAML is not read)")
    } else if message == "trailing characters" {
        (format!("a second document begins at line {line}, column {column}"), "remove it, one object is the whole file")
    } else if error.is_eof() {
        ("the file ends too early, a bracket or quote is not closed".to_owned(), "complete it")
    } else if rest.starts_with('/') || rest.starts_with('#') {
        (format!("a comment at line {line}, column {column}"), "remove it, JSON has no comments")
    } else {
        (format!("it is no JSON at line {line}, column {column}: {message}"), "correct it there or just before")
    };
    problems.push(Problem::new(".", what, fix));
    problems
}

/// serde_json counts lines from 1 and columns in bytes, the column being that of the last byte it read.
fn byte_offset(source: &str, line: usize, column: usize) -> usize {
    let start: usize = source.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (start + column.saturating_sub(1)).min(source.len())
}

/// `parent` and a key as one path.
pub(super) fn join(parent: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    match (parent.is_empty(), plain) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{parent}.{key}"),
        (_, false) => format!("{parent}[{key:?}]"),
    }
}

#[derive(Clone)]
struct Seed<'a> {
    path: String,
    duplicates: &'a RefCell<Vec<Problem>>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        let seed = |i: usize| Seed { path: format!("{}[{i}]", self.path), ..self.clone() };
        while let Some(item) = items.next_element_seed(seed(list.len()))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = join(&self.path, &key);
            if map.contains_key(&key) {
                let problem = Problem::new(&path, "the key is there twice", "keep one of them");
                self.duplicates.borrow_mut().push(problem);
            }
            let value = entries.next_value_seed(Seed { path, ..self.clone() })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
