//! What a host fetches: the document it was told of, and the head it once reported.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_core::fleet::{AnchorAnswer, Generation, WireDocument};

use super::{kept_name, kept_sealed};
use crate::call::Call;
use crate::problem::Problem;
use crate::routes::{Answer, Hub, json};

/// `GET /v1/agent/documents/{generation}`.
pub(super) async fn document(hub: Hub, call: Call) -> Answer {
    let host = call.host();
    let number = call.part("generation")?.parse::<i64>().ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| Problem::invalid("the generation is not a number"))?;
    let document = hub.store().document(&host.id, number).await?;
    let document = document.ok_or_else(|| Problem::not_found("this generation"))?;
    json(&WireDocument {
        hub_id: kept_name(hub.store().hub_id())?,
        host: kept_name(&host.id)?,
        generation: Generation(number.unsigned_abs()),
        manifest: STANDARD.encode(&document.manifest_bytes),
        files: document.files,
        author: document.author.as_deref().map(kept_sealed).transpose()?,
    })
}

/// `GET /v1/agent/anchor`.
pub(super) async fn anchor(hub: Hub, call: Call) -> Answer {
    let host = call.host();
    let head = hub.store().anchor(&host.id).await?;
    json(&AnchorAnswer { head: head.as_deref().map(kept_sealed).transpose()? })
}
