//! A node and the requests that the tests of a lifecycle send.

use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::release::Release;
use evenkeel_sim::{
    Reply, Scenario, SimOutcome, SimRequest, Simulator, Storage, StorageKind, TOKENS,
};
use serde_json::Value;

/// The template of every scenario.
pub(crate) const TEMPLATE: &str = "store:vztmpl/alpine-3.19-default_20240207_amd64.tar.gz";

/// Both releases that were watched.
pub(crate) const RELEASES: [Release; 2] = [Release::V8_4, Release::V9_2];

pub(crate) struct Node(pub(crate) Simulator);

impl Node {
    pub(crate) fn new(release: Release) -> Self {
        let mut world = Scenario { release, ..Scenario::default() }.build();
        let btr = Storage::new(StorageKind::Btrfs, "images,rootdir", "/btr");
        world.storages.insert("btr".to_owned(), btr);
        Self(Simulator::new(world))
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> Reply {
        let (name, secret, _) = TOKENS[0];
        let path = match path.strip_prefix("/cluster") {
            Some(_) => format!("/api2/json{path}"),
            None => format!("/api2/json/nodes/pve1{path}"),
        };
        let request = SimRequest::new(method, &path).token(&format!("{name}={secret}"));
        let request = if fields.is_empty() { request } else { request.form(fields) };
        match self.0.call(request) {
            SimOutcome::Reply(reply) => reply,
            other @ (SimOutcome::Dropped | SimOutcome::Wait { .. }) => {
                panic!("no answer: {other:?}")
            }
        }
    }

    /// The data of a call that must be answered.
    pub(crate) fn get(&mut self, path: &str) -> Value {
        let reply = self.ask("GET", path, &[]);
        assert_eq!(reply.status, 200, "{path}: {}", reply.reason);
        data(&reply)
    }

    /// The words of a refusal.
    pub(crate) fn refused(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> String {
        let reply = self.ask(method, path, fields);
        assert_ne!(reply.status, 200, "{method} {path}");
        reply.reason
    }

    /// Forks a task, which works on.
    pub(crate) fn fork(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> String {
        let reply = self.ask(method, path, fields);
        assert_eq!(reply.status, 200, "{method} {path}: {} {:?}", reply.reason, reply.json());
        data(&reply).as_str().expect("a UPID").to_owned()
    }

    /// How a task ends.
    pub(crate) fn exit(&mut self, upid: &str) -> String {
        self.0.run_tasks();
        self.0.exit_of(upid).expect("it has ended").to_owned()
    }

    /// A task that must end well.
    pub(crate) fn done(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> String {
        let upid = self.fork(method, path, fields);
        assert_eq!(self.exit(&upid), "OK", "{method} {path}");
        upid
    }

    /// A task that must fail, and how.
    pub(crate) fn failed(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> String {
        let upid = self.fork(method, path, fields);
        let exit = self.exit(&upid);
        assert_ne!(exit, "OK", "{method} {path}");
        exit
    }

    pub(crate) fn container(&mut self, vmid: &str, further: &[(&str, &str)]) -> String {
        self.done("POST", "/lxc", &container(vmid, further))
    }

    pub(crate) fn machine(&mut self, vmid: &str, further: &[(&str, &str)]) -> String {
        let fields: Vec<(&str, &str)> =
            [("vmid", vmid), ("memory", "64")].iter().chain(further).copied().collect();
        self.done("POST", "/qemu", &fields)
    }

    /// The ids of everything that carries a number, in every storage.
    pub(crate) fn volumes(&self, vmid: u32) -> Vec<String> {
        let storages = self.0.world.storages.iter();
        let all = storages.flat_map(|(name, storage)| {
            let volumes = storage.volumes.iter();
            volumes.map(move |(volume, data)| (format!("{name}:{volume}"), data))
        });
        all.filter(|(_, v)| v.vmid.is_some_and(|own| own.get() == vmid) && v.content != "backup")
            .map(|(volid, _)| volid)
            .collect()
    }

    /// The only backup of a guest.
    pub(crate) fn backup(&mut self, vmid: u32) -> Value {
        let list = self.get(&format!("/storage/store/content?content=backup&vmid={vmid}"));
        assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
        list[0].clone()
    }
}

pub(crate) fn container<'a>(
    vmid: &'a str,
    further: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let fields = [
        ("vmid", vmid),
        ("ostemplate", TEMPLATE),
        ("memory", "64"),
        ("swap", "0"),
        ("rootfs", "store:0.1"),
        ("unprivileged", "1"),
    ];
    let own = fields.iter().filter(|(key, _)| !further.iter().any(|(other, _)| other == key));
    own.chain(further).copied().collect()
}

pub(crate) fn data(reply: &Reply) -> Value {
    reply.json().map(|body| body["data"].clone()).unwrap_or_default()
}

pub(crate) fn id(text: &str) -> GuestId {
    text.parse().expect("a guest")
}
