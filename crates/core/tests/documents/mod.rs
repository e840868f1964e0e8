//! Desired documents made from the registry: good ones by construction, and broken ones.

use evenkeel_core::model::id::GuestKind;
use evenkeel_core::registry::{
    self, Declarable, FormatPart, Key, Rule, Shape, UNBOUNDED, ValueFormat,
};
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Map, Value, json};

/// A document both must accept.
pub(crate) fn good() -> BoxedStrategy<Value> {
    let guest = select(GuestKind::ALL.to_vec()).prop_flat_map(|kind| {
        let keys: Vec<&'static Key> = registry::table(kind)
            .iter()
            .filter(|key| !matches!(key.declared, Declarable::No(_)))
            .collect();
        let fields = prop::collection::vec(select(keys).prop_flat_map(field), 1..4);
        let words = (
            word("run", &["running", "stopped"]),
            word("mode", &["enforce", "observe"]),
            word("stop", &["shutdown", "force"]),
            ignore(kind),
        );
        (Just(kind), fields, unset(kind), words, making(kind))
    });
    (100_u32..=999_999_999, guest)
        .prop_map(|(vmid, (kind, fields, unset, words, making))| {
            let mut guest: Map<String, Value> = fields.into_iter().collect();
            if let Some(into) = making.get("source").and_then(|source| source["into"].as_str()) {
                guest.insert(into.into(), json!({ "storage": "local-lvm", "size": "20GiB" }));
            }
            let unset: Vec<&str> =
                unset.into_iter().filter(|name| !guest.contains_key(*name)).collect();
            guest.insert("unset".into(), json!(unset));
            let (run, mode, stop, ignore) = words;
            // A template does not run.
            let run = run.filter(|(_, run)| {
                run != "running" || making.get("template") != Some(&json!(true))
            });
            guest.extend([run, mode, stop, ignore].into_iter().flatten());
            guest.extend(making);
            guest.insert("kind".into(), kind.as_str().into());
            let mut guests = Map::new();
            guests.insert(vmid.to_string(), guest.into());
            json!({ "guest": guests })
        })
        .boxed()
}

/// A good document, and the same guest spread over defaults, two profiles and its own block, beside a profile that nobody
/// uses. Of the keys that stand in a nearer block some are declared farther away too, as something else.
pub(crate) fn layered() -> BoxedStrategy<(Value, Value)> {
    let chosen = prop::collection::vec((0_usize..4, any::<bool>()), 32);
    (good(), good(), chosen, any::<bool>())
        .prop_map(|(flat, other, chosen, says_kind)| {
            let (vmid, guest) = flat["guest"].as_object().unwrap().iter().next().unwrap();
            let other = other["guest"].as_object().unwrap().values().next().unwrap();
            let kind = guest["kind"].clone();
            // The farthest first: defaults, two profiles, the guest.
            let mut layers = vec![Map::new(); 4];
            let mut chosen = chosen.into_iter().cycle();
            for (name, value) in guest.as_object().unwrap() {
                let (at, hides) = chosen.next().unwrap();
                match name.as_str() {
                    "kind" => {}
                    "unset" => {
                        for key in value.as_array().unwrap() {
                            let (at, _) = chosen.next().unwrap();
                            let unset = layers[at].entry("unset").or_insert_with(|| json!([]));
                            unset.as_array_mut().unwrap().push(key.clone());
                        }
                    }
                    _ => {
                        // What a block says of making and running must hold by itself.
                        let alone = ["first", "run", "source", "template"].contains(&name.as_str());
                        let same_kind = other["kind"] == kind && !alone;
                        let hidden = other.get(name).filter(|_| same_kind && hides && at > 0);
                        if let Some(hidden) = hidden {
                            layers[at - 1].insert(name.clone(), hidden.clone());
                        }
                        layers[at].insert(name.clone(), value.clone());
                    }
                }
            }
            let [defaults, mut first, mut second, mut own] =
                <[Map<String, Value>; 4]>::try_from(layers).unwrap();
            first.insert("kind".into(), kind.clone());
            second.insert("kind".into(), kind.clone());
            if says_kind {
                own.insert("kind".into(), kind.clone());
            }
            own.insert("use".into(), json!(["first", "second"]));
            let layered = json!({
                "defaults": { (kind.as_str().unwrap()): defaults },
                "profile": { "first": first, "second": second, "unused": other },
                "guest": { (vmid.as_str()): own },
            });
            (flat, layered)
        })
        .boxed()
}

