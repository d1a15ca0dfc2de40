//! The project's own commands. Thin: the work is in the crates.

fn main() {
    eprintln!("usage: cargo xtask <command>");
    std::process::exit(2);
}
