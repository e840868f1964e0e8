//! Keys that containers and virtual machines have alike, each stated once. `lxc.rs` and `qemu.rs` have a row for each and add
//! what is theirs.

use super::format::{Absent, Rule, Shape, Trailing, ValueFormat};
use super::{Declarable, Hazard, Key, Privilege, key, parts};

pub(super) const HOOK_SCRIPT: Key = key(
    "hookscript",
    ValueFormat::Text(Rule::VolumeId),
    "Script run on the host at start and stop.",
)
.live()
.hazard(Hazard::Forbidden)
.root_only();

pub(super) const ON_BOOT: Key = key("onboot", ValueFormat::Bool, "Start when the host starts.")
    .absent(Absent::Bool(false))
    .live();

pub(super) const STARTUP: Key =
    key("startup", ValueFormat::Property(&parts::STARTUP), "Start and stop order with the host.")
        .live();

pub(super) const TAGS: Key =
    key("tags", ValueFormat::Tags, "Tags shown in the web interface.").live();

pub(super) const fn cpu_limit(max: i64) -> Key {
    key("cpulimit", ValueFormat::Number { max }, "CPU time limit in cores; 0 is no limit.")
        .absent(Absent::Integer(0))
        .live()
        .privilege(Privilege::Cpu)
        .hub_may()
}

pub(super) const fn cpu_units(min: i64, max: i64) -> Key {
    key("cpuunits", ValueFormat::Weight { min, max }, "CPU weight against other guests.")
        .absent(Absent::CpuWeight)
        .live()
        .privilege(Privilege::Cpu)
        .hub_may()
}

pub(super) const fn description(trailing: Trailing) -> Key {
    key("description", ValueFormat::Description(trailing), "Notes shown in the web interface.")
        .live()
        .hub_may()
}

pub(super) const fn protection(doc: &'static str) -> Key {
    key("protection", ValueFormat::Bool, doc)
        .absent(Absent::Bool(false))
        .live()
        .hazard(Hazard::Guard)
        .hub_may()
}

pub(super) const fn template(doc: &'static str) -> Key {
    key("template", ValueFormat::Bool, doc)
        .absent(Absent::Bool(false))
        .disrupts()
        .declared(Declarable::No("a guest becomes a template by converting it, not by this flag"))
}

pub(super) const fn unused(shape: &'static Shape) -> Key {
    key("unused", ValueFormat::Property(shape), "A detached volume.")
        .slots(256)
        .hazard(Hazard::UnusedVolume)
        .declared(Declarable::No(
            "a detached volume is removed by a signed delete_volume, not by a file",
        ))
}
