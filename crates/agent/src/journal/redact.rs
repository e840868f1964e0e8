//! Takes secrets out of what is about to be journalled (invariant 17).
//!
//! Called by every constructor of a record that carries parameters or free values, so that no way
//! leads from a request's form to the disk with a password in it. Public keys are no secrets.

use serde_json::{Map, Value};

/// What stands in a secret's place. PVE itself shows the same.
pub const MASK: &str = "**********";

/// A key is secret when its name holds one of these words. PVE's own are `cipassword`, `password`
/// (containers, storages), `encryption-key`, `csrfpreventiontoken` and `ticket`; a longer list
/// errs on the safe side, because a masked value only costs a reader a look into PVE.
const SECRET_WORDS: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "ticket",
    "private",
    "credential",
    "encryption-key",
];

/// The same values with every secret masked, at any depth.
pub(super) fn redacted(mut fields: Map<String, Value>) -> Map<String, Value> {
    for (key, value) in &mut fields {
        if is_secret(key) {
            *value = Value::from(MASK);
        } else {
            *value = redacted_value(value.take());
        }
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

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| key.contains(word))
}

/// Property strings (`a=1,password=x,b=2`) hide keys of their own.
pub(super) fn redacted_text(text: String) -> String {
    if !text.contains('=') || !is_secret(&text) {
        return text;
    }
    let part = |part: &str| match part.split_once('=') {
        Some((key, _)) if is_secret(key) => format!("{key}={MASK}"),
        Some(_) | None => part.to_owned(),
    };
    text.split(',').map(part).collect::<Vec<_>>().join(",")
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
