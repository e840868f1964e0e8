//! What a host fetches: the document it was told of, and the head it once reported.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::call::Call;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, json};
use crate::store::FileText;

#[derive(Serialize)]
struct DocumentAnswer<'a> {
    hub_id: &'a str,
    host: &'a str,
    generation: i64,
    manifest: String,
    files: &'a [FileText],
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<Box<RawValue>>,
}

/// `GET /v1/agent/documents/{generation}`.
pub(super) async fn document(hub: Hub, call: Call) -> Answer {
    let host = call.host();
    let _busy = hub.gates().enter(&host.id)?;
    let generation = call.part("generation")?.parse::<i64>().ok().filter(|number| *number > 0);
    let generation =
        generation.ok_or_else(|| Problem::invalid("the generation is not a number"))?;
    let document = hub.store().document(&host.id, generation).await?;
    let document = document.ok_or_else(|| Problem::not_found("this generation"))?;
    json(&DocumentAnswer {
        hub_id: hub.store().hub_id(),
        host: &host.id,
        generation,
        manifest: STANDARD.encode(&document.manifest_bytes),
        files: &document.files,
        author: document.author.map(sealed).transpose()?,
    })
}

#[derive(Serialize)]
struct AnchorAnswer {
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<Box<RawValue>>,
}

/// `GET /v1/agent/anchor`.
pub(super) async fn anchor(hub: Hub, call: Call) -> Answer {
    let host = call.host();
    let _busy = hub.gates().enter(&host.id)?;
    let head = hub.store().anchor(&host.id).await?;
    json(&AnchorAnswer { head: head.map(sealed).transpose()? })
}

/// A sealed value as it was handed in.
fn sealed(text: String) -> Result<Box<RawValue>, Problem> {
    RawValue::from_string(text)
        .map_err(|_| Problem::new(ProblemCode::Internal, "a kept value is not JSON"))
}
