//! The reference pages in `docs/` say what the registries say. `EVENKEEL_BLESS=1` writes it anew.
#![expect(clippy::disallowed_methods, reason = "a test reads the pages it holds to the registries")]

fn is_up_to_date(name: &str, page: &str) {
    let path = format!("{}/../../docs/reference/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("EVENKEEL_BLESS").is_some() {
        std::fs::write(&path, page).expect("the page can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == page, "docs/reference/{name} is stale: run this test with EVENKEEL_BLESS=1");
}

#[test]
fn the_page_of_keys_is_the_registry() {
    is_up_to_date("keys.md", &evenkeel_core::registry::reference());
}

#[test]
fn the_page_of_actions_is_the_registry() {
    is_up_to_date("actions.md", &evenkeel_core::action_registry::reference());
}
