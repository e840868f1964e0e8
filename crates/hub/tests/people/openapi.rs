//! The description of the interface: made from the table, and reviewed as a text.

use evenkeel_hub::openapi::described;
use evenkeel_hub::routes::{RowFace, table};

/// `EVENKEEL_BLESS=1` writes it anew.
#[test]
fn the_published_description_is_that_of_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
    let text = format!("{}\n", serde_json::to_string_pretty(&described()).unwrap());
    if std::env::var_os("EVENKEEL_BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(there == text, "{path} is not what the table says; set EVENKEEL_BLESS=1 to write it");
}

#[test]
fn every_row_is_described_and_no_reference_leads_nowhere() {
    let described = described();
    for row in table().into_iter().filter(|row| row.face == RowFace::Program) {
        let method = row.method.as_str().to_ascii_lowercase();
        let one = &described["paths"][row.path][&method];
        assert_eq!(one["summary"], row.summary, "{method} {}", row.path);
    }
    let text = described.to_string();
    let mut references = 0;
    for part in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(described["components"]["schemas"].get(name).is_some(), "{name}");
        references += 1;
    }
    assert!(references > 20, "{references}");
}