/// A document with up to three accidents. Some of them change nothing that counts.
pub(crate) fn broken() -> BoxedStrategy<Value> {
    let accidents = prop::collection::vec((any::<Index>(), any::<Index>(), accident()), 1..4);
    (good(), accidents)
        .prop_map(|(mut document, accidents)| {
            // Whether an image has its disk is nothing a schema could see.
            walk(&mut document, &mut |value| {
                if let Value::Object(entries) = value
                    && entries.get("source").is_some_and(|source| source.get("image").is_some())
                {
                    entries.remove("source");
                }
            });
            for (which, place, accident) in accidents {
                let mut count = 0;
                walk(&mut document, &mut |_| count += 1);
                let chosen = which.index(count);
                let mut at = 0;
                walk(&mut document, &mut |value| {
                    if at == chosen {
                        happen(value, place, &accident);
                    }
                    at += 1;
                });
            }
            document
        })
        .boxed()
}

#[derive(Debug, Clone)]
enum Accident {
    Insert(String),
    Delete,
    Replace(Value),
    Rename(String),
    Repeat,
}

fn accident() -> BoxedStrategy<Accident> {
    let character = select(vec![
        ",",
        ";",
        ":",
        "=",
        "/",
        ".",
        "-",
        "+",
        "0",
        "9",
        "f",
        "G",
        "\"",
        "%",
        "\n",
        " ",
        "\t",
        "\0",
        "é",
        "\u{85}",
        "\u{a0}",
        ",size=1G",
        ",media=cdrom",
        "none",
        "::",
        "1.",
        "local:8",
        "A",
        "%41",
        "-0",
    ]);
    let value = prop_oneof![
        Just(json!(null)),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({})),
        Just(json!("")),
        (-2_i64..2000).prop_map(|number| json!(number)),
        (0_i64..20).prop_map(|half| json!(f64::from(i32::try_from(half).unwrap()) / 2.0)),
        Just(json!(UNBOUNDED)),
        Just(json!(UNBOUNDED + 1)),
        Just(json!("0")),
        Just(json!("1")),
        Just(json!("yes")),
        Just(json!("none")),
        Just(json!("cloudinit")),
        Just(json!("local:vm-1-cloudinit.raw")),
        Just(json!(["0"])),
        Just(json!(["0", "disk"])),
        any_value(),
    ];
    let name = select(vec![
        "net0", "net32", "memory", "size", "file", "storage", "gw", "mp0", "state", "ide2",
        "volume",
    ]);
    prop_oneof![
        4 => character.prop_map(|text| Accident::Insert(text.to_owned())),
        2 => Just(Accident::Delete),
        3 => value.prop_map(Accident::Replace),
        1 => name.prop_map(|name| Accident::Rename(name.to_owned())),
        1 => Just(Accident::Repeat),
    ]
    .boxed()
}

/// A value of some key or part, which is likely the wrong one where it lands.
fn any_value() -> BoxedStrategy<Value> {
    let keys: Vec<&'static Key> = GuestKind::ALL.into_iter().flat_map(registry::table).collect();
    select(keys).prop_flat_map(|key| value(&key.format)).boxed()
}

