//! Lines of other programs, as they may be kept: bounded, of one line, without what looks like a bootstrap token.

/// Characters of a line that are kept.
pub const LONGEST: usize = 400;

/// A line of another program.
pub fn clean(line: &str) -> String {
    let line: String = line.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let parts: Vec<&str> = line.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).collect();
    parts.iter().map(|part| if is_token(part) { "(token)" } else { part }).collect()
}

/// `abcdef.0123456789abcdef`, perhaps with one sign behind it.
fn is_token(word: &str) -> bool {
    let word = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    let small = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    word.split_once('.').is_some_and(|(id, secret)| id.len() == 6 && secret.len() == 16 && small(id) && small(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_blotted_out_and_lines_are_bounded() {
        assert_eq!(clean("token \"abcdef.0123456789abcdef\" is bad"), "token \"(token) is bad");
        assert_eq!(clean("1.36.3 at 10.0.0.1:6443\u{7}"), "1.36.3 at 10.0.0.1:6443 ");
        assert_eq!(clean(&"x".repeat(1000)).len(), LONGEST);
    }
}
