//! The one binary.

mod render;

fn main() {}