fn happen(value: &mut Value, place: Index, accident: &Accident) {
    match (accident, value) {
        (Accident::Insert(more), Value::String(text)) => {
            let mut letters: Vec<char> = text.chars().collect();
            let at = place.index(letters.len() + 1);
            letters.splice(at..at, more.chars());
            *text = letters.into_iter().collect();
        }
        (Accident::Delete, Value::String(text)) if !text.is_empty() => {
            let mut letters: Vec<char> = text.chars().collect();
            letters.remove(place.index(letters.len()));
            *text = letters.into_iter().collect();
        }
        (Accident::Repeat, Value::String(text)) => *text = format!("{text},{text}"),
        (Accident::Repeat, Value::Array(items)) => items.extend(items.clone()),
        (Accident::Delete, Value::Array(items)) if !items.is_empty() => {
            items.remove(place.index(items.len()));
        }
        (Accident::Delete | Accident::Rename(_), Value::Object(entries)) if !entries.is_empty() => {
            let name = entries.keys().nth(place.index(entries.len())).unwrap().clone();
            let value = entries.remove(&name).unwrap();
            if let Accident::Rename(new) = accident {
                entries.insert(new.clone(), value);
            }
        }
        (Accident::Replace(new), value) => *value = new.clone(),
        (Accident::Insert(_) | Accident::Delete | Accident::Rename(_) | Accident::Repeat, _) => {}
    }
}

/// Visits a value and all below it.
fn walk(value: &mut Value, visit: &mut impl FnMut(&mut Value)) {
    visit(value);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, visit)),
        Value::Object(entries) => entries.values_mut().for_each(|entry| walk(entry, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn word(
    name: &'static str,
    words: &'static [&'static str],
) -> BoxedStrategy<Option<(String, Value)>> {
    prop::option::of(select(words).prop_map(move |word| (name.to_owned(), json!(word)))).boxed()
}

/// The words about making a guest.
fn making(kind: GuestKind) -> BoxedStrategy<Map<String, Value>> {
    let key = "ssh-ed25519 AAAA[a-z+/]{4}={0,2}( [a-z@%,]{0,5})?";
    let first = (prop::collection::vec(key, 0..3), prop::option::of("[a-z0-9][a-z._-]{0,5}"))
        .prop_map(|(keys, secret)| match secret {
            Some(secret) => json!({ "ssh_keys": keys, "password": { "secret": secret } }),
            None => json!({ "ssh_keys": keys }),
        });
    let switch = || prop::option::of(any::<bool>());
    (prop::option::of(source(kind)), prop::option::of(first), switch(), switch())
        .prop_map(move |(source, first, scratch, template)| {
            // Only what is made from a template gets anything once.
            let is_fresh = source.as_ref().is_none_or(|source| source.get("template").is_some());
            let first = first.filter(|_| is_fresh && kind == GuestKind::Lxc);
            let words = [
                ("source", source),
                ("first", first),
                ("scratch", scratch.map(Value::Bool)),
                ("template", template.map(Value::Bool)),
            ];
            words.into_iter().filter_map(|(word, value)| Some((word.to_owned(), value?))).collect()
        })
        .boxed()
}

fn source(kind: GuestKind) -> BoxedStrategy<Value> {
    let volume = |content: &str| {
        let pattern = format!("local(-lvm)?:{content}/[A-Za-z0-9._:-]{{1,8}}");
        proptest::string::string_regex(&pattern).unwrap()
    };
    let clone = (
        100_u32..999_999_999,
        prop::option::of(any::<bool>()),
        prop::option::of("[a-z][a-z0-9._-]{0,5}[a-z0-9]"),
        prop::option::of("[a-z][a-z0-9_-]{1,5}"),
    );
    let clone = clone.prop_map(|(guest, full, storage, snapshot)| {
        let mut clone = json!({ "clone": guest });
        // A linked clone stays where its source is.
        let storage = storage.filter(|_| full != Some(false));
        let parts = [
            ("full", full.map(Value::from)),
            ("storage", storage.map(Value::from)),
            ("snapshot", snapshot.map(Value::from)),
        ];
        for (part, value) in parts {
            if let Some(value) = value {
                clone[part] = value;
            }
        }
        clone
    });
    let backup = (volume("backup"), prop::option::of(any::<bool>())).prop_map(
        |(volume, unique)| match unique {
            Some(unique) => json!({ "backup": volume, "unique": unique }),
            None => json!({ "backup": volume }),
        },
    );
    match kind {
        GuestKind::Lxc => {
            let template = volume("vztmpl").prop_map(|volume| json!({ "template": volume }));
            prop_oneof![clone, backup, template].boxed()
        }
        GuestKind::Qemu => {
            let image = (volume("import"), "scsi[0-9]|virtio1[0-5]|sata[0-5]|ide[0-3]")
                .prop_map(|(volume, slot)| json!({ "image": volume, "into": slot }));
            let empty = select(vec![json!({}), json!({ "empty": true })]);
            prop_oneof![clone, backup, image, empty].boxed()
        }
    }
}

fn unset(kind: GuestKind) -> BoxedStrategy<Vec<&'static str>> {
    let names: &[&str] = match kind {
        GuestKind::Lxc => {
            &["nameserver", "net1", "mp255", "dev9", "tags", "hostname", "onboot", "features"]
        }
        GuestKind::Qemu => {
            &["ide2", "net31", "scsi30", "cores", "memory", "numa", "numa7", "description"]
        }
    };
    subsequence(names, 0..3).boxed()
}

