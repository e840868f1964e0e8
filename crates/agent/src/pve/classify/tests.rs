//! The texts of real servers, in the three shapes releases give them, and what they must mean.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::pve::exchange::ApiPath;
use crate::pve::form::{Form, Query};

/// How a release carries its text.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// 7.4 to 8.2: in the reason phrase only.
    ReasonOnly,
    /// 8.4 and 9.2: in both.
    Body,
    /// A proxy in front dropped the reason phrase.
    BodyOnly,
}

fn request() -> HttpRequest {
    HttpRequest::get(ApiPath::new(["nodes", "pve1", "lxc", "100", "config"]), Query::new())
}

fn answer(status: u16, text: &str, errors: &str, shape: Shape) -> HttpAnswer {
    let reason = text.lines().next().unwrap_or_default();
    let quoted = serde_json::to_string(&format!("{text}\n")).unwrap();
    let errors = if errors.is_empty() { String::new() } else { format!(r#","errors":{errors}"#) };
    let (reason, body) = match shape {
        Shape::ReasonOnly => (reason, format!(r#"{{"data":null{errors}}}"#)),
        Shape::Body => (reason, format!(r#"{{"data":null,"message":{quoted}{errors}}}"#)),
        Shape::BodyOnly => ("", format!(r#"{{"message":{quoted},"data":null{errors}}}"#)),
    };
    HttpAnswer { status, reason: reason.to_owned(), date: None, body: body.into_bytes() }
}

fn refusal(answer: &HttpAnswer) -> PveRefusal {
    match refuse(&request(), answer) {
        Error::Refused(refusal) => *refusal,
        Error::NotSent { .. } | Error::Unknown { .. } => panic!("not a refusal: {answer:?}"),
    }
}

fn locked(lock: &str) -> ErrorClass {
    ErrorClass::Locked { lock: lock.to_owned() }
}

/// A status, a text, and what they mean.
type Case = (u16, &'static str, ErrorClass);

/// Who may, and what exists.
fn access_texts() -> Vec<Case> {
    vec![
        (401, "Authentication failed!", ErrorClass::Authentication),
        (401, "No ticket", ErrorClass::Authentication),
        (401, "Permission denied - invalid csrf token", ErrorClass::Authentication),
        (403, "Permission check failed (/vms/100, VM.Audit)", ErrorClass::Permission),
        (403, "Permission check failed (/vms/100, VM.Config.Options)", ErrorClass::Permission),
        (403, "Permission check failed", ErrorClass::Permission),
        (403, "Permission check failed (pool 'x' does not exist)", ErrorClass::Permission),
        (
            403,
            "Permission check failed (changing the hookscript is only allowed for root@pam)",
            ErrorClass::RootOnly,
        ),
        (500, "only root can set 'args' config", ErrorClass::RootOnly),
        (
            500,
            "Configuration file 'nodes/pve1/lxc/999.conf' does not exist",
            ErrorClass::GuestNotFound,
        ),
        (
            500,
            "Configuration file 'nodes/pve9/qemu-server/300.conf' does not exist",
            ErrorClass::GuestNotFound,
        ),
        (
            500,
            "unable to find configuration file for VM 300 on node 'pve1'",
            ErrorClass::GuestNotFound,
        ),
        (500, "storage 'nope' does not exist", ErrorClass::NotFound),
        (500, "bridge 'vmbr77' does not exist", ErrorClass::NotFound),
        (500, "bridge '' does not exist", ErrorClass::NotFound),
        (500, "volume 'store:iso/missing.iso' does not exist", ErrorClass::NotFound),
        (500, "snapshot 'x' does not exist", ErrorClass::NotFound),
        (
            500,
            "hostname lookup 'nosuch' failed - failed to get address info for: nosuch: Name or \
             service not known",
            ErrorClass::UnknownNode,
        ),
        (500, "CT 121 already exists on node 'pve1'", ErrorClass::AlreadyExists),
        (
            500,
            "unable to create CT 180 - CT 180 already exists on node 'pve1'",
            ErrorClass::AlreadyExists,
        ),
        (
            500,
            "unable to create VM 100 - CT 100 already exists on node 'pve9'",
            ErrorClass::AlreadyExists,
        ),
    ]
}

/// Locks and races.
fn lock_texts() -> Vec<Case> {
    vec![
        (500, "CT is locked (backup)", locked("backup")),
        (500, "VM is locked (snapshot-delete)", locked("snapshot-delete")),
        (
            500,
            "can't lock file '/run/lock/lxc/pve-config-100.lock' - got timeout",
            ErrorClass::LockTimeout,
        ),
        (
            500,
            "can't lock file '/var/lock/qemu-server/lock-310.conf' - got timeout",
            ErrorClass::LockTimeout,
        ),
        (500, "cfs-lock 'storage-X' error: got lock request timeout", ErrorClass::LockTimeout),
        (
            500,
            "Failed to obtain guest migration lock - replication running?",
            ErrorClass::LockTimeout,
        ),
        (
            500,
            "detected modified configuration - file changed by other user? Try again.",
            ErrorClass::DigestMismatch,
        ),
        (500, "checksum mismatch (file change by other user?)", ErrorClass::DigestMismatch),
        (500, "checksum missmatch (file change by other user?)", ErrorClass::DigestMismatch),
        (500, "cluster not ready - no quorum?", ErrorClass::NoQuorum),
        (500, "cfs-lock 'storage-X' error: no quorum!", ErrorClass::NoQuorum),
    ]
}

/// The guest's own state, and the call itself.
fn state_texts() -> Vec<Case> {
    vec![
        (500, "CT 100 already running", ErrorClass::AlreadyRunning),
        (500, "VM 310 already running", ErrorClass::AlreadyRunning),
        (500, "CT 100 not running", ErrorClass::NotRunning),
        (500, "VM 100 not running", ErrorClass::NotRunning),
        (500, "unable to destroy CT 100 - container is running", ErrorClass::GuestRunning),
        (500, "VM 310 is running - destroy failed", ErrorClass::GuestRunning),
        (500, "disk is already at specified size", ErrorClass::AlreadyAtSize),
        (500, "unable to shrink disk size", ErrorClass::Shrink),
        (500, "shrinking disks is not supported", ErrorClass::Shrink),
        (500, "can't remove CT 120 - protection mode enabled", ErrorClass::Protected),
        (500, "can't update CT 120 drive 'mp0' - protection mode enabled", ErrorClass::Protected),
        (
            500,
            "unable to remove CT 100 - used in HA resources and purge parameter not set.",
            ErrorClass::UsedInHa,
        ),
        (500, "Too many unused volumes - please delete them first.", ErrorClass::TooManyUnused),
        (500, "no options specified", ErrorClass::NothingToDo),
        (500, "container did not stop", ErrorClass::DidNotStop),
        (500, "VM quit/powerdown failed - got timeout", ErrorClass::DidNotStop),
        (500, "you can't start a CT if it's a template", ErrorClass::IsTemplate),
        (500, "you can't start a vm if it's a template", ErrorClass::IsTemplate),
        (500, "unable to delete required option 'memory'", ErrorClass::Other),
        (
            501,
            "Method 'POST /nodes/pve1/lxc/100/config' not implemented",
            ErrorClass::NotImplemented,
        ),
        (501, "Unexpected content for method 'DELETE'", ErrorClass::NotImplemented),
        (501, "for data too large", ErrorClass::BodyTooLarge),
        (506, "upload 'Content-Type 'text/plain' not implemented", ErrorClass::Other),
    ]
}

#[test]
fn a_text_means_the_same_wherever_a_release_puts_it() {
    for (status, text, class) in [access_texts(), lock_texts(), state_texts()].concat() {
        for shape in [Shape::ReasonOnly, Shape::Body, Shape::BodyOnly] {
            let refusal = refusal(&answer(status, text, "", shape));
            assert_eq!(refusal.class, class, "{status} {text} {shape:?}");
            assert_eq!((refusal.status, refusal.text.as_str()), (status, text));
            assert!(!refusal.class.hint().is_empty());
        }
    }
}

#[test]
fn a_parameter_error_is_read_from_the_errors_object() {
    let text = "Parameter verification failed.";
    for (errors, class) in [
        (r#"{"colour":"property is not defined in schema"}"#, ErrorClass::ParameterRefused),
        (
            r#"{"net0":"invalid format - format error\nnet0.hwaddr: x\n\n"}"#,
            ErrorClass::ParameterRefused,
        ),
        (r#"{"vmid":"VM 100 already exists\n"}"#, ErrorClass::AlreadyExists),
        (r#"{"upid":"no such task"}"#, ErrorClass::NoSuchTask),
        (r#"{"skiplock":"Only root may use this option."}"#, ErrorClass::RootOnly),
        (r#"{"description":"CT 100 already exists"}"#, ErrorClass::ParameterRefused),
        (r#"["odd"]"#, ErrorClass::ParameterRefused),
        ("null", ErrorClass::ParameterRefused),
        ("7", ErrorClass::ParameterRefused),
    ] {
        for shape in [Shape::ReasonOnly, Shape::Body, Shape::BodyOnly] {
            let refusal = refusal(&answer(400, text, errors, shape));
            assert_eq!(refusal.class, class, "{errors} {shape:?}");
            assert_eq!(refusal.text, text);
        }
    }
    let both = refusal(&answer(500, "format error", r#"{"mp":"x","volume":"y"}"#, Shape::Body));
    assert_eq!(both.errors.len(), 2);
    assert_eq!(both.class, ErrorClass::Other);
}

#[test]
fn a_guest_owners_words_do_not_change_the_class() {
    for text in [
        "volume 'store:x CT 100 already running' failed",
        "name 'CT 100 not running' is odd",
        "CT 100 already running yet",
        "CT x already running",
        "CT  already running",
        "disk is already at specified size or so",
        "Configuration file 'nodes/pve1/lxc/1.conf' does not exist, says the guest",
    ] {
        let class = class_of_text(text);
        let believed = matches!(
            class,
            ErrorClass::AlreadyRunning
                | ErrorClass::NotRunning
                | ErrorClass::AlreadyAtSize
                | ErrorClass::GuestNotFound
        );
        assert!(!believed, "{text}: {class:?}");
    }
}

#[test]
fn only_the_proxys_not_connected_status_proves_that_nothing_ran() {
    for shape in [Shape::ReasonOnly, Shape::Body] {
        let error = refuse(&request(), &answer(595, "Connection refused", "", shape));
        assert!(matches!(error, Error::NotSent { why: NotSent::NodeNotReached { .. }, .. }));
        for status in [596, 597, 598, 599] {
            let error = refuse(&request(), &answer(status, "Connection timed out", "", shape));
            assert!(matches!(error, Error::Unknown { why: Unknown::NodeLost { .. }, .. }));
        }
        for status in [502, 503, 504, 505, 600, 999] {
            let error = refuse(&request(), &answer(status, "Bad Gateway", "", shape));
            let gateway =
                Error::Unknown { call: request().call(), why: Unknown::Gateway { status } };
            assert_eq!(error, gateway);
        }
    }
}

#[test]
fn y23_a_worker_that_the_daemon_lost_is_no_refusal() {
    for text in [
        "got no worker upid - start worker failed",
        "got strange worker upid ('x' != 'y') - start worker failed",
        "starting worker failed: unable to redirect STDIN - Bad file descriptor",
        "unable to fork worker - Resource temporarily unavailable at RESTEnvironment.pm line 560.",
    ] {
        for shape in [Shape::ReasonOnly, Shape::Body, Shape::BodyOnly] {
            let error = refuse(&request(), &answer(500, text, "", shape));
            let Error::Unknown { why: Unknown::WorkerLost { text: told }, .. } = error else {
                panic!("{text} was taken for {error:?}");
            };
            assert_eq!(told, text);
        }
    }
    // A guest's name is not the node's word, and other statuses are what they are.
    let named = "CT is locked (got no worker upid - start worker failed)";
    assert!(matches!(
        refusal(&answer(500, named, "", Shape::Body)).class,
        ErrorClass::Locked { .. }
    ));
    let denied = answer(403, "got no worker upid - start worker failed", "", Shape::Body);
    assert_eq!(refusal(&denied).class, ErrorClass::Permission);
}

#[test]
fn an_html_page_with_status_500_is_not_proxmox_speaking() {
    let body = b"\n<!DOCTYPE html><html>CT 100 not running</html>".to_vec();
    let answer = HttpAnswer { status: 500, reason: "CT 100 not running".into(), date: None, body };
    let error = refuse(&request(), &answer);
    assert!(matches!(error, Error::Unknown { why: Unknown::Gateway { status: 500 }, .. }));
}

#[test]
fn an_empty_401_and_a_plain_text_500_are_read() {
    let empty = HttpAnswer {
        status: 401,
        reason: "Authentication failed!".into(),
        date: None,
        body: Vec::new(),
    };
    assert_eq!(refusal(&empty).text, "Authentication failed!");
    let plain = HttpAnswer {
        status: 500,
        reason: String::new(),
        date: None,
        body: b"Not a HASH reference at AnyEvent.pm line 957.\n".to_vec(),
    };
    assert_eq!(refusal(&plain).text, "Not a HASH reference at AnyEvent.pm line 957.");
}

#[test]
fn a_redirect_is_a_refusal() {
    let moved = answer(301, "Moved Permanently", "", Shape::ReasonOnly);
    assert_eq!(refusal(&moved).class, ErrorClass::Redirected);
}

#[test]
fn a_secret_parameter_quoted_by_proxmox_is_not_repeated() {
    let path = ApiPath::new(["nodes", "pve1", "lxc"]);
    let request = HttpRequest::post(path, Form::new().with_secret("password", "hunter2!".into()));
    let errors = r#"{"password":"type check failed - got 'hunter2!'"}"#;
    for status in [400, 500, 595, 596] {
        let error = refuse(&request, &answer(status, "bad 'hunter2!'", errors, Shape::Body));
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

proptest! {
    #[test]
    fn any_answer_is_classified_without_panic(
        status in 0u16..=u16::MAX,
        reason in ".{0,60}",
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let error = refuse(&request(), &HttpAnswer { status, reason, date: None, body });
        prop_assert!(!error.to_string().is_empty());
        prop_assert!(!error.hint().is_empty());
    }

    #[test]
    fn an_error_map_is_kept_whole(map in prop::collection::btree_map("[a-z0-9]{1,6}", "[ -~]{0,20}", 0..5)) {
        let map: BTreeMap<String, String> = map;
        let json = serde_json::to_string(&map).unwrap();
        let refusal = refusal(&answer(400, "Parameter verification failed.", &json, Shape::Body));
        prop_assert_eq!(refusal.errors.len(), map.len());
    }
}
