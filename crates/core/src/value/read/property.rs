//! Property strings: `a=1,b=2` to parts by name, and what must hold between the parts.
//!
//! Called by `read` for whole texts, and by the desired checker for the tables people write instead.
//! It must never panic on what PVE stores, however odd.

use super::{ReadSide, volume};
use crate::model::quantity::Bytes;
use crate::registry::{FormatPart, Shape, ValueFormat, alias};
use crate::value::{Misfit, Property, Value, VolumeRef};
use crate::words::diagnostic::did_you_mean;

pub(super) fn read(shape: &Shape, text: &str, side: ReadSide) -> Result<Property, Misfit> {
    let mut property = Property::default();
    let mut given = NamedParts::default();
    for piece in text.split(',').filter(|piece| !piece.is_empty()) {
        match piece.split_once('=') {
            Some((name, "")) if side != ReadSide::Stored && shape.part(name).is_some() => {
                return Err(Misfit::new(format!("`{name}` has no value"))
                    .piece(piece)
                    .hint(format!("write {name}=… with its value, or leave it out")));
            }
            Some((name, value)) => {
                let part = shape.part(name).map(|part| part.name);
                named_part(shape, (&mut property, &mut given), name, value, side)
                    .map_err(|misfit| Misfit { part, ..misfit })
            }
            None => match shape.bare {
                Some(name) => {
                    // Of a few words it helps to say what they are: a model, a CPU type.
                    let part = shape.part(name);
                    let part = part.filter(|part| matches!(part.format, ValueFormat::Choice(_)));
                    let part = part.map(|part| part.name);
                    named_part(shape, (&mut property, &mut given), name, piece, side)
                        .map_err(|misfit| Misfit { part, ..misfit })
                }
                None => Err(nameless(shape, piece)),
            },
        }
        .map_err(|misfit| Misfit {
            piece: misfit.piece.or_else(|| Some(piece.to_owned())),
            ..misfit
        })?;
    }
    finish(shape, &mut property, side)?;
    Ok(property)
}

/// The refusal of a piece without a name where every part has one.
fn nameless(shape: &Shape, piece: &str) -> Misfit {
    let misfit = Misfit::new("every part must look like name=value");
    match shape.part(piece) {
        Some(FormatPart { format: ValueFormat::Bool, .. }) => {
            misfit.hint(format!("write {piece}=1"))
        }
        Some(_) => misfit.hint(format!("write {piece}= and its value")),
        None => misfit,
    }
}

/// Reads one `name=value` into the property.
fn named_part(
    shape: &Shape,
    (property, given): (&mut Property, &mut NamedParts),
    name: &str,
    value: &str,
    side: ReadSide,
) -> Result<(), Misfit> {
    if let Some(part) = shape.part(name) {
        given.once(part, side)?;
        return set_part(property, part, value, side);
    }
    if let Some(model) = shape.model_is_key.then(|| model_part(shape, name)).flatten() {
        given.once(model, side)?;
        set_part(property, model, name, side)?;
        let mac = shape.part("macaddr").expect("a shape with models has macaddr");
        given.once(mac, side)?;
        return set_part(property, mac, value, side);
    }
    match side {
        ReadSide::Stored | ReadSide::Written => property.push_unknown(name, value),
        ReadSide::Declared => return Err(unknown_part(shape, name)),
    }
    Ok(())
}

/// The model part, if a name is one of its models.
fn model_part(shape: &Shape, name: &str) -> Option<&'static FormatPart> {
    let part = shape.part("model")?;
    matches!(part.format, ValueFormat::Choice(models) if models.contains(&name)).then_some(part)
}

/// The refusal of a part nobody knows.
pub(crate) fn unknown_part(shape: &Shape, name: &str) -> Misfit {
    Misfit::new(format!("it has no part `{name}`")).piece(name).hint(part_advice(shape, name))
}

/// What to write instead of a part that a shape does not have.
pub(crate) fn part_advice(shape: &Shape, name: &str) -> String {
    let names: Vec<&str> = shape.parts.iter().map(|part| part.name).collect();
    if let Some(meant) = alias::part(shape, name) {
        return format!("write `{meant}`");
    }
    if let Some(elsewhere) = alias::part_elsewhere(shape, name) {
        return elsewhere.to_owned();
    }
    match did_you_mean(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("its parts are {}", names.join(", ")),
    }
}