fn ignore(kind: GuestKind) -> BoxedStrategy<Option<(String, Value)>> {
    let names: &[&str] = match kind {
        GuestKind::Lxc => {
            &["run", "tags", "net0.rate", "net31.tag", "rootfs.size", "mp255", "dev9.uid"]
        }
        GuestKind::Qemu => &["run", "ide2", "net31.rate", "scsi30.cache", "agent.freeze-fs", "vga"],
    };
    let list = subsequence(names, 0..4).prop_map(|names| ("ignore".to_owned(), json!(names)));
    prop::option::of(list).boxed()
}

fn field(key: &'static Key) -> BoxedStrategy<(String, Value)> {
    let name = match key.slots {
        None => Just(key.name.to_owned()).boxed(),
        Some(count) => (0..count).prop_map(|slot| format!("{}{slot}", key.name)).boxed(),
    };
    (name, value(&key.format)).boxed()
}

/// A value in any spelling.
#[expect(clippy::wildcard_enum_match_arm, reason = "everything else is spelled as its text")]
fn value(format: &ValueFormat) -> BoxedStrategy<Value> {
    let plain = text(format).prop_map(Value::String);
    match *format {
        ValueFormat::Bool => {
            prop_oneof![plain, any::<bool>().prop_map(Value::from), (0..2).prop_map(Value::from)]
                .boxed()
        }
        ValueFormat::Integer { min, max } | ValueFormat::Weight { min, max } => {
            prop_oneof![plain, (min..=max).prop_map(Value::from)].boxed()
        }
        ValueFormat::Mebibytes { min } => {
            prop_oneof![plain, (min..=UNBOUNDED).prop_map(Value::from)].boxed()
        }
        ValueFormat::Number { max } => {
            prop_oneof![plain, (0..=max).prop_map(Value::from), Just(json!(1.25)), Just(json!(0.5))]
                .boxed()
        }
        ValueFormat::List { item, .. } | ValueFormat::Words { item, .. } => {
            prop_oneof![plain, list(rule(item))].boxed()
        }
        ValueFormat::Tags => prop_oneof![plain, list(rule(Rule::Tag))].boxed(),
        ValueFormat::Hotplug => {
            prop_oneof![plain, list(hotplug_word()), any::<bool>().prop_map(Value::from)].boxed()
        }
        ValueFormat::Boot => prop_oneof![plain, list(rule(Rule::Device))].boxed(),
        ValueFormat::Environment => {
            prop_oneof![plain, list("[A-Z_]{1,5}=[a-z =\t]{0,5}".boxed())].boxed()
        }
        ValueFormat::SshKeys => {
            prop_oneof![plain, list("ssh-ed25519 AAAA[a-z]{4}( [a-z@%]{1,5})?".boxed())].boxed()
        }
        ValueFormat::Property(shape) => prop_oneof![plain, table(shape)].boxed(),
        _ => plain.boxed(),
    }
}

