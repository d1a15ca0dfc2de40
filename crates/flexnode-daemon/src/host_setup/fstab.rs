//! The swap lines of /etc/fstab: commented out with a marker, and put back exactly as they were.

/// What is put before a swap line. Taking it away gives the line back byte for byte.
pub const MARKER: &str = "#aks-flex-node# ";

/// The text with every active swap line commented out, and those lines; `None` when there is none.
///
/// A line counts when its third field is `swap` (fstab(5)) and it is not marked `noauto`, which no boot turns on.
/// Line ends and everything else stay byte for byte.
pub fn comment_swap(text: &str) -> Option<(String, Vec<String>)> {
    let mut out = String::with_capacity(text.len() + MARKER.len());
    let mut lines = Vec::new();
    for line in text.split_inclusive('\n') {
        if is_swap(line) {
            out.push_str(MARKER);
            lines.push(line.trim_end().to_string());
        }
        out.push_str(line);
    }
    (!lines.is_empty()).then_some((out, lines))
}

/// The text with our marker taken away wherever a line begins with it; `None` when no line does.
pub fn restore_swap(text: &str) -> Option<String> {
    if !text.split_inclusive('\n').any(|line| line.starts_with(MARKER)) {
        return None;
    }
    Some(text.split_inclusive('\n').map(|line| line.strip_prefix(MARKER).unwrap_or(line)).collect())
}

fn is_swap(line: &str) -> bool {
    let line = line.trim_start();
    if line.starts_with('#') {
        return false;
    }
    let mut fields = line.split_whitespace();
    let (Some(_), Some(_), Some(kind)) = (fields.next(), fields.next(), fields.next()) else { return false };
    kind == "swap" && !fields.next().is_some_and(|options| options.split(',').any(|o| o == "noauto"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FSTAB: &str = "# a comment about swap\nUUID=1 / ext4 errors=remount-ro 0 1\n\n/swap.img none swap sw 0 0\n\
                         \tLABEL=s  swap\tswap\tdefaults,pri=5\t0 0\n/dev/sdb none swap noauto 0 0\n/swapdata /swap ext4 swap 0 0";

    #[test]
    fn comments_active_swap_lines_only() {
        let (text, lines) = comment_swap(FSTAB).unwrap();
        assert_eq!(lines, ["/swap.img none swap sw 0 0", "\tLABEL=s  swap\tswap\tdefaults,pri=5\t0 0"]);
        assert!(text.contains("\n#aks-flex-node# /swap.img none swap sw 0 0\n"));
        assert!(text.contains("\n#aks-flex-node# \tLABEL=s"));
        assert!(text.contains("\n/dev/sdb none swap noauto 0 0\n"));
        assert!(text.ends_with("/swapdata /swap ext4 swap 0 0"));
    }

    #[test]
    fn comes_back_byte_for_byte() {
        for original in [FSTAB, "/s none swap sw 0 0", "/s none swap sw 0 0\r\n", "/s none swap sw\n/s2 none swap\n"] {
            let (text, _) = comment_swap(original).unwrap();
            assert_eq!(comment_swap(&text), None, "done once, it is done");
            assert_eq!(restore_swap(&text).as_deref(), Some(original));
            assert_eq!(restore_swap(original), None);
        }
    }

    #[test]
    fn leaves_alone_what_has_no_swap() {
        for text in ["", "\n", "# /swap.img none swap sw 0 0\n", "/dev/sda1 / ext4 defaults 0 1\n", "one two\n"] {
            assert_eq!(comment_swap(text), None, "{text:?}");
        }
    }
}
