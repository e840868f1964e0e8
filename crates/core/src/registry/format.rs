//! The words the registry is written in: value formats, property strings and what absence means.
//!
//! Pure data. Reading, printing and comparing values of a format live in `value/`; classes and
//! effects in `classify.rs` and `effect.rs`. Nothing here knows a single key.

use super::Releases;

/// The largest number where PVE's schema names none: as many nines as a double holds exactly, so that
/// editors, which read JSON numbers as doubles, draw the same line.
pub const UNBOUNDED: i64 = 999_999_999_999_999;

/// How a value is spelled and compared.
#[derive(Debug, Clone, Copy)]
pub enum ValueFormat {
    /// 0 or 1; inside property strings also words.
    Bool,
    /// A whole number within bounds.
    Integer {
        /// The smallest PVE takes.
        min: i64,
        /// The largest PVE takes.
        max: i64,
    },
    /// A CPU weight: PVE stores at most 10000 where the host has cgroup v2.
    Weight {
        /// The smallest PVE takes.
        min: i64,
        /// The largest PVE takes.
        max: i64,
    },
    /// Memory in MiB; people may add a unit.
    Mebibytes {
        /// The smallest PVE takes.
        min: i64,
    },
    /// A decimal number, zero or more.
    Number {
        /// The largest PVE takes.
        max: i64,
    },
    /// One word out of a list.
    Choice(&'static [&'static str]),
    /// Text under a rule.
    Text(Rule),
    /// Free text whose trailing white space PVE does not keep.
    Description(Trailing),
    /// An ordered list, split on commas, semicolons and blanks.
    List {
        /// The rule for each item.
        item: Rule,
        /// What joins the items when written.
        separator: char,
    },
    /// An unordered list of words, e.g. trunks or mount options.
    Words {
        /// The rule for each item.
        item: Rule,
        /// What joins the items when written.
        separator: char,
    },
    /// Tags: a set, without case unless the datacenter says otherwise.
    Tags,
    /// The hot-plug set, with its aliases `0` and `1`.
    Hotplug,
    /// `order=scsi0;net0`, or the legacy letters.
    Boot,
    /// Environment of a container: `NAME=value` items joined by NUL.
    Environment,
    /// Percent-encoded SSH public keys, one a line.
    SshKeys,
    /// A value PVE never shows again.
    Secret,
    /// A UUID; `1` asks PVE to make one.
    GeneratedUuid,
    /// A volume: `STORAGE:NAME`, `STORAGE:GiB`, `none`, or a path on the host.
    Volume,
    /// The size of a volume.
    Size,
    /// A MAC address.
    Mac,
    /// An IPv4 address with prefix length, or one of the words.
    Cidr4,
    /// An IPv6 address with prefix length, or one of the words.
    Cidr6,
    /// An IPv4 address.
    Ip4,
    /// An IPv6 address.
    Ip6,
    /// A comma-separated list of named parts.
    Property(&'static Shape),
}

impl ValueFormat {
    /// The shape of a property string; none for every other format.
    pub fn shape(&self) -> Option<&'static Shape> {
        if let Self::Property(shape) = self { Some(shape) } else { None }
    }

    /// The items of a list, and what joins them; none where a list makes no sense.
    pub(crate) fn items(&self) -> Option<(ListItem, char)> {
        match *self {
            Self::List { item, separator } | Self::Words { item, separator } => {
                Some((ListItem::Ruled(item), separator))
            }
            Self::Tags => Some((ListItem::Ruled(Rule::Tag), ';')),
            Self::Hotplug => Some((ListItem::HotplugWord, ',')),
            Self::Boot => Some((ListItem::BootDevice, ';')),
            Self::Environment => Some((ListItem::Variable, '\0')),
            Self::SshKeys => Some((ListItem::SshKey, '\n')),
            Self::Bool
            | Self::Integer { .. }
            | Self::Weight { .. }
            | Self::Mebibytes { .. }
            | Self::Number { .. }
            | Self::Choice(_)
            | Self::Text(_)
            | Self::Description(_)
            | Self::Secret
            | Self::GeneratedUuid
            | Self::Volume
            | Self::Size
            | Self::Mac
            | Self::Cidr4
            | Self::Cidr6
            | Self::Ip4
            | Self::Ip6
            | Self::Property(_) => None,
        }
    }
}

/// One item of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListItem {
    /// Text under a rule.
    Ruled(Rule),
    /// A feature of the hot-plug set.
    HotplugWord,
    /// A device to boot from.
    BootDevice,
    /// `NAME=value`.
    Variable,
    /// An SSH public key.
    SshKey,
}

/// What a text must look like. Checked on what people declare, never on what PVE stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Anything on one line.
    Line,
    /// A DNS name.
    DnsName,
    /// An IP address, optionally with `%interface`.
    Address,
    /// A tag.
    Tag,
    /// A storage or configuration id: a letter, then letters, digits, `-`, `_`, `.`.
    ConfigId,
    /// An interface or bridge name.
    Interface,
    /// A volume id, `STORAGE:NAME`.
    VolumeId,
    /// An absolute path.
    Path,
    /// A number, or a range of numbers.
    Range,
    /// Four octal digits, the first of them 0.
    FileMode,
    /// A time zone, or `host`.
    TimeZone,
    /// A QEMU machine type.
    Machine,
    /// A word of letters, digits and `-_.+`.
    Word,
    /// Percent-encoded text.
    UrlEncoded,
    /// A guest device such as `scsi0`.
    Device,
    /// Digits.
    Number,
    /// An option PVE lets a container's mount have.
    MountOption,
    /// `socket`, or a device of the host.
    SerialPort,
    /// A parallel port of the host.
    ParallelPort,
    /// `now`, or a date with or without a time.
    StartDate,
    /// A world wide name: `0x` and 16 hex digits.
    WorldWideName,
    /// `spice`, VENDOR:PRODUCT, or BUS-PORT.
    UsbHost,
    /// What a SCSI disk says its vendor is: at most 8 characters.
    ScsiVendor,
    /// What a SCSI disk says it is: at most 16 characters.
    ScsiProduct,
}

