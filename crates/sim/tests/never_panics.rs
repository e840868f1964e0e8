//! Random requests, sensible and not: the simulator answers every one of them.

use evenkeel_core::model::release::Release;
use evenkeel_sim::{Scenario, SimOutcome, SimRequest, Simulator, TOKENS};
use proptest::prelude::*;

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("nodes".to_owned()),
        Just("pve1".into()),
        Just("lxc".into()),
        Just("qemu".into()),
        Just("100".into()),
        Just("101".into()),
        Just("config".into()),
        Just("status".into()),
        Just("start".into()),
        Just("stop".into()),
        Just("snapshot".into()),
        Just("resize".into()),
        Just("clone".into()),
        Just("tasks".into()),
        Just("storage".into()),
        Just("store".into()),
        Just("content".into()),
        Just("cluster".into()),
        Just("nextid".into()),
        Just("access".into()),
        Just("ticket".into()),
        Just("vzdump".into()),
        Just("template".into()),
        Just("move_disk".into()),
        "[a-zA-Z0-9%:.!@_-]{0,12}",
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("net0".to_owned()),
        Just("scsi1".into()),
        Just("mp0".into()),
        Just("rootfs".into()),
        Just("delete".into()),
        Just("revert".into()),
        Just("description".into()),
        Just("tags".into()),
        Just("cores".into()),
        Just("boot".into()),
        Just("ide2".into()),
        Just("vmid".into()),
        Just("ostemplate".into()),
        Just("newid".into()),
        Just("disk".into()),
        Just("size".into()),
        Just("snapname".into()),
        Just("sshkeys".into()),
        Just("startup".into()),
        Just("digest".into()),
        Just("features".into()),
        Just("limit".into()),
        Just("background_delay".into()),
        "[a-z0-9_-]{0,8}",
    ]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("store:1".to_owned()),
        Just("store:1,mp=/d".into()),
        Just("name=eth0,bridge=vmbr0".into()),
        Just("virtio,bridge=vmbr0".into()),
        Just("store:100/vm-100-disk-0.raw,size=9G".into()),
        Just("order=scsi0;net0".into()),
        Just("none,media=cdrom".into()),
        Just("+1.5G".into()),
        Just("99999999999999999999".into()),
        Just("base/base".into()),
        Just("local-lvm:cloudinit".into()),
        Just("cores,net0,scsi0".into()),
        "\\PC{0,24}",
        "[=,;:%+0-9a-zA-Z/ ]{0,24}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_request_is_answered(
        release in prop_oneof![Just(Release::V7_4), Just(Release::V8_4), Just(Release::V9_2)],
        requests in prop::collection::vec(
            (prop_oneof![Just("GET"), Just("PUT"), Just("POST"), Just("DELETE"), Just("PATCH")],
             prop::collection::vec(word(), 0..7), prop::collection::vec((key(), value()), 0..4), any::<bool>(), any::<bool>()),
            1..12),
    ) {
        let mut sim = Simulator::new(Scenario { guests: 8, release, ..Scenario::default() }.build());
        let (name, secret, _) = TOKENS[0];
        for (method, words, fields, rooted, raw) in requests {
            let path = if rooted { format!("/api2/json/nodes/pve1/{}", words.join("/")) } else { format!("/api2/json/{}", words.join("/")) };
            let fields: Vec<(&str, &str)> = fields.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let mut request = SimRequest::new(method, &path).token(&format!("{name}={secret}"));
            if raw {
                request.body = fields.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join("&").into_bytes();
            } else if !fields.is_empty() {
                request = request.form(&fields);
            }
            match sim.call(request) {
                SimOutcome::Reply(reply) => prop_assert!((200..600).contains(&reply.status)),
                other @ (SimOutcome::Dropped | SimOutcome::Wait { .. }) => prop_assert!(false, "no answer: {other:?}"),
            }
            sim.run_tasks();
        }
    }
}
