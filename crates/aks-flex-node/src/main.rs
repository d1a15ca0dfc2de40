//! The agent's program; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    aks_flex_node::run(std::env::args_os(), aks_flex_node::Env::of_process())
}