/// The parts a text has named so far.
#[derive(Default)]
struct NamedParts(Vec<&'static str>);

impl NamedParts {
    /// Refuses a part that was given before. What PVE stores may repeat one: the last counts.
    fn once(&mut self, part: &'static FormatPart, side: ReadSide) -> Result<(), Misfit> {
        if side != ReadSide::Stored && self.0.contains(&part.name) {
            return Err(Misfit::new("it is given twice").hint("keep one of the two"));
        }
        self.0.push(part.name);
        Ok(())
    }
}

fn set_part(
    property: &mut Property,
    part: &'static FormatPart,
    text: &str,
    side: ReadSide,
) -> Result<(), Misfit> {
    let in_part =
        |misfit: Misfit| Misfit { piece: misfit.piece.or_else(|| Some(text.to_owned())), ..misfit };
    if side == ReadSide::Declared {
        declarable(part)?;
    }
    if matches!(part.format, ValueFormat::Volume) {
        return set_volume(property, part, text, side).map_err(in_part);
    }
    let value = super::read(&part.format, text, side).map_err(in_part)?;
    let fresh = matches!(property.volume(), Some(VolumeRef::Fresh { .. }));
    if part.name == "size" && fresh {
        // `STORAGE:8,size=99G` allocates 8 GiB: PVE does not look at the size.
        return Ok(());
    }
    property.set(part.name, value);
    Ok(())
}

/// Refuses a part that PVE would store as something else.
pub(crate) fn declarable(part: &FormatPart) -> Result<(), Misfit> {
    let Some(instead) = part.instead else {
        return Ok(());
    };
    let why = format!("Proxmox VE does not store `{}` as it is given", part.name);
    Err(Misfit::new(why).piece(part.name).hint(format!("declare `{instead}` instead")))
}

/// Reads a declared volume into its part, and the size it asks for into `size`.
pub(crate) fn declared_volume(
    property: &mut Property,
    part: &'static FormatPart,
    text: &str,
) -> Result<(), Misfit> {
    if text.contains(',') {
        return Err(comma());
    }
    set_volume(property, part, text, ReadSide::Declared)
}

/// PVE ends a part at a comma and knows no way to quote one.
pub(crate) fn comma() -> Misfit {
    Misfit::new("it must not contain a comma, which would end it").piece(",")
}

fn set_volume(
    property: &mut Property,
    part: &'static FormatPart,
    text: &str,
    side: ReadSide,
) -> Result<(), Misfit> {
    let (volume, size) = volume(text, side)?;
    property.set(part.name, Value::Volume(volume.into()));
    if let Some(size) = size {
        property.set("size", Value::Size(size));
    }
    Ok(())
}

/// Whether a volume makes its drive a CD-ROM.
fn is_cdrom(volume: &VolumeRef) -> bool {
    match volume {
        VolumeRef::Empty | VolumeRef::HostCdrom | VolumeRef::CloudInit { .. } => true,
        VolumeRef::Fresh { .. } | VolumeRef::Existing { .. } | VolumeRef::Path(_) => false,
    }
}

/// Turns the parts into normal form: nothing that says what absence says.
pub(crate) fn normalise(shape: &Shape, property: &mut Property) {
    if shape.part("media").is_some() && property.volume().is_some_and(is_cdrom) {
        property.set("media", Value::text("cdrom"));
    }
    if property.is_cdrom() {
        property.remove("size");
    }
    if let (Some(VolumeRef::Fresh { .. }), Some(size)) = (property.volume(), property.size()) {
        // LXC allocates whole MiB, QEMU whole KiB, however the size was spelled.
        let unit = if property.get("volume").is_some() { Bytes::MIB } else { Bytes::KIB };
        property.set("size", Value::Size(Bytes(size.0 / unit * unit)));
    }
    property.parts.retain(|(name, value)| {
        // `STORAGE:8` brings a size along even where the shape has none.
        let part = shape.part(name);
        part.is_some_and(|part| {
            !value.is_empty() && !crate::value::compare::says_nothing(part.absent, value)
        })
    });
    if shape.switch.is_some_and(|switch| property.get(switch).is_none()) {
        property.parts.clear();
    }
}

fn finish(shape: &Shape, property: &mut Property, side: ReadSide) -> Result<(), Misfit> {
    if side != ReadSide::Stored {
        require(shape, property)?;
    }
    if side == ReadSide::Declared {
        goes_together(property)?;
    }
    normalise(shape, property);
    Ok(())
}

/// Refuses a declared property that lacks what PVE requires.
pub(crate) fn require(shape: &Shape, property: &Property) -> Result<(), Misfit> {
    for part in shape.parts {
        if part.required && property.get(part.name).is_none() {
            let example = crate::registry::example(part.name, &part.format);
            return Err(Misfit::new(format!("it needs a `{}` part", part.name))
                .hint(format!("add {} = {example}", part.name)));
        }
    }
    if shape.part("media").is_none() && property.volume().is_some_and(is_cdrom) {
        return Err(Misfit::new("only a drive can be a CD-ROM or hold cloud-init")
            .hint("name a storage and a size for a new volume, or a volume that exists"));
    }
    for (gateway, address) in [("gw", "ip"), ("gw6", "ip6")] {
        let fixed = matches!(property.get(address), Some(Value::Text(text)) if text.contains('/'));
        if property.get(gateway).is_some() && shape.part(address).is_some() && !fixed {
            let example = crate::registry::example(address, &ValueFormat::Cidr4);
            return Err(Misfit::new(format!("`{gateway}` needs a fixed address in `{address}`"))
                .piece(format!("{gateway}="))
                .hint(format!("write {address} = {example}, or leave `{gateway}` out")));
        }
    }
    Ok(())
}

/// Refuses parts of a declared property that do not go together. The storage knows the format of a volume that
/// exists; another one would make QEMU read what the guest wrote as the description of a disk.
pub(crate) fn goes_together(property: &Property) -> Result<(), Misfit> {
    let exists = match property.volume() {
        Some(VolumeRef::Fresh { .. } | VolumeRef::CloudInit { .. }) | None => false,
        Some(
            VolumeRef::Existing { .. }
            | VolumeRef::Path(_)
            | VolumeRef::Empty
            | VolumeRef::HostCdrom,
        ) => true,
    };
    if exists && property.get("format").is_some() {
        let why = "`format` is for a new volume: the storage knows the format of one that exists";
        return Err(Misfit::new(why).piece("format").hint("leave `format` out"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::GuestKind;
    use crate::registry;
    use crate::value::print;
    use crate::value::read::{declared, stored};

    fn format(kind: GuestKind, name: &str) -> ValueFormat {
        registry::find(kind, name).unwrap().key().format
    }

    #[test]
    fn a_cdrom_where_no_drive_is_is_refused_when_declared_and_read_when_stored() {
        for (kind, name, rest) in [
            (GuestKind::Lxc, "mp0", ",mp=/x"),
            (GuestKind::Lxc, "rootfs", ""),
            (GuestKind::Qemu, "efidisk0", ""),
        ] {
            for volume in ["none", "cdrom", "local:cloudinit", "local:vm-101-cloudinit"] {
                let text = format!("{volume}{rest}");
                assert!(declared(&format(kind, name), &text).is_err(), "{name} {text}");
                assert!(
                    stored(&format(kind, name), &text).as_property().is_some(),
                    "{name} {text}"
                );
            }
        }
    }

    #[test]
    fn a_bare_part_with_an_equals_sign_is_printed_with_its_name() {
        let device = format(GuestKind::Lxc, "dev0");
        let value = declared(&device, "path=/dev/by-id/a=b").unwrap();
        assert_eq!(print::pve(&device, &value), "path=/dev/by-id/a=b");
    }

    #[test]
    fn a_stored_part_given_twice_counts_as_its_last() {
        let network = format(GuestKind::Lxc, "net0");
        let twice = stored(&network, "name=eth0,bridge=a,bridge=b");
        assert_eq!(twice, stored(&network, "name=eth0,bridge=b"));
    }
}
