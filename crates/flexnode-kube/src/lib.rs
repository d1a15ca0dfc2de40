//! (being written)
pub mod address;
pub mod identity;
pub mod names;
pub mod preflight;
pub mod problem;
#[cfg(test)]
mod testing;
pub mod tls;
mod wire;
