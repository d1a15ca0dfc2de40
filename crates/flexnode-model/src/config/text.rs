//! What can be wrong with the bytes of a configuration before it is JSON: compressed, in another encoding, or with
//! characters that a web page or a word processor put in.

use super::problem::Problem;

/// The text of the file without a byte order mark, or what was found instead.
pub(super) fn decode(bytes: &[u8]) -> Result<&str, Problem> {
    const MAGIC: &[(&[u8], &str, &str)] = &[
        (&[0x1f, 0x8b], "gzip data begins at line 1, column 1", "unpack the file: gunzip < FILE"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd data begins at line 1, column 1", "unpack the file: zstd -d < FILE"),
        (&[0xff, 0xfe], "the text is UTF-16", "save the file as UTF-8"),
        (&[0xfe, 0xff], "the text is UTF-16", "save the file as UTF-8"),
    ];
    for (magic, what, fix) in MAGIC {
        if bytes.starts_with(magic) {
            return Err(Problem::new(".", *what, *fix));
        }
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => {
            let good = std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default();
            let (line, column) = position(good, good.len());
            let byte = bytes[e.valid_up_to()];
            let what = format!("byte 0x{byte:02x} at line {line}, column {column} is not UTF-8");
            return Err(Problem::new(".", what, "save the file as UTF-8"));
        }
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(Problem::new(".", "the file is empty", "write a JSON object, {\"components\": ...}"));
    }
    Ok(text)
}

/// Line and column (both from 1, in characters) of a byte offset.
pub(super) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

/// At most this many odd characters are named.
const MOST: usize = 10;

/// Names the characters that JSON does not allow where they stand, when `text` is no JSON.
///
/// Those outside of strings are sure. When there is none, a look-alike quote inside of a string is the likely cause: it
/// did not end the string.
pub(super) fn odd_characters(text: &str) -> Vec<Problem> {
    let (mut outside, mut inside) = (Vec::new(), Vec::new());
    let (mut in_string, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match (in_string, c) {
            (true, _) if escaped => escaped = false,
            (true, '\\') => escaped = true,
            (_, '"') => in_string = !in_string,
            (true, c) if odd(c).is_some() => inside.push((at, c)),
            (false, c) if !c.is_ascii() || c == '\'' || c == '`' => outside.push((at, c)),
            _ => {}
        }
    }
    let found = if outside.is_empty() { inside } else { outside };
    found.into_iter().take(MOST).map(|(at, c)| name(text, at, c)).collect()
}

fn name(text: &str, at: usize, c: char) -> Problem {
    let (line, column) = position(text, at);
    let (name, fix) = odd(c).unwrap_or(("a character that is allowed only inside of a string", "remove it"));
    let what = format!("{name} (U+{:04X}) at line {line}, column {column}", u32::from(c));
    Problem::new(".", what, fix)
}

fn odd(c: char) -> Option<(&'static str, &'static str)> {
    const SPACE: &str = "write a normal space";
    const QUOTE: &str = "write a straight quote, \"";
    Some(match c {
        '\u{a0}' | '\u{202f}' | '\u{2007}' => ("a no-break space", SPACE),
        '\u{2000}'..='\u{200a}' | '\u{3000}' => ("a space of another width", SPACE),
        '\u{200b}'..='\u{200d}' | '\u{2060}' => ("an invisible character", "remove it"),
        '\u{feff}' => ("a byte order mark inside of the text", "remove it"),
        '\u{2028}' | '\u{2029}' => ("a line separator", "write a normal line break"),
        '\u{201c}'..='\u{201f}' | '\u{ab}' | '\u{bb}' => ("a typographic quote", QUOTE),
        '\u{2018}'..='\u{201b}' => ("a typographic apostrophe", QUOTE),
        '\'' | '`' => ("a quote that JSON does not know", QUOTE),
        '\u{ff1a}' => ("a full-width colon", "write a normal colon"),
        '\u{ff0c}' => ("a full-width comma", "write a normal comma"),
        _ => return None,
    })
}
