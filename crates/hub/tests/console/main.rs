//! The console in a real browser: Chromium, driven by `WebDriver`, against a real hub on loopback.
//!
//! It needs Debian's `chromium` and `chromium-driver`, and axe-core as `scripts/fetch-axe` brings it; `./test` installs both.
//! Pictures of every page are left in `target/screens` for eyes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../people/world.rs"]
#[expect(dead_code, reason = "the tests of the interface use more of it")]
mod keys;
mod life;
mod pages;
mod stage;
