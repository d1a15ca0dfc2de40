//! The one encoder for values in unit files (systemd.syntax(7), systemd.service(5), systemd.unit(5)).
//!
//! Three places have three grammars: a word of a command line, a whole-line path, an `Environment=` assignment. In all of
//! them `%` begins a specifier. A newline can never be part of a value; other control characters are refused with it.

use std::fmt;
use std::path::Path;

/// A value that no unit file can hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} cannot be written into a unit: {reason}")]
pub struct EncodeError {
    /// The value, bounded.
    pub value: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

fn refuse(value: &str, reason: &'static str) -> EncodeError {
    EncodeError { value: value.chars().take(200).collect(), reason }
}

fn without_controls(value: &str) -> Result<&str, EncodeError> {
    if value.chars().any(char::is_control) {
        return Err(refuse(value, "it has a newline or another control character"));
    }
    Ok(value)
}

/// One word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Reaches the program as it is.
    Literal(String),
    /// `$NAME` alone: systemd replaces it with the words of the variable, with none when it is empty or not set.
    Variable(&'static str),
}

impl Word {
    /// A literal word.
    pub fn literal(text: impl Into<String>) -> Self {
        Word::Literal(text.into())
    }

    /// How systemd shows the word in the `ExecStart` property of a loaded unit: quotes and specifiers are resolved,
    /// variables are not.
    pub fn loaded(&self) -> String {
        match self {
            Word::Literal(text) => text.replace('$', "$$"),
            Word::Variable(name) => format!("${name}"),
        }
    }
}

/// A command as it stands behind `ExecStart=`.
///
/// The first word is the program's absolute path. `$` is refused in it: systemd does not expand variables there, but
/// unescapes `$$` in the argument vector only, so that no spelling is right for both. Quotes and backslashes are refused
/// because systemd itself takes no program with them.
pub fn command_line(words: &[Word]) -> Result<String, EncodeError> {
    let Some((Word::Literal(program), arguments)) = words.split_first() else {
        return Err(refuse("", "a command needs a program"));
    };
    if !program.starts_with('/') {
        return Err(refuse(program, "the program's path is not absolute"));
    }
    if program.contains(['$', '"', '\'', '\\']) {
        return Err(refuse(program, "the program's path has a dollar sign, a quote or a backslash"));
    }
    let mut line = argument(program)?;
    for word in arguments {
        line.push(' ');
        match word {
            Word::Literal(text) => line.push_str(&argument(text)?),
            Word::Variable(name) => {
                line.push('$');
                line.push_str(name);
            }
        }
    }
    Ok(line)
}

/// The command line of a plain argument vector.
pub fn command_line_of<S: AsRef<str>>(argv: &[S]) -> Result<String, EncodeError> {
    let words: Vec<Word> = argv.iter().map(|word| Word::literal(word.as_ref())).collect();
    command_line(&words)
}

/// One literal word of a command line.
pub fn argument(text: &str) -> Result<String, EncodeError> {
    without_controls(text)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:=,@+-".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return Ok(text.to_owned());
    }
    Ok(quoted(text, |c| match c {
        '%' => Some("%%"),
        '$' => Some("$$"),
        _ => None,
    }))
}

/// An `Environment=` assignment, quoted as a whole. `$` has no meaning there.
pub fn environment(name: &str, value: &str) -> Result<String, EncodeError> {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    if !name.starts_with(first) || !name.chars().all(|c| first(c) || c.is_ascii_digit()) {
        return Err(refuse(name, "it is no name of a variable"));
    }
    without_controls(value)?;
    Ok(quoted(&format!("{name}={value}"), |c| (c == '%').then_some("%%")))
}

/// A path that takes the rest of its line, as behind `EnvironmentFile=`: it is not unquoted, only specifiers are resolved.
pub fn path(path: &Path) -> Result<String, EncodeError> {
    let Some(text) = path.to_str() else {
        return Err(refuse(&path.to_string_lossy(), "it is not valid UTF-8"));
    };
    without_controls(text)?;
    if !text.starts_with('/') {
        return Err(refuse(text, "the path is not absolute"));
    }
    if text.ends_with(char::is_whitespace) || text.ends_with('\\') {
        return Err(refuse(text, "it ends with white space or a backslash, which the end of a line would swallow"));
    }
    // Glob characters would be expanded in the paths of environment files.
    if text.contains(['*', '?', '[']) {
        return Err(refuse(text, "it has a character that systemd takes for a pattern"));
    }
    Ok(text.replace('%', "%%"))
}

/// A line for a person, such as a description.
pub fn text(value: &str) -> Result<String, EncodeError> {
    without_controls(value)?;
    if value.ends_with('\\') {
        return Err(refuse(value, "it ends with a backslash, which would join the next line to it"));
    }
    Ok(value.replace('%', "%%"))
}