/// Which trailing characters of a description PVE drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trailing {
    /// LXC: newlines.
    Newlines,
    /// QEMU: all white space.
    WhiteSpace,
}

/// What it means that a key or part is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// Nothing equals absence.
    Nothing,
    /// The same as this boolean.
    Bool(bool),
    /// The same as this number.
    Integer(i64),
    /// The same as this text.
    Text(&'static str),
    /// A container without a host name is called `CT` and its number.
    ContainerName,
    /// CPU weight: 100 with cgroup v2, 1024 with v1.
    CpuWeight,
    /// PVE fills it in by itself, so that not wanting it matches whatever is there.
    ServerFilled,
}

/// A property string: `a=1,b=2`, with at most one part that may stand without its name.
#[derive(Debug)]
pub struct Shape {
    /// The part whose name may be left out.
    pub bare: Option<&'static str>,
    /// The parts, sorted by name.
    pub parts: &'static [FormatPart],
    /// A part that switches the whole: when it is off, the rest does not matter.
    pub switch: Option<&'static str>,
    /// QEMU's network spelling `virtio=MAC`: the model's name stands for `model=virtio,macaddr=MAC`.
    pub model_is_key: bool,
}

/// One part of a property string.
#[derive(Debug, Clone, Copy)]
pub struct FormatPart {
    /// Its name.
    pub name: &'static str,
    /// Other names PVE takes for it.
    pub aliases: &'static [&'static str],
    /// How its value is spelled.
    pub format: ValueFormat,
    /// What its absence means.
    pub absent: Absent,
    /// Whether it counts when values are compared.
    pub compared: Compared,
    /// Whether PVE refuses the value without it.
    pub required: bool,
    /// Whether only root@pam may set it.
    pub root_only: bool,
    /// Whether its value must be shown and stored nowhere: `secret.rs` asks.
    pub secret: bool,
    /// What to declare instead, for a part that PVE stores as something else.
    pub instead: Option<&'static str>,
    /// Where it exists.
    pub releases: Releases,
}

/// When a part counts in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// Always.
    Always,
    /// Only when it is declared: PVE fills it in by itself (a MAC, a size).
    WhenDeclared,
    /// Never: it is PVE's own note.
    Never,
}

impl Shape {
    /// A shape whose parts all carry their names.
    pub(super) const fn new(parts: &'static [FormatPart]) -> Self {
        Self { bare: None, parts, switch: None, model_is_key: false }
    }

    /// Names the part that may stand alone.
    pub(super) const fn bare(mut self, name: &'static str) -> Self {
        self.bare = Some(name);
        self
    }

    /// Names the part that switches the whole.
    pub(super) const fn switch(mut self, name: &'static str) -> Self {
        self.switch = Some(name);
        self
    }

    /// Allows `virtio=MAC`.
    pub(super) const fn model_is_key(mut self) -> Self {
        self.model_is_key = true;
        self
    }

    /// The part of a property's own name, which is one of this shape's.
    pub(crate) fn named(&self, name: &str) -> &'static FormatPart {
        let at = self.parts.binary_search_by(|part| part.name.cmp(name));
        &self.parts[at.expect("a property has only parts of its shape")]
    }

    /// The part of that name or alias.
    pub fn part(&self, name: &str) -> Option<&'static FormatPart> {
        self.parts.iter().find(|part| part.name == name || part.aliases.contains(&name))
    }
}

/// A part with nothing special about it.
pub(super) const fn part(name: &'static str, format: ValueFormat) -> FormatPart {
    FormatPart {
        name,
        aliases: &[],
        format,
        absent: Absent::Nothing,
        compared: Compared::Always,
        required: false,
        root_only: false,
        secret: false,
        instead: None,
        releases: Releases::ALL,
    }
}

/// A boolean part that is off when absent.
pub(super) const fn flag(name: &'static str) -> FormatPart {
    part(name, ValueFormat::Bool).absent(Absent::Bool(false))
}

impl FormatPart {
    pub(super) const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    pub(super) const fn absent(mut self, absent: Absent) -> Self {
        self.absent = absent;
        self
    }

    pub(super) const fn when_declared(mut self) -> Self {
        self.compared = Compared::WhenDeclared;
        self
    }

    pub(super) const fn never_compared(mut self) -> Self {
        self.compared = Compared::Never;
        self
    }

    pub(super) const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub(super) const fn root_only(mut self) -> Self {
        self.root_only = true;
        self
    }

    pub(super) const fn instead(mut self, other: &'static str) -> Self {
        self.instead = Some(other);
        self
    }

    pub(super) const fn releases(mut self, releases: Releases) -> Self {
        self.releases = releases;
        self
    }
}
