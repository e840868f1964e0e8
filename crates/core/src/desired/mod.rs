//! What the operator wants, read from files.

pub mod syntax;
pub mod tree;
