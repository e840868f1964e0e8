//! The journal on a disk that crashes, fails and is damaged. One binary: linking is dear.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop right there")]

mod clock;
mod crash;
mod damage;
mod fault;
mod formats;
mod full;
mod group;
mod kill;
mod meaning;
mod property;
mod real;
mod size;
mod support;
