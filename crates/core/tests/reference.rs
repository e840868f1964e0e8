//! The reference page in `docs/` says what the registry says. `EVENKEEL_BLESS=1` writes it anew.
#![expect(clippy::disallowed_methods, reason = "a test reads the page it holds to the registry")]

#[test]
fn the_reference_page_is_the_registry() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/keys.md");
    let page = evenkeel_core::registry::reference();
    if std::env::var_os("EVENKEEL_BLESS").is_some() {
        std::fs::write(path, &page).expect("the page can be written");
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(stored == page, "docs/reference/keys.md is stale: run this test with EVENKEEL_BLESS=1");
}
