//! What stands beside a guest: its firewall, pools, replication and backup jobs. Only reads; other people change them by
//! events.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{Answer, Context};
use crate::reply::Success;
use crate::surroundings::SimFirewall;

/// The file of the number in the path; neither kind nor existence of the guest is looked at.
fn firewall<'c>(
    cx: &'c Context<'_>,
) -> Result<Option<&'c SimFirewall>, crate::reply::ReplyFailure> {
    let vmid = cx.guest()?.vmid.get();
    Ok(cx.world.around.firewalls.get(&vmid))
}

fn digest(of: &str) -> String {
    let hash = Sha256::digest(of.as_bytes());
    hash.iter().take(20).fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn firewall_options(cx: &Context<'_>) -> Answer {
    let Some(file) = firewall(cx)?.filter(|file| !file.options.is_empty()) else {
        // The SHA-1 of an empty file: no firewall is configured.
        return Ok(json!({"digest": "da39a3ee5e6b4b0d3255bfef95601890afd80709"}).into());
    };
    let mut options: Map<String, Value> =
        file.options.iter().map(|(key, text)| (key.clone(), json!(text))).collect();
    options.insert("digest".to_owned(), json!(digest(&format!("{:?}", file.options))));
    Ok(Value::Object(options).into())
}

pub(super) fn firewall_rules(cx: &Context<'_>) -> Answer {
    let rules = firewall(cx)?.map(|file| file.rules.clone()).unwrap_or_default();
    let whole = digest(&format!("{rules:?}"));
    let rows = rules.iter().enumerate().map(|(pos, rule)| {
        let mut row: Map<String, Value> =
            rule.iter().map(|(key, text)| (key.clone(), json!(text))).collect();
        row.insert("pos".to_owned(), json!(pos));
        row.insert("enable".to_owned(), json!(1));
        row.insert("digest".to_owned(), json!(whole));
        Value::Object(row)
    });
    Ok(rows.collect::<Value>().into())
}

pub(super) fn firewall_aliases(cx: &Context<'_>) -> Answer {
    let aliases = firewall(cx)?.map(|file| file.aliases.clone()).unwrap_or_default();
    let whole = digest(&format!("{aliases:?}"));
    let rows =
        aliases.iter().map(|(name, cidr)| json!({"name": name, "cidr": cidr, "digest": whole}));
    Ok(rows.collect::<Value>().into())
}

pub(super) fn firewall_sets(cx: &Context<'_>) -> Answer {
    let sets = firewall(cx)?.map(|file| file.ip_sets.clone()).unwrap_or_default();
    let whole = digest(&format!("{sets:?}"));
    let rows = sets.iter().map(|name| json!({"name": name, "digest": whole}));
    Ok(rows.collect::<Value>().into())
}

/// Whoever may not see a pool is not told of it.
pub(super) fn pools(cx: &Context<'_>) -> Success {
    let seen =
        cx.world.pools.iter().filter(|pool| cx.may(&format!("/pool/{pool}"), &["Pool.Audit"]));
    seen.map(|pool| json!({"poolid": pool})).collect::<Value>().into()
}

/// Whoever may not see a guest is not told of its jobs.
pub(super) fn replication(cx: &Context<'_>) -> Success {
    let all = cx.world.around.replication.iter();
    let seen = all.filter(|(_, entry)| cx.may(&format!("/vms/{}", entry.guest), &["VM.Audit"]));
    let row = |(id, entry): (&String, &crate::surroundings::SimReplication)| {
        json!({"id": id, "guest": entry.guest, "type": "local", "target": entry.target, "schedule": "*/15",
               "jobnum": id.rsplit('-').next().and_then(|text| text.parse::<u32>().ok())})
    };
    seen.map(row).collect::<Value>().into()
}

pub(super) fn backup_jobs(cx: &Context<'_>) -> Success {
    let list = |numbers: &std::collections::BTreeSet<u32>| {
        numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    };
    let row = |(id, job): (&String, &crate::surroundings::SimBackupJob)| {
        let mut row = json!({"id": id, "type": "vzdump", "enabled": 1, "schedule": "02:00", "storage": "store"});
        if job.all {
            row["all"] = json!(1);
        }
        for (name, numbers) in [("vmid", &job.vmids), ("exclude", &job.exclude)] {
            if !numbers.is_empty() {
                row[name] = json!(list(numbers));
            }
        }
        row
    };
    cx.world.around.backup_jobs.iter().map(row).collect::<Value>().into()
}
