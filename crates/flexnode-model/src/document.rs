//! How the versioned documents are read and written: JSON, two spaces of indent, a newline at the end, and a `version`
//! that is looked at before anything else.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A document that cannot be used. The path is the caller's to add.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The file has no content; a crash of a writer that does not sync leaves this.
    #[error("the {kind} is empty")]
    Empty {
        /// What should have been there: `journal record`.
        kind: &'static str,
    },
    /// Not JSON, or not of this shape.
    #[error("the {kind} cannot be read at {at}")]
    Shape {
        /// What should have been there.
        kind: &'static str,
        /// Path of keys in the document, `.` for the whole.
        at: String,
        /// The cause, with line and column where they are known.
        #[source]
        source: serde_json::Error,
    },
    /// It has no version, or one that this program does not know. A newer program wrote it.
    #[error("the {kind} has version {found}, this program reads version {known}; use the program that wrote it")]
    Version {
        /// What it is.
        kind: &'static str,
        /// The version that was found, `none` when there is none.
        found: String,
        /// The newest version that is known.
        known: u32,
    },
}

/// Reads a document of `kind` whose `version` must be `known`.
///
/// Keys that are not known are ignored: within one version only additions that an older program may ignore are allowed.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], kind: &'static str, known: u32) -> Result<T, DocumentError> {
    decode_since(bytes, kind, known, known)
}

/// As [`decode`], for a format whose versions from `oldest` to `known` are all read.
pub fn decode_since<T: DeserializeOwned>(
    bytes: &[u8],
    kind: &'static str,
    oldest: u32,
    known: u32,
) -> Result<T, DocumentError> {
    decode_value(parse(bytes, kind)?, kind, oldest, known)
}

/// As [`decode_since`], of JSON that was parsed already.
pub fn decode_value<T: DeserializeOwned>(
    value: Value,
    kind: &'static str,
    oldest: u32,
    known: u32,
) -> Result<T, DocumentError> {
    let found = value.get("version");
    if !found.and_then(Value::as_u64).is_some_and(|version| (u64::from(oldest)..=u64::from(known)).contains(&version)) {
        let found = found.map_or_else(|| "none".to_owned(), Value::to_string);
        return Err(DocumentError::Version { kind, found, known });
    }
    from_value(value, kind)
}

/// Reads JSON without looking at its shape.
pub(crate) fn parse(bytes: &[u8], kind: &'static str) -> Result<Value, DocumentError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(DocumentError::Empty { kind });
    }
    serde_json::from_slice(bytes).map_err(|source| DocumentError::Shape { kind, at: ".".into(), source })
}

/// Reads the shape, naming the key that does not fit.
pub(crate) fn from_value<T: DeserializeOwned>(value: Value, kind: &'static str) -> Result<T, DocumentError> {
    serde_path_to_error::deserialize(value).map_err(|e| {
        let at = e.path().to_string();
        DocumentError::Shape { kind, at, source: e.into_inner() }
    })
}

/// The bytes of a document: two spaces of indent and a newline at the end.
///
/// # Panics
/// When the type has map keys that are not text, which none of this crate has.
pub fn encode<T: Serialize>(document: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(document).expect("the documents of this crate are plain data");
    bytes.push(b'\n');
    bytes
}
