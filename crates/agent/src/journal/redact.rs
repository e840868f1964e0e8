//! Takes secrets out of what is about to be journalled (invariant 17).
//!
//! Called by every constructor of a record that carries parameters or free values, so that no way
//! leads from a request's form to the disk with a password in it. What a secret is, is core's to say.

use std::borrow::Cow;

use evenkeel_core::model::secret::{MASK, is_secret_name, masked_param, masked_text};
use serde_json::{Map, Value};

/// The same values with every secret masked, at any depth.
pub(super) fn redacted(mut fields: Map<String, Value>) -> Map<String, Value> {
    for (key, value) in &mut fields {
        *value = match value.take() {
            _ if is_secret_name(key) => Value::from(MASK),
            Value::String(text) => Value::from(masked_param(key, &text)),
            other @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_)) => redacted_value(other),
        };
    }
    fields
}

/// One value with every secret below it masked.
pub(super) fn redacted_value(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(redacted(fields)),
        Value::Array(items) => items.into_iter().map(redacted_value).collect(),
        Value::String(text) => Value::String(redacted_text(text)),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
    }
}

/// A sentence with every `password=x` in it masked.
pub(super) fn redacted_text(text: String) -> String {
    match masked_text(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(clean) => clean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_is_masked_at_any_depth_and_a_public_key_stays() {
        let Value::Object(fields) = json!({
            "cipassword": "hunter2",
            "Password": "hunter2",
            "ssh-public-keys": "ssh-ed25519 AAAA",
            "sshkeys": "ssh-ed25519 AAAA",
            "env": "A=hunter2\0B=hunter2",
            "args": "-vnc password=hunter2",
            "tokens": ["hunter2"],
            "cores": 2,
            "nested": [{ "encryption-key": "hunter2", "bridge": "vmbr0" }],
            "scsi0": "store:disk,size=8G",
            "cifs": "server=a,password=hunter2,share=b",
        }) else {
            unreachable!()
        };
        let clean = redacted(fields);
        assert!(!Value::from(clean.clone()).to_string().contains("hunter2"));
        assert_eq!(clean["cores"], 2);
        assert_eq!(clean["sshkeys"], "ssh-ed25519 AAAA");
        assert_eq!(clean["ssh-public-keys"], "ssh-ed25519 AAAA");
        assert_eq!(clean["nested"][0]["bridge"], "vmbr0");
        assert_eq!(clean["scsi0"], "store:disk,size=8G");
        assert_eq!(clean["cifs"], "server=a,password=**********,share=b");
    }
}
