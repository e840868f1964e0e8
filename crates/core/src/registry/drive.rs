//! The property strings of QEMU drives. One long list, cut down per bus by what that bus has not.

use super::Releases;
use super::format::{Absent, FormatPart, Rule, Shape, ValueFormat, flag, part};
use crate::model::release::Release;

const MAX: i64 = super::format::UNBOUNDED;

const fn count(name: &'static str) -> FormatPart {
    part(name, ValueFormat::Integer { min: 0, max: MAX })
}

const fn length(name: &'static str, aliases: &'static [&'static str]) -> FormatPart {
    part(name, ValueFormat::Integer { min: 1, max: MAX }).aliases(aliases)
}

const fn rate(name: &'static str) -> FormatPart {
    part(name, ValueFormat::Number { max: MAX })
}

const fn geometry(name: &'static str) -> FormatPart {
    count(name).releases(Releases::until(Release::V8_4))
}

const AIO: FormatPart = part("aio", ValueFormat::Choice(&["native", "threads", "io_uring"]));
const BACKUP: FormatPart = part("backup", ValueFormat::Bool).absent(Absent::Bool(true));
const CACHE: FormatPart = part(
    "cache",
    ValueFormat::Choice(&["none", "writethrough", "writeback", "unsafe", "directsync"]),
);
const DISCARD: FormatPart =
    part("discard", ValueFormat::Choice(&["ignore", "on"])).absent(Absent::Text("ignore"));
const FILE: FormatPart = part("file", ValueFormat::Volume).aliases(&["volume"]).required();
// PVE takes the format when it allocates and does not store it.
const IMAGE_FORMAT: FormatPart =
    part("format", ValueFormat::Choice(&["raw", "qcow", "qed", "qcow2", "vmdk", "cloop"]))
        .never_compared();
const IMPORT_FROM: FormatPart = part("import-from", ValueFormat::Text(Rule::Line)).never_compared();
const MEDIA: FormatPart =
    part("media", ValueFormat::Choice(&["cdrom", "disk"])).absent(Absent::Text("disk"));
const REPLICATE: FormatPart = part("replicate", ValueFormat::Bool).absent(Absent::Bool(true));
const READ_ERROR: FormatPart = part("rerror", ValueFormat::Choice(&["ignore", "report", "stop"]));
const WRITE_ERROR: FormatPart =
    part("werror", ValueFormat::Choice(&["enospc", "ignore", "report", "stop"]));
const SERIAL: FormatPart = part("serial", ValueFormat::Text(Rule::UrlEncoded));
const SIZE: FormatPart = part("size", ValueFormat::Size).when_declared();
const TRANSLATION: FormatPart = part("trans", ValueFormat::Choice(&["none", "lba", "auto"]))
    .releases(Releases::until(Release::V8_4));
const WWN: FormatPart = part("wwn", ValueFormat::Text(Rule::WorldWideName));

/// The parts every bus has.
const COMMON: [FormatPart; 41] = [
    AIO,
    BACKUP,
    // PVE turns these into mbps=0.000, whatever they say.
    count("bps").instead("mbps"),
    length("bps_max_length", &[]),
    count("bps_rd").instead("mbps_rd"),
    length("bps_rd_max_length", &["bps_rd_length"]),
    count("bps_wr").instead("mbps_wr"),
    length("bps_wr_max_length", &["bps_wr_length"]),
    CACHE,
    geometry("cyls"),
    part("detect_zeroes", ValueFormat::Bool),
    DISCARD,
    FILE,
    IMAGE_FORMAT,
    geometry("heads"),
    IMPORT_FROM,
    count("iops"),
    count("iops_max"),
    length("iops_max_length", &[]),
    count("iops_rd"),
    count("iops_rd_max"),
    length("iops_rd_max_length", &["iops_rd_length"]),
    count("iops_wr"),
    count("iops_wr_max"),
    length("iops_wr_max_length", &["iops_wr_length"]),
    rate("mbps"),
    rate("mbps_max"),
    rate("mbps_rd"),
    rate("mbps_rd_max"),
    rate("mbps_wr"),
    rate("mbps_wr_max"),
    MEDIA,
    REPLICATE,
    READ_ERROR,
    geometry("secs"),
    SERIAL,
    flag("shared"),
    SIZE,
    flag("snapshot"),
    TRANSLATION,
    WRITE_ERROR,
];

/// `COMMON` with a bus's own parts in their alphabetical places.
const fn with<const OWN: usize, const ALL: usize>(own: [FormatPart; OWN]) -> [FormatPart; ALL] {
    assert!(OWN + COMMON.len() == ALL, "the length must be that of both lists");
    let mut all = [AIO; ALL];
    let mut common_at = 0;
    let mut own_at = 0;
    let mut at = 0;
    while at < ALL {
        let take_own = own_at < OWN
            && (common_at == COMMON.len()
                || comes_before(own[own_at].name, COMMON[common_at].name));
        if take_own {
            all[at] = own[own_at];
            own_at += 1;
        } else {
            all[at] = COMMON[common_at];
            common_at += 1;
        }
        at += 1;
    }
    all
}

/// String order, for constants.
const fn comes_before(left: &str, right: &str) -> bool {
    let left = left.as_bytes();
    let right = right.as_bytes();
    let mut at = 0;
    while at < left.len() && at < right.len() {
        if left[at] != right[at] {
            return left[at] < right[at];
        }
        at += 1;
    }
    left.len() < right.len()
}

const IDE_PARTS: [FormatPart; 44] =
    with([part("model", ValueFormat::Text(Rule::UrlEncoded)), flag("ssd"), WWN]);
const SATA_PARTS: [FormatPart; 43] = with([flag("ssd"), WWN]);
const SCSI_PARTS: [FormatPart; 49] = with([
    flag("iothread"),
    part("product", ValueFormat::Text(Rule::ScsiProduct)).releases(Releases::from(Release::V8_0)),
    part("queues", ValueFormat::Integer { min: 2, max: MAX }),
    flag("ro"),
    flag("scsiblock"),
    flag("ssd"),
    part("vendor", ValueFormat::Text(Rule::ScsiVendor)).releases(Releases::from(Release::V8_0)),
    WWN,
]);
const VIRTIO_PARTS: [FormatPart; 43] = with([flag("iothread"), flag("ro")]);

pub(super) const IDE: Shape = Shape::new(&IDE_PARTS).bare("file");
pub(super) const SATA: Shape = Shape::new(&SATA_PARTS).bare("file");
pub(super) const SCSI: Shape = Shape::new(&SCSI_PARTS).bare("file");
pub(super) const VIRTIO: Shape = Shape::new(&VIRTIO_PARTS).bare("file");

pub(super) const EFI_DISK: Shape = Shape::new(&[
    part("efitype", ValueFormat::Choice(&["2m", "4m"])).absent(Absent::Text("2m")),
    FILE,
    IMAGE_FORMAT,
    IMPORT_FROM,
    part("ms-cert", ValueFormat::Choice(&["2011", "2023", "2023w", "2023k"])).never_compared(),
    flag("pre-enrolled-keys"),
    part("size", ValueFormat::Size).never_compared(),
])
.bare("file");

pub(super) const TPM_STATE: Shape = Shape::new(&[
    FILE,
    IMAGE_FORMAT,
    IMPORT_FROM,
    part("size", ValueFormat::Size).never_compared(),
    part("version", ValueFormat::Choice(&["v1.2", "v2.0"])).absent(Absent::Text("v1.2")),
])
.bare("file");

pub(super) const UNUSED: Shape = Shape::new(&[FILE]).bare("file");
