//! Which tags a datacenter keeps for its administrators.
//!
//! `doctor` asks, because Proxmox refuses a whole write for one tag that the token may not set. It must never hold anything
//! back by itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Of these tags, those that only an administrator (`Sys.Modify` on `/`) may add or take away, by the datacenter's options.
pub fn guarded_tags<'t>(
    options: &BTreeMap<String, String>,
    declared: impl IntoIterator<Item = &'t str>,
) -> BTreeSet<&'t str> {
    let registered = words(options.get("registered-tags").map(String::as_str));
    let allowed = words(options.get("allowed-tags").map(String::as_str));
    let free = is_free(options.get("user-tag-access").map(String::as_str));
    let is_guarded = |tag: &&str| {
        let tag = tag.to_lowercase();
        registered.contains(&tag) || (!free && !allowed.contains(&tag))
    };
    declared.into_iter().filter(is_guarded).collect()
}

/// Whether anyone may set tags that are not registered: so unless somebody said otherwise.
fn is_free(access: Option<&str>) -> bool {
    let Some(access) = access else { return true };
    let told = serde_json::from_str::<Value>(access).ok();
    let told = told.and_then(|value| Some(value.get("user-allow")?.as_str()?.to_owned()));
    let text =
        || access.split(',').find_map(|part| part.strip_prefix("user-allow=")).map(str::to_owned);
    told.or_else(text).is_none_or(|mode| mode == "free")
}

/// The words of a list, as JSON or as text.
fn words(list: Option<&str>) -> BTreeSet<String> {
    let list = list.unwrap_or_default();
    let parts = list.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '[' | ']' | '"'));
    parts.filter(|part| !part.is_empty()).map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(options: &[(&str, &str)]) -> Vec<&'static str> {
        let options = options.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        guarded_tags(&options.collect(), ["Prod", "web"]).into_iter().collect()
    }

    #[test]
    fn y18_registered_tags_and_tags_outside_the_allowed_set_are_an_administrators() {
        assert!(guarded(&[]).is_empty());
        assert_eq!(guarded(&[("registered-tags", "[\"prod\",\"db\"]")]), ["Prod"]);
        assert_eq!(guarded(&[("registered-tags", "prod;db")]), ["Prod"]);
        let list = ("user-tag-access", "{\"user-allow\":\"list\",\"user-allow-list\":[\"web\"]}");
        assert_eq!(guarded(&[list, ("allowed-tags", "[\"web\"]")]), ["Prod"]);
        assert_eq!(guarded(&[("user-tag-access", "user-allow=none")]), ["Prod", "web"]);
        assert!(guarded(&[("user-tag-access", "user-allow=free")]).is_empty());
    }
}
