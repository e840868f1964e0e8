//! Where a declared value comes from, as a person and a program read it.

use std::collections::BTreeMap;

use evenkeel_core::desired::{GuestOrigins, LayerName, Origin};
use evenkeel_core::words::diagnostic::Sources;

use crate::format::plan::PlaceFormat;

/// `profiles.toml:3, profile web`; of the guest's own words only the place.
pub(crate) fn told(origin: &Origin, sources: &Sources) -> String {
    let place = origin.place(sources).unwrap_or_default();
    match &origin.layer {
        LayerName::Guest => place,
        layer @ (LayerName::Profile(_) | LayerName::Defaults(_)) => format!("{place}, {layer}"),
    }
}

/// The same of everything that is declared of a guest, by key or word, for a program.
pub(crate) fn all_placed(
    origins: &GuestOrigins,
    sources: &Sources,
) -> BTreeMap<String, PlaceFormat> {
    let words = origins.words.iter().map(|(word, origin)| ((*word).to_owned(), origin));
    let keys = origins.fields.iter().map(|(key, origin)| (key.to_string(), origin));
    let placed = |origin: &Origin| {
        let file = sources.get(origin.span.file).map(|file| file.path.clone());
        let line = sources.line_column(origin.span).map(|(line, _)| line);
        PlaceFormat { file, line, layer: origin.layer.to_string() }
    };
    words.chain(keys).map(|(name, origin)| (name, placed(origin))).collect()
}
