//! The reference page of all keys, written from the registry so that it cannot say anything else.

use std::fmt::Write as _;

use super::{Absent, Applies, Declarable, FormatPart, Hazard, Key, ValueFormat, table};
use crate::model::id::GuestKind;

const INFALLIBLE: &str = "writing to a string cannot fail";

/// The page, in Markdown.
pub fn reference() -> String {
    let mut page = String::from(
        "# Configuration keys\n\nGenerated from the key registry. The names are Proxmox VE's own. A key that is not \
         here cannot be declared, is left alone when read, and needs a signature to be changed.\n\n\
         *Applies* says when a change reaches a running guest. *Costs* is what the gate makes of a change: \
         **safe** and **disrupts** run unsigned when declared; **guard**, **root volume**, **TPM**, **detached \
         volume** and **forbidden** need a signature for what loses data or a guard over it; of a **volume** it \
         depends on the change. *Unsigned* says whether a document of a hub may change it that nobody signed, where root takes \
         such documents (`desired_signed = false`); of everything else such a document is held.\n",
    );
    for kind in GuestKind::ALL {
        write!(page, "\n## {kind}\n\n").expect(INFALLIBLE);
        page.push_str(
            "| key | value | if absent | applies | costs | unsigned | privilege | since | |\n",
        );
        page.push_str("|---|---|---|---|---|---|---|---|---|\n");
        for key in table(kind) {
            row(&mut page, key);
        }
        for key in table(kind) {
            parts(&mut page, key);
        }
    }
    page
}

fn row(page: &mut String, key: &Key) {
    let name = match key.slots {
        Some(count) => format!("{}0…{}", key.name, count - 1),
        None => key.name.to_owned(),
    };
    let remark = match key.declared {
        Declarable::Yes => String::new(),
        Declarable::RootOnly => " Only root@pam can set it.".to_owned(),
        Declarable::AtCreation => " Fixed when the guest is created.".to_owned(),
        Declarable::No(why) => format!(" Cannot be declared: {why}."),
    };
    let secret = if key.secret { " Its value is shown and stored nowhere." } else { "" };
    writeln!(
        page,
        "| `{name}` | {} | {} | {} | {} | {} | {} | {} | {}{secret}{remark} |",
        value(&key.format),
        absent(key.absent),
        applies(key.applies),
        costs(key.hazard),
        if key.hub_may { "yes" } else { "held" },
        key.privilege.names().join(", "),
        since(key.releases.from),
        key.doc,
    )
    .expect(INFALLIBLE);
}

fn since(release: crate::model::release::Release) -> String {
    if release == crate::model::release::Release::V7_4 {
        String::new()
    } else {
        release.to_string()
    }
}

/// The parts of a property string, as a list below the table.
fn parts(page: &mut String, key: &Key) {
    let Some(shape) = key.format.shape() else {
        return;
    };
    write!(page, "\n`{}`: ", key.name).expect(INFALLIBLE);
    let told: Vec<String> = shape.parts.iter().map(|part| told(part, shape.bare)).collect();
    writeln!(page, "{}.", told.join("; ")).expect(INFALLIBLE);
}

fn told(part: &FormatPart, bare: Option<&str>) -> String {
    let mut text = format!("`{}` {}", part.name, value(&part.format));
    if bare == Some(part.name) {
        text.push_str(", may stand without its name");
    }
    if part.required {
        text.push_str(", required");
    }
    if part.root_only {
        text.push_str(", only root@pam");
    }
    if part.secret {
        text.push_str(", shown and stored nowhere");
    }
    text
}

pub(super) fn value(format: &ValueFormat) -> String {
    match format {
        ValueFormat::Bool => "boolean".to_owned(),
        ValueFormat::Integer { min, max } | ValueFormat::Weight { min, max } => {
            bounds("integer", *min, *max)
        }
        ValueFormat::Mebibytes { min } => format!("MiB, or a size such as `2GiB`, at least {min}"),
        ValueFormat::Number { max } => bounds("number", 0, *max),
        ValueFormat::Choice(words) => format!("`{}`", words.join("`, `")),
        ValueFormat::Text(_) => "text".to_owned(),
        ValueFormat::Description(_) => "text of several lines".to_owned(),
        ValueFormat::List { .. } => "list, in order".to_owned(),
        ValueFormat::Words { .. } => "list".to_owned(),
        ValueFormat::Tags => "list of tags".to_owned(),
        ValueFormat::Hotplug => "list, `0` or `1`".to_owned(),
        ValueFormat::Boot => "list of devices, in order".to_owned(),
        ValueFormat::Environment => "list of `NAME=value`".to_owned(),
        ValueFormat::SshKeys => "list of public keys".to_owned(),
        ValueFormat::Secret => "a secret".to_owned(),
        ValueFormat::GeneratedUuid => "UUID".to_owned(),
        ValueFormat::Volume => "volume: `STORAGE:GiB`, or the id of one that exists".to_owned(),
        ValueFormat::Size => "size such as `8GiB`".to_owned(),
        ValueFormat::Mac => "MAC address".to_owned(),
        ValueFormat::Cidr4 => "`dhcp`, `manual`, or IPv4 address with prefix".to_owned(),
        ValueFormat::Cidr6 => "`auto`, `dhcp`, `manual`, or IPv6 address with prefix".to_owned(),
        ValueFormat::Ip4 => "IPv4 address".to_owned(),
        ValueFormat::Ip6 => "IPv6 address".to_owned(),
        ValueFormat::Property(_) => "table, or Proxmox VE's own text".to_owned(),
    }
}

fn bounds(noun: &str, min: i64, max: i64) -> String {
    if max == super::UNBOUNDED {
        format!("{noun} from {min}")
    } else {
        format!("{noun}, {min} to {max}")
    }
}

pub(super) fn absent(absent: Absent) -> String {
    match absent {
        Absent::Nothing => String::new(),
        Absent::Bool(on) => on.to_string(),
        Absent::Integer(number) => number.to_string(),
        Absent::Text(text) => format!("`{text}`"),
        Absent::ContainerName => "`CT` and its number".to_owned(),
        Absent::CpuWeight => "100 (cgroup v1: 1024)".to_owned(),
        Absent::ServerFilled => "filled in by Proxmox VE".to_owned(),
    }
}

pub(super) fn applies(applies: Applies) -> &'static str {
    match applies {
        Applies::Live => "live",
        Applies::AtNextStart | Applies::AfterRestart => "after restart",
        Applies::LxcNetwork => "live; `mtu`, `trunks` after restart",
        Applies::LxcMount => "new ones live, else after restart",
        Applies::LxcDevice => "new ones live from 9.0, else after restart",
        Applies::Hotplug(_) => "live if `hotplug` has it, else after restart",
        Applies::Balloon => "live; to and from 0 after restart",
        Applies::HotplugDrive => "throttling live; adding and removing by `hotplug`",
        Applies::HotplugSet => "live; with cpu or memory after restart",
        Applies::LiveSince8 => "live from 8.0",
    }
}

fn costs(hazard: Hazard) -> &'static str {
    match hazard {
        Hazard::Safe => "safe",
        Hazard::Disrupts => "disrupts",
        Hazard::Guard => "guard",
        Hazard::GuestName => "safe; with cloud-init disrupts",
        Hazard::RootVolume => "root volume",
        Hazard::VolumeSlot => "volume",
        Hazard::TpmState => "TPM",
        Hazard::UnusedVolume => "detached volume",
        Hazard::Forbidden => "forbidden",
    }
}
