//! `POST /v1/agent/enrol`: a host shows a token and signs who it is.

use std::time::Instant;

use evenkeel_core::fleet::{EnrolAnswer, EnrolRequest, EnrolStatement, PayloadHash};
use evenkeel_core::sign::PublicKey;

use super::kept_name;
use crate::call::Call;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, json};
use crate::secret_text::{SecretKind, SecretText};
use crate::store::NewHost;

/// The largest enrolment: a key, a token and a short statement.
pub(super) const ENROL_BODY_BYTES_MAX: usize = 16 * 1024;

pub(super) async fn enrol(hub: Hub, call: Call) -> Answer {
    // By address first: junk from one network keeps nobody else out.
    let address = call.address.as_deref().unwrap_or("unknown");
    hub.people().enrolments.take(address, Instant::now()).map_err(|_| {
        Problem::new(ProblemCode::TooMany, "too many tries to enrol from this address")
    })?;
    hub.gates().enter_stranger()?;
    let request: EnrolRequest = call.json()?;
    let token = SecretText::read(SecretKind::EnrolToken, &request.token);
    let token = token.ok_or_else(Problem::unauthorised)?;
    let (key, statement) = verified(&hub, &request)?;
    if statement.token != PayloadHash::of(token.reveal().as_bytes()) {
        return Err(Problem::invalid("the statement is about another token"));
    }
    let credential = SecretText::draw(SecretKind::Credential);
    let host = NewHost {
        token: token.hash(),
        host: statement.host.id.as_str().to_owned(),
        key_line: key.to_string(),
        key_fingerprint: key.fingerprint().to_string(),
        credential: credential.hash(),
    };
    hub.store().enrol(host).await??;
    json(&EnrolAnswer {
        hub_id: kept_name(hub.store().hub_id())?,
        credential: credential.reveal().to_owned(),
    })
}

/// The key and the statement it signed, for this hub.
fn verified(hub: &Hub, request: &EnrolRequest) -> Result<(PublicKey, EnrolStatement), Problem> {
    let refused = |refusal: evenkeel_core::model::reason::Refusal| {
        Problem::invalid(format!("the enrolment is refused: {}", refusal.detail))
    };
    let key = PublicKey::from_line(request.host_key.trim_end()).map_err(refused)?;
    let envelope = request.enrolment.envelope().map_err(refused)?;
    let statement = EnrolStatement::verify(&envelope, &key).map_err(refused)?;
    if statement.hub_url != hub.public_url() {
        // Signed for another address: a hub in between would otherwise pass on what it was told.
        let detail = "the enrolment was signed for another address than this hub's";
        let hint = format!(
            "this hub is {}; enrol with that address, or start it with --public-url",
            hub.public_url()
        );
        return Err(Problem::invalid(detail).hint(hint));
    }
    Ok((key, statement))
}