fn list(item: BoxedStrategy<String>) -> BoxedStrategy<Value> {
    prop::collection::vec(item, 0..4).prop_map(Value::from).boxed()
}

fn hotplug_word() -> BoxedStrategy<String> {
    "network|disk|cpu|memory|usb|cloudinit".boxed()
}

fn text(format: &ValueFormat) -> BoxedStrategy<String> {
    match *format {
        ValueFormat::Bool => "[01]|[oO][nN]|off|YES|no|[Tt]rue|FALSE".boxed(),
        ValueFormat::Integer { min, max } | ValueFormat::Weight { min, max } => {
            ("0{0,2}", min..=max).prop_map(|(zeros, number)| format!("{zeros}{number}")).boxed()
        }
        ValueFormat::Mebibytes { min } => {
            let bare = (min..100_000).prop_map(|number| number.to_string());
            prop_oneof![bare, sized(17)].boxed()
        }
        ValueFormat::Number { max } => {
            let whole = (0..=max).prop_map(|number| number.to_string());
            prop_oneof![whole, "[0-9]{1,2}\\.[0-9]{0,5}", "\\.[0-9]{1,5}"].boxed()
        }
        ValueFormat::Choice(words) => select(words).prop_map(str::to_owned).boxed(),
        ValueFormat::Text(item) => rule(item),
        ValueFormat::Description(_) => "[ a-zé\n]{0,10}[a-z1-9]".boxed(),
        ValueFormat::List { item, .. } => joined(rule(item), "[,; \n]{1,2}"),
        ValueFormat::Words { item, .. } => joined(rule(item), "[; ]"),
        ValueFormat::Tags => joined(rule(Rule::Tag), "[,; ]{1,3}"),
        ValueFormat::Hotplug => {
            prop_oneof![joined(hotplug_word(), "[,;]"), Just("0".to_owned()), Just("1".to_owned())]
                .boxed()
        }
        ValueFormat::Boot => {
            let order =
                joined(rule(Rule::Device), ";").prop_map(|devices| format!("order={devices}"));
            prop_oneof![order, "(legacy=)?[acdn]{1,4}"].boxed()
        }
        ValueFormat::Environment => joined("[A-Z_]{1,5}=[a-z =]{0,5}".boxed(), "\0"),
        ValueFormat::SshKeys => {
            "ssh-ed25519%20AAAA[a-z]{4}|(ssh-rsa AAAA[a-z]{4} me\n){1,2}".boxed()
        }
        ValueFormat::Secret => ".{1,8}".boxed(),
        ValueFormat::GeneratedUuid => {
            "1|[0-9a-fA-F]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}".boxed()
        }
        ValueFormat::Volume => volume(false),
        ValueFormat::Size => sized(0),
        ValueFormat::Mac => "[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}".boxed(),
        ValueFormat::Cidr4 => {
            let fixed = (any::<std::net::Ipv4Addr>(), 8..=32)
                .prop_map(|(address, prefix)| format!("{address}/{prefix}"));
            prop_oneof![fixed, Just("dhcp".to_owned()), Just("manual".to_owned())].boxed()
        }
        ValueFormat::Cidr6 => {
            let fixed =
                (address6(), 8..=128).prop_map(|(address, prefix)| format!("{address}/{prefix}"));
            prop_oneof![3 => fixed, 1 => "auto|dhcp|manual"].boxed()
        }
        ValueFormat::Ip4 => {
            any::<std::net::Ipv4Addr>().prop_map(|address| address.to_string()).boxed()
        }
        ValueFormat::Ip6 => address6(),
        ValueFormat::Property(shape) => property(shape),
    }
}

