//! `/sim/...`: faults, events, the request log and the clock, for tests over HTTP. Loopback only.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::engine::Simulator;
use crate::fault::{Event, Fault};
use crate::reply::{Reply, ReplyBody};
use crate::request::SimRequest;

/// Answers an admin request, or refuses it when it does not come from this machine.
pub(crate) fn admin(sim: &mut Simulator, request: &SimRequest) -> Reply {
    if !request.from_loopback || !asked_by_loopback_name(request) {
        return Reply::plain(403, "the admin endpoint answers to loopback addresses only");
    }
    let body: Result<Value, _> = serde_json::from_slice(&request.body);
    match (request.method.as_str(), request.path(), body) {
        ("POST", "/sim/faults", Ok(body)) => match serde_json::from_value::<Fault>(body) {
            Ok(fault) => {
                sim.inject(fault);
                done(&Value::Null)
            }
            Err(error) => Reply::plain(400, &format!("this is not a fault: {error}")),
        },
        ("POST", "/sim/events", Ok(body)) => match serde_json::from_value::<Event>(body) {
            Ok(event) => {
                sim.happen(event);
                done(&Value::Null)
            }
            Err(error) => Reply::plain(400, &format!("this is not an event: {error}")),
        },
        ("GET", "/sim/faults", _) => done(&json!(sim.faults.all())),
        ("DELETE", "/sim/faults", _) => {
            sim.clear_faults();
            done(&Value::Null)
        }
        ("GET", "/sim/requests", _) => {
            let own = |path: &str| path.starts_with("/sim/");
            done(&json!(
                sim.records().iter().filter(|record| !own(&record.path)).collect::<Vec<_>>()
            ))
        }
        ("DELETE", "/sim/requests", _) => {
            sim.clear_records();
            done(&Value::Null)
        }
        ("GET", "/sim/clock", _) => done(&json!({"now_ms": sim.now_ms()})),
        _ => Reply::plain(404, "known here: /sim/faults, /sim/events, /sim/requests, /sim/clock"),
    }
}

/// A browser of this machine may be made to ask for any page: then the name it asked for, or the page it
/// asks from, is somebody else's.
fn asked_by_loopback_name(request: &SimRequest) -> bool {
    let own = |host: &str| {
        let name = match host.strip_prefix('[') {
            Some(address) => address.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    request.find("host").is_none_or(own) && request.find("origin").is_none()
}

fn done(data: &Value) -> Reply {
    Reply {
        status: 200,
        reason: "OK".into(),
        body: ReplyBody::Json(json!({"data": data})),
        close: false,
    }
}
