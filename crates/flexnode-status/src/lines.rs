//! Lines of other programs, as they may be kept: bounded, of one line, without what looks like a token.

/// Characters of a line that are kept.
pub const LONGEST: usize = 400;

/// A line of another program: bounded, and without what looks like a bootstrap token, a signed token (RFC 7519), or what
/// stands behind the word Bearer.
pub fn clean(line: &str) -> String {
    let line: String = line.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let (mut bearer, mut out) = (false, String::new());
    for word in line.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c))) {
        let bare = word.trim_end_matches(|c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c)));
        let signed = bare.starts_with("eyJ") && bare.len() > 20;
        if signed || (bearer && !bare.is_empty()) {
            out.push_str("(token)");
            out.push_str(&word[bare.len()..]);
        } else {
            let parts = word.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
            out.extend(parts.map(|part| if is_token(part) { "(token)" } else { part }));
        }
        bearer = bare.eq_ignore_ascii_case("bearer") || (bearer && bare.is_empty());
    }
    out
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
        assert_eq!(clean("got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOi-x_y.c2ln, sent"), "got (token), sent");
        assert_eq!(clean("Authorization: Bearer s3cr3t-value end"), "Authorization: Bearer (token) end");
        assert_eq!(clean("1.36.3 at 10.0.0.1:6443\u{7}"), "1.36.3 at 10.0.0.1:6443 ");
        assert_eq!(clean(&"x".repeat(1000)).len(), LONGEST);
    }
}