/// Addresses with zeros in many places, so that `::` wanders.
fn address6() -> BoxedStrategy<String> {
    let groups = prop::array::uniform8(prop_oneof![2 => Just(0_u16), 1 => any::<u16>()]);
    groups.prop_map(|groups| std::net::Ipv6Addr::from(groups).to_string()).boxed()
}

fn sized(least_mib: i64) -> BoxedStrategy<String> {
    let large = (least_mib..9000, select(vec!["M", "MiB", "G", "GiB", " MiB", "T", "TiB"]));
    let fraction = "[1-9]\\.[0-9]{1,4} ?(GiB|TiB|G)";
    prop_oneof![large.prop_map(|(number, unit)| format!("{number}{unit}")), fraction].boxed()
}

fn joined(item: BoxedStrategy<String>, separator: &'static str) -> BoxedStrategy<String> {
    (prop::collection::vec(item, 0..4), separator)
        .prop_map(|(items, separator)| items.join(&separator))
        .boxed()
}

fn rule(rule: Rule) -> BoxedStrategy<String> {
    match rule {
        Rule::Line => "[ -+.-~é]{1,8}",
        Rule::DnsName => "[a-z0-9]([a-zA-Z0-9-]{0,5}[a-z0-9])?(\\.[a-z]{1,5}){0,2}",
        Rule::Address => return prop_oneof![address6(), text(&ValueFormat::Ip4), "fe80::[1-9]%[a-z]{3}0"].boxed(),
        Rule::Tag => "[a-z0-9_][A-Za-z0-9_+.-]{0,5}",
        Rule::ConfigId => "[a-zA-Z][a-z0-9_.-]{1,8}",
        Rule::Interface => "[a-z0-9_.-]{1,8}",
        Rule::VolumeId => "local(-lvm)?:[a-z]{1,8}/[A-Za-z0-9._:-]{1,8}",
        Rule::Path => "/[a-z]{0,4}(/[a-z= é]{1,5}){0,2}",
        Rule::Range => "[0-9]{1,4}(-[0-9]{1,4})?",
        Rule::FileMode => "0[0-7]{3}",
        Rule::TimeZone => "host|Europe/[A-Z][a-z]{2,6}|Etc/GMT[+-][0-9]",
        Rule::Machine => "pc|q35|virt|pc-(i440fx-|q35-)?[0-9]\\.[0-9](\\.[0-9])?(\\+pve[0-9])?(\\.pxe)?|virt-[0-9]\\.1",
        Rule::Word => "[A-Za-z0-9_.+:-]{1,8}",
        Rule::UrlEncoded => "([A-Za-z0-9_.~()'*!-]|%20|%C3%a9|%e2%82%AC|%F0%9F%98%80){1,5}",
        Rule::Device => "(scsi|net|ide|usb)[0-9]{1,2}",
        Rule::Number => "[0-9]{1,4}",
        Rule::MountOption => "discard|lazytime|noatime|nodev|noexec|nosuid",
        Rule::SerialPort => "socket|/dev/tty[A-Z][0-9]",
        Rule::ParallelPort => "/dev/(parport|usb/lp)[0-9]",
        Rule::StartDate => "now|[0-9]{4}-[0-9]{1,2}-[0-9]{2}(T[0-9]{1,2}:[0-9]{2}:[0-9])?",
        Rule::WorldWideName => "0x[0-9a-fA-F]{16}",
        Rule::UsbHost => "[Ss]pice|(0x)?[0-9a-f]{4}:[0-9A-F]{4}|[0-9]-[0-9](\\.[0-9]){0,2}",
        Rule::ScsiVendor => "[A-Za-z0-9_ -]{1,8}",
        Rule::ScsiProduct => "[A-Za-z0-9_ -]{1,16}",
    }
    .boxed()
}

