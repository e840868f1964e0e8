//! Where desired state comes from.
//!
//! `dir` reads files. A source only reads; whether what it read makes sense is core's to decide.

pub mod dir;
pub mod tree;
