//! The lab as a library.