/// A command line that the caller wrote in systemd's own syntax.
pub fn raw_command(line: &str) -> Result<&str, EncodeError> {
    without_controls(line)?;
    if line.trim().is_empty() {
        return Err(refuse(line, "a command needs a program"));
    }
    if line.ends_with('\\') {
        return Err(refuse(line, "it ends with a backslash, which would join the next line to it"));
    }
    Ok(line)
}

fn quoted(text: &str, special: impl Fn(char) -> Option<&'static str>) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match (c, special(c)) {
            (_, Some(escaped)) => out.push_str(escaped),
            ('"' | '\\', None) => {
                out.push('\\');
                out.push(c);
            }
            (_, None) => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A unit file under construction: sections of `Key=value` lines. Values come from the functions of this module.
#[derive(Default)]
pub(crate) struct UnitText(String);

impl UnitText {
    pub(crate) fn new() -> Self {
        let mut unit = Self::default();
        unit.comment("Written by aks-flex-node; changes are lost. Use a drop-in of your own instead.");
        unit
    }
    pub(crate) fn comment(&mut self, line: &str) -> &mut Self {
        self.line(format_args!("# {line}"))
    }
    pub(crate) fn section(&mut self, name: &str) -> &mut Self {
        self.line(format_args!("\n[{name}]"))
    }
    pub(crate) fn set(&mut self, key: &str, value: impl fmt::Display) -> &mut Self {
        self.line(format_args!("{key}={value}"))
    }
    fn line(&mut self, line: fmt::Arguments<'_>) -> &mut Self {
        self.0.push_str(&line.to_string());
        self.0.push('\n');
        self
    }
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_stay_plain() {
        assert_eq!(argument("/usr/bin/a-b_c.d").unwrap(), "/usr/bin/a-b_c.d");
        assert_eq!(argument("--config=/etc/x,y:z@1+2").unwrap(), "--config=/etc/x,y:z@1+2");
    }

    #[test]
    fn what_means_something_to_systemd_is_escaped() {
        for (text, encoded) in [
            ("", r#""""#),
            ("two words", r#""two words""#),
            (r#"say "hi""#, r#""say \"hi\"""#),
            ("it's", r#""it's""#),
            ("100%", r#""100%%""#),
            ("$HOME and ${HOME}", r#""$$HOME and $${HOME}""#),
            (r"back\slash", r#""back\\slash""#),
            (r"\x41", r#""\\x41""#),
            (";", r#"";""#),
            ("ä ö", r#""ä ö""#),
        ] {
            assert_eq!(argument(text).unwrap(), encoded, "{text}");
        }
    }

    #[test]
    fn newlines_and_other_control_characters_are_refused() {
        for text in ["a\nb", "a\rb", "a\0b", "a\tb", "\u{7f}", "\u{85}"] {
            assert!(argument(text).is_err(), "{text:?}");
            assert!(environment("A", text).is_err(), "{text:?}");
            assert!(path(Path::new(&format!("/{text}"))).is_err(), "{text:?}");
            assert!(super::text(text).is_err(), "{text:?}");
            assert!(raw_command(&format!("/bin/{text}")).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_command_has_an_absolute_program() {
        let line = command_line(&[Word::literal("/bin/a b"), Word::literal("c d"), Word::Variable("ARGS")]).unwrap();
        assert_eq!(line, r#""/bin/a b" "c d" $ARGS"#);
        assert!(command_line_of::<&str>(&[]).is_err());
        assert!(command_line_of(&["kubelet"]).is_err());
        for program in ["/opt/$X/kubelet", "/opt/\"a\"/kubelet", "/opt/it's", r"/opt/a\b"] {
            assert!(command_line_of(&[program]).is_err(), "{program}");
        }
        assert!(command_line(&[Word::Variable("PROGRAM")]).is_err());
    }

    #[test]
    fn the_loaded_form_keeps_variables() {
        assert_eq!(Word::literal("50% of $5").loaded(), "50% of $$5");
        assert_eq!(Word::Variable("ARGS").loaded(), "$ARGS");
    }

    #[test]
    fn environment_assignments_are_quoted_as_a_whole() {
        assert_eq!(environment("PATH", "/a b:/c%").unwrap(), r#""PATH=/a b:/c%%""#);
        assert_eq!(environment("A1", r#"$x "y" \z"#).unwrap(), r#""A1=$x \"y\" \\z""#);
        for name in ["", "1A", "A-B", "A B", "A=B"] {
            assert!(environment(name, "x").is_err(), "{name}");
        }
    }

    #[test]
    fn paths_on_a_line_of_their_own_are_not_quoted() {
        assert_eq!(path(Path::new("/a b/50%")).unwrap(), "/a b/50%%");
        for bad in ["relative", "/end ", r"/end\", "/a*"] {
            assert!(path(Path::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_raw_command_is_one_line() {
        assert_eq!(raw_command("/bin/check --node %H").unwrap(), "/bin/check --node %H");
        assert!(raw_command("  ").is_err());
        assert!(raw_command(r"/bin/check \").is_err());
    }
}
