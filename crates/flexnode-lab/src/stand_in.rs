//! Programs that take the place of others which are not to work.

use crate::run::must;
use anyhow::{Context as _, Result};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Makes a static program that prints `version` when it is asked with `--version`, and fails at everything else: what is
/// only found out once it is started.
pub fn only_says(program: &Path, version: &str) -> Result<()> {
    let source = program.with_extension("c");
    let quoted = version.replace('\\', "\\\\").replace('"', "\\\"");
    let text = format!(
        "#include <stdio.h>\n#include <string.h>\nint main(int n, char **word) {{\n\
         if (n == 2 && !strcmp(word[1], \"--version\")) {{ puts(\"{quoted}\"); return 0; }}\nreturn 1; }}\n"
    );
    std::fs::write(&source, text).with_context(|| source.display().to_string())?;
    must(Command::new("cc").args(["-static", "-O1", "-o"]).arg(program).arg(&source), Duration::from_secs(60))?;
    Ok(())
}
