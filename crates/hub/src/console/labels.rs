//! The labels of a host, for its admins: what people call it, and what the fleet is filtered by.

use std::collections::BTreeMap;

use axum::http::Method;

use super::form::FormFields;
use super::see;
use super::words::host_path;
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::people::SMALL_BODY_MAX;
use crate::people::hosts::{change_labels, find};
use crate::problem::Problem;
use crate::routes::{Answer, Hub, RouteRow};
use crate::store::PersonRole;

pub(super) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::new(
            (Method::POST, "/console/hosts/{host}/labels"),
            Access::Person(PersonRole::Admin, Scope::HostInPath),
            SMALL_BODY_MAX,
            "sets the labels of a host",
            set_labels,
        )
        .form(),
    ]
}

async fn set_labels(hub: Hub, call: Call) -> Answer {
    let form = FormFields::read(&call.body)?;
    let host = find(&hub, call.part("host")?).await?;
    let labels = read_labels(form.text("labels"))?;
    change_labels(&hub, call.person(), &host.id, labels).await?;
    see(&host_path(&host.id))
}

/// `site=berlin, rack=a1`, as it is shown in the form.
pub(super) fn labels_text(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(", ")
}

fn read_labels(text: &str) -> Result<BTreeMap<String, String>, Problem> {
    let mut labels = BTreeMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            Problem::invalid(format!("`{pair}` is no label"))
                .hint("write labels as site=berlin, rack=a1")
        })?;
        let name = name.trim().to_owned();
        let value = value.trim().to_owned();
        if labels.insert(name.clone(), value).is_some() {
            return Err(Problem::invalid(format!("the label `{name}` stands twice")));
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_as_they_are_shown() {
        let labels = read_labels(" site=berlin ,rack=a1, url=x=y,note= ,, ").unwrap();
        let pairs: Vec<_> = labels.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(pairs, [("note", ""), ("rack", "a1"), ("site", "berlin"), ("url", "x=y")]);
        assert_eq!(read_labels(&labels_text(&labels)).unwrap(), labels);
        assert!(read_labels("").unwrap().is_empty());
        assert!(read_labels("berlin").is_err());
        assert!(read_labels("site=a,site=b").is_err());
    }
}