fn volume(may_be_cdrom: bool) -> BoxedStrategy<String> {
    let fresh = "[a-z]{2,5}:[0-9]{1,3}(\\.[0-9]{0,3})?";
    let existing = "local:[1-9]00/vm-100-disk-[0-9]{6}\\.(raw|qcow2)|tank:(base-1-disk-0/)?vm-1-disk-[0-9]{6}|local:1\\.2[a-z]{6}|/dev/[a-z]{2,4}";
    if may_be_cdrom {
        prop_oneof![fresh, existing, "none|cdrom|local:cloudinit|local:1/vm-1-cloudinit\\.qcow2"]
            .boxed()
    } else {
        prop_oneof![fresh, existing].boxed()
    }
}

/// The parts of a property string that may stand together.
fn parts(shape: &'static Shape, table: bool) -> BoxedStrategy<Vec<&'static FormatPart>> {
    let optional: Vec<&'static FormatPart> =
        shape.parts.iter().filter(|part| !part.required && part.instead.is_none()).collect();
    let most = optional.len().min(5);
    let required: Vec<&'static FormatPart> =
        shape.parts.iter().filter(|part| part.required).collect();
    subsequence(optional, 0..=most)
        .prop_map(move |mut chosen| {
            // A gateway needs a fixed address; a new volume has one size and is no CD-ROM; only a new one has a
            // format that is chosen.
            chosen.retain(|part| !matches!(part.name, "format" | "gw" | "gw6" | "media"));
            chosen.retain(|part| !(table && part.name == "size"));
            chosen.extend(&required);
            chosen
        })
        .prop_shuffle()
        .boxed()
}

fn names(part: &'static FormatPart) -> BoxedStrategy<String> {
    let names = [&[part.name], part.aliases].concat();
    select(names).prop_map(str::to_owned).boxed()
}

fn property(shape: &'static Shape) -> BoxedStrategy<String> {
    let cdrom = shape.part("media").is_some();
    let piece = move |part: &'static FormatPart| {
        let value = if matches!(part.format, ValueFormat::Volume) {
            volume(cdrom)
        } else {
            text(&part.format)
                .prop_filter("a part has a value without commas", |text| {
                    !text.is_empty() && !text.contains(',')
                })
                .boxed()
        };
        let bare = shape.bare == Some(part.name);
        (any::<bool>(), names(part), value).prop_map(move |(short, name, value)| {
            if bare && short && !value.contains('=') { value } else { format!("{name}={value}") }
        })
    };
    parts(shape, false)
        .prop_flat_map(move |parts| parts.into_iter().map(piece).collect::<Vec<_>>())
        .prop_map(|pieces| pieces.join(","))
        .boxed()
}

fn table(shape: &'static Shape) -> BoxedStrategy<Value> {
    let cdrom = shape.part("media").is_some();
    let entry = move |part: &'static FormatPart| -> BoxedStrategy<Vec<(String, Value)>> {
        if matches!(part.format, ValueFormat::Volume) {
            let named =
                (names(part), volume(cdrom)).prop_map(|(name, volume)| vec![(name, json!(volume))]);
            let storage = (rule(Rule::ConfigId), sized(1)).prop_map(|(storage, size)| {
                vec![("storage".to_owned(), json!(storage)), ("size".to_owned(), json!(size))]
            });
            if !cdrom {
                return prop_oneof![named, storage].boxed();
            }
            let drive = rule(Rule::ConfigId).prop_map(|storage| {
                vec![("storage".to_owned(), json!(storage)), ("cloudinit".to_owned(), json!(true))]
            });
            return prop_oneof![named, storage, drive].boxed();
        }
        (names(part), value(&part.format)).prop_map(|entry| vec![entry]).boxed()
    };
    parts(shape, true)
        .prop_flat_map(move |parts| parts.into_iter().map(entry).collect::<Vec<_>>())
        .prop_map(|entries| Value::Object(entries.into_iter().flatten().collect()))
        .boxed()
}
