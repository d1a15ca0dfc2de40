//! What this program is. Upgrades run `aks-flex-node version` as their test of whether a binary works, so it needs
//! neither configuration nor network nor root.

/// Release, set at build by `FLEXNODE_VERSION`.
pub const VERSION: &str = match option_env!("FLEXNODE_VERSION") {
    Some(version) => version,
    None => "dev",
};

/// Commit, set at build by `FLEXNODE_COMMIT`.
pub const COMMIT: &str = match option_env!("FLEXNODE_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Time of the build, set at build by `FLEXNODE_BUILD_TIME`.
pub const BUILD_TIME: &str = match option_env!("FLEXNODE_BUILD_TIME") {
    Some(time) => time,
    None => "unknown",
};

/// The four lines of `aks-flex-node version`.
pub fn text() -> String {
    format!("aks-flex-node\nVersion: {VERSION}\nGit Commit: {COMMIT}\nBuild Time: {BUILD_TIME}\n")
}
