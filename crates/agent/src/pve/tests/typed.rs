//! What each typed call sends, and how answers of real servers are read.

use std::sync::Arc;

use crate::engine::Cleared;
use crate::pve::error::{Error, ErrorClass, Unknown};
use crate::pve::exchange::{ExchangeOutcome, HttpAnswer};
use crate::pve::task::ExitStatus;
use crate::pve::wire::{RunStatus, TaskStatus};
use crate::pve::{Client, ConfigView, ContentFilter, TaskFilter};
use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_core::model::release::Release;

use super::every_call::{Always, Call, client, reads, upid, writes};

async fn sent(calls: Vec<Call>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, call) in calls {
        let exchange = Always::new(ExchangeOutcome::Unknown(Unknown::NotHttp));
        assert!(call(client(Arc::clone(&exchange))).await.is_err());
        lines.push(format!("{name}: {}", exchange.lines().join(" + ")));
    }
    lines
}

fn answering(status: u16, body: &str) -> Client {
    let body = body.as_bytes().to_vec();
    let answer = HttpAnswer { status, reason: String::new(), date: None, body };
    client(Always::new(ExchangeOutcome::Answered(answer)))
}

fn lxc() -> GuestId {
    "lxc/100".parse().unwrap()
}

#[tokio::test]
async fn every_read_asks_what_it_says() {
    let upid =
        "UPID%3Apve2%3A00001234%3A0123ABCD%3A65000000%3Avzstart%3A100%3Aagent%40pve%21keel%3A";
    let expected = [
        "version: GET /version".to_owned(),
        "nodes: GET /nodes".to_owned(),
        "node_status: GET /nodes/pve1/status".to_owned(),
        "guests lxc: GET /nodes/pve1/lxc".to_owned(),
        "guests qemu: GET /nodes/pve1/qemu".to_owned(),
        "guest_names: GET /nodes/pve1/qemu".to_owned(),
        "config: GET /nodes/pve1/lxc/100/config".to_owned(),
        "config current: GET /nodes/pve1/qemu/200/config?current=1".to_owned(),
        "pending: GET /nodes/pve1/lxc/100/pending".to_owned(),
        "guest_status: GET /nodes/pve1/qemu/200/status/current".to_owned(),
        "snapshots: GET /nodes/pve1/lxc/100/snapshot".to_owned(),
        "has_feature: GET /nodes/pve1/lxc/100/feature?feature=snapshot".to_owned(),
        "tasks: GET /nodes/pve1/tasks?source=all&vmid=100&typefilter=vzstart&userfilter=agent%40pve\
         &since=1&until=2&start=0&limit=100"
            .to_owned(),
        format!("task_status: GET /nodes/pve2/tasks/{upid}/status"),
        format!("task_log: GET /nodes/pve2/tasks/{upid}/log?start=0&limit=50"),
        "cluster_guests: GET /cluster/resources?type=vm".to_owned(),
        "next_vmid: GET /cluster/nextid".to_owned(),
        "vmid_is_free: GET /cluster/nextid?vmid=100".to_owned(),
        "cluster_status: GET /cluster/status".to_owned(),
        "cluster_options: GET /cluster/options".to_owned(),
        "storages: GET /nodes/pve1/storage".to_owned(),
        "volumes of a type: GET /nodes/pve1/storage/local-lvm/content?content=images".to_owned(),
        "volumes of a guest: GET /nodes/pve1/storage/local-lvm/content?vmid=100".to_owned(),
        "backups: GET /nodes/pve1/storage/local-lvm/content?content=backup&vmid=100".to_owned(),
        "permissions: GET /access/permissions".to_owned(),
        "held_on: GET /access/permissions?path=%2Fvms%2F100".to_owned(),
        "access_list: GET /access/acl".to_owned(),
        "ha_resources: GET /cluster/ha/resources".to_owned(),
        "replication_jobs: GET /cluster/replication".to_owned(),
        "backup_jobs: GET /cluster/backup".to_owned(),
        "firewall rules: GET /nodes/pve1/lxc/100/firewall/rules".to_owned(),
        "firewall aliases: GET /nodes/pve1/qemu/200/firewall/aliases".to_owned(),
        "firewall sets: GET /nodes/pve1/lxc/100/firewall/ipset".to_owned(),
        "firewall options: GET /nodes/pve1/qemu/200/firewall/options".to_owned(),
    ];
    assert_eq!(sent(reads()).await, expected);
}

#[tokio::test]
async fn every_write_sends_exactly_its_parameters() {
    let digest = "digest=da39a3ee5e6b4b0d3255bfef95601890afd80709";
    let change =
        format!("tags=a%3Bb&cipassword=pass%20word&delete=nameserver%2Ctty&revert=cmode&{digest}");
    let expected = [
        "start: POST /nodes/pve1/lxc/100/status/start".to_owned(),
        "shutdown: POST /nodes/pve1/qemu/200/status/shutdown timeout=60&forceStop=0".to_owned(),
        "stop: POST /nodes/pve1/lxc/100/status/stop".to_owned(),
        format!("set_config lxc: PUT /nodes/pve1/lxc/100/config {change}"),
        format!("set_config qemu: POST /nodes/pve1/qemu/200/config {change}&background_delay=5"),
        format!("resize: PUT /nodes/pve1/lxc/100/resize disk=rootfs&size=1073741824&{digest}"),
        "create lxc: POST /nodes/pve1/lxc hostname=web&ostemplate=local%3Avztmpl%2Fdebian.tar.zst\
         &vmid=101&ssh-public-keys=ssh-ed25519%20AAAA%20ops&password=pass%20word"
            .to_owned(),
        "create qemu: POST /nodes/pve1/qemu name=web&vmid=101".to_owned(),
        "restore lxc: POST /nodes/pve1/lxc hostname=web&ostemplate=local%3Abackup%2Fx.tar.zst\
         &restore=1&storage=local-lvm&unique=1&vmid=101"
            .to_owned(),
        "restore qemu: POST /nodes/pve1/qemu archive=local%3Abackup%2Fx.tar.zst&name=web\
         &storage=local-lvm&unique=1&vmid=101"
            .to_owned(),
        "clone lxc: POST /nodes/pve1/lxc/102/clone \
         full=1&hostname=web&newid=101&snapname=before&storage=local-lvm"
            .to_owned(),
        "clone qemu: POST /nodes/pve1/qemu/102/clone \
         full=1&name=web&newid=101&snapname=before&storage=local-lvm"
            .to_owned(),
        "template: POST /nodes/pve1/lxc/100/template".to_owned(),
        "snapshot: POST /nodes/pve1/lxc/100/snapshot \
         snapname=before&description=before%20the%20update"
            .to_owned(),
        "delete_snapshot: DELETE /nodes/pve1/lxc/100/snapshot/before".to_owned(),
        "rollback: POST /nodes/pve1/qemu/200/snapshot/before/rollback".to_owned(),
        "destroy: DELETE /nodes/pve1/lxc/100?purge=1&destroy-unreferenced-disks=0".to_owned(),
        format!(
            "move_volume lxc: POST /nodes/pve1/lxc/100/move_volume \
             volume=mp0&storage=local-lvm&delete=0&{digest}"
        ),
        format!(
            "move_volume qemu: POST /nodes/pve1/qemu/200/move_disk \
             disk=scsi0&storage=local-lvm&delete=1&{digest}"
        ),
        "migrate lxc: POST /nodes/pve1/lxc/100/migrate \
         target=pve2&restart=1&target-storage=local-lvm"
            .to_owned(),
        "migrate qemu: POST /nodes/pve1/qemu/200/migrate \
         target=pve2&online=1&targetstorage=local-lvm&with-local-disks=1"
            .to_owned(),
    ];
    assert_eq!(sent(writes()).await, expected);
}

#[tokio::test]
async fn versions_of_every_release_are_read() {
    for (body, release) in [
        (r#"{"data":{"version":"7.4-20","release":"7.4","repoid":"x"}}"#, Release::V7_4),
        (r#"{"data":{"release":"8.4","version":"8.4.21"}}"#, Release::V8_4),
        (r#"{"data":{"release":"9.2","version":"9.2.11"}}"#, Release::V9_2),
        (r#"{"data":{"release":9.2,"version":"unstable"}}"#, Release::V9_2),
    ] {
        assert_eq!(answering(200, body).version().await.unwrap().release, release, "{body}");
    }
}

#[tokio::test]
async fn pending_values_are_the_characters_pve_printed() {
    let body = r#"{"data":[
        {"key":"digest","value":"a1d60909b454d1aa294601c254531f04fb1907a8"},
        {"key":"swap","value":0},
        {"key":"cpulimit","value":"1.50"},
        {"key":"memory","value":64,"pending":"128"},
        {"key":"scsi1","value":"store:x","delete":2},
        {"key":"tty","value":null,"delete":"1"},
        {"key":"tags","value":" ","extra":[]}
    ]}"#;
    let entries = answering(200, body).pending(lxc()).await.unwrap();
    let read: Vec<_> = entries
        .iter()
        .map(|e| (e.key.as_str(), e.value.as_deref(), e.pending.as_deref(), e.delete))
        .collect();
    assert_eq!(
        read,
        [
            ("digest", Some("a1d60909b454d1aa294601c254531f04fb1907a8"), None, None),
            ("swap", Some("0"), None, None),
            ("cpulimit", Some("1.50"), None, None),
            ("memory", Some("64"), Some("128"), None),
            ("scsi1", Some("store:x"), None, Some(2)),
            ("tty", None, None, Some(1)),
            ("tags", Some(" "), None, None),
        ]
    );
}

#[tokio::test]
async fn a_config_keeps_digest_and_raw_lines_apart() {
    let body = r#"{"data":{"cores":2,"memory":"512","onboot":1,"lxc":[["lxc.idmap","u 0 1 2"]],
        "digest":"80ead096dd79bf0639155fb387cfe718f54707dd"}}"#;
    let config = answering(200, body).config(lxc(), ConfigView::Current).await.unwrap();
    assert_eq!(config.digest.unwrap().to_string(), "80ead096dd79bf0639155fb387cfe718f54707dd");
    assert_eq!(config.lxc, [("lxc.idmap".to_owned(), "u 0 1 2".to_owned())]);
    assert_eq!(config.values.len(), 3);
    assert_eq!(config.values["memory"], "512");
}

#[tokio::test]
async fn guests_are_read_from_lists_with_odd_scalars() {
    let body = r#"{"data":[
        {"vmid":100,"status":"running","name":"ct100","template":"","pressurecpusome":null},
        {"vmid":"101","status":"stopped","template":1,"lock":"backup","tags":"a;b","uptime":"0"},
        {"vmid":102,"status":"prelaunch"}
    ]}"#;
    let guests = answering(200, body).guests(GuestKind::Lxc).await.unwrap().rows;
    assert_eq!(guests.len(), 3);
    assert_eq!(guests[0].status, RunStatus::Running);
    assert!(guests[1].template && !guests[0].template);
    assert_eq!(guests[1].lock.as_deref(), Some("backup"));
    assert_eq!(guests[2].status, RunStatus::Other("prelaunch".into()));
    let names = answering(200, body).guest_names(GuestKind::Lxc).await.unwrap();
    assert_eq!(names[0].name.as_deref(), Some("ct100"));
    assert_eq!((names[1].vmid, names[1].tags.as_deref()), (guests[1].vmid, Some("a;b")));
}

#[tokio::test]
async fn y03_a_row_that_cannot_be_read_is_told_beside_the_others_and_null_is_no_empty_list() {
    let body = r#"{"data":[{"vmid":100,"status":"running"},{"status":"running"},
        {"vmid":101,"status":null},{"vmid":7,"status":"running"},null]}"#;
    let listed = answering(200, body).guests(GuestKind::Lxc).await.unwrap();
    assert_eq!((listed.rows.len(), listed.unread.len()), (1, 4));
    let numbers: Vec<Option<VmId>> = listed.unread.iter().map(|row| row.parsed("vmid")).collect();
    assert_eq!(numbers, [None, Some("101".parse().unwrap()), None, None]);
    for body in [r#"{"data":null}"#, r#"{"data":{}}"#, "{}"] {
        let error = answering(200, body).guests(GuestKind::Lxc).await.unwrap_err();
        assert!(matches!(error, Error::Unknown { why: Unknown::Unreadable { .. }, .. }), "{body}");
    }
    let none = answering(200, r#"{"data":[]}"#).guests(GuestKind::Lxc).await.unwrap();
    assert!(none.rows.is_empty() && none.unread.is_empty());
}

#[tokio::test]
async fn a_number_is_free_only_if_pve_says_so_about_that_number() {
    let vmid: VmId = "100".parse().unwrap();
    let free = |status, body: &'static str| async move {
        answering(status, body).vmid_is_free(vmid).await
    };
    assert_eq!(free(200, r#"{"data":"100"}"#).await, Ok(true));
    assert_eq!(free(200, r#"{"data":101}"#).await, Ok(false));
    let taken = r#"{"data":null,"message":"Parameter verification failed.\n","errors":{"vmid":"VM 100 already exists"}}"#;
    assert_eq!(free(400, taken).await, Ok(false));
    for (status, body) in [(403, ""), (595, ""), (500, ""), (200, r#"{"data":null}"#), (400, "{}")]
    {
        assert!(free(status, body).await.is_err(), "{status} {body}");
    }
}

#[tokio::test]
async fn tasks_and_logs_are_read_in_every_form() {
    let list = r#"{"total":2,"data":[
        {"upid":"UPID:pve1:00000DFD:00048BC2:6AF9FF7A:vzstop:120:root@pam:","status":"OK","endtime":1794768764},
        {"upid":"UPID:pve1:00000DFE:00048BC2:6AF9FF7A:vzstart:120:root@pam!full:","status":"RUNNING","saved":"0"}
    ]}"#;
    let tasks = answering(200, list).tasks(&TaskFilter::default()).await.unwrap().rows;
    assert_eq!(tasks[0].exit_status(), Some(ExitStatus::Ok));
    assert_eq!(tasks[1].exit_status(), None);

    let status = answering(200, r#"{"data":{"status":"stopped","exitstatus":"WARNINGS: 1"}}"#);
    let status = status.task_status(&upid()).await.unwrap();
    assert_eq!(status, TaskStatus::Ended(ExitStatus::Warnings(1)));
    let odd = answering(200, r#"{"data":{"status":"odd"}}"#).task_status(&upid()).await;
    assert!(odd.is_err());

    let gone = r#"{"data":{"n":1,"t":"unable to open file - No such file or directory"}}"#;
    let log = answering(200, gone).task_log(&upid(), 0, 50).await.unwrap();
    assert_eq!(log.len(), 1);
    let many = r#"{"total":1,"data":[{"n":1,"t":"TASK OK"}]}"#;
    let log = answering(200, many).task_log(&upid(), 0, 50).await.unwrap();
    assert_eq!(log[0].t.as_deref(), Some("TASK OK"));
    let odd = r#"{"data":[{"n":"x","t":"one"},null,{"n":3,"t":"three"}]}"#;
    let log = answering(200, odd).task_log(&upid(), 0, 50).await.unwrap();
    let lines: Vec<_> = log.iter().filter_map(|line| line.t.as_deref()).collect();
    assert_eq!(lines, ["one", "(a line that cannot be read)", "three"]);
}

#[tokio::test]
async fn y03_y17_a_volume_without_a_size_has_none_and_an_odd_one_spoils_no_other() {
    let body = r#"{"data":[
        {"volid":"a:1","approximate-size":5,"vmid":100},
        {"volid":"a:2","size":null},{"volid":"a:3","size":-1},{"volid":"a:4","size":"7"},
        {"volid":"a:5","vmid":"x"},{"size":1}
    ]}"#;
    let storage = "local".parse().unwrap();
    let listed = answering(200, body).volumes(&storage, &ContentFilter::All).await.unwrap();
    let sizes: Vec<_> = listed.rows.iter().map(|volume| volume.size_bytes).collect();
    assert_eq!(sizes, [None, None, None, Some(7)]);
    assert_eq!(listed.unread.len(), 2);
}

#[tokio::test]
async fn permissions_and_options_are_read() {
    let body = r#"{"data":{"/":{"VM.Audit":1,"Sys.Audit":"0"},"/vms/100":{}}}"#;
    let permissions = answering(200, body).permissions().await.unwrap().0;
    assert!(permissions["/"]["VM.Audit"] && !permissions["/"]["Sys.Audit"]);
    assert!(answering(200, r#"{"data":{}}"#).permissions().await.unwrap().0.is_empty());
    let odd =
        r#"{"data":{"/":{"VM.Audit":1,"Sys.Audit":"x"},"/vms":null,"/nodes":{"Sys.Audit":1}}}"#;
    let held = answering(200, odd).permissions().await.unwrap().0;
    assert_eq!((held["/"].len(), held["/vms"].len(), held["/nodes"].len()), (1, 0, 1));
    let options = answering(200, r#"{"data":{"mac_prefix":"BC:24:11","next-id":{"lower":"100"}}}"#);
    let options = options.cluster_options().await.unwrap();
    assert_eq!(options["next-id"], r#"{"lower":"100"}"#);
}

#[tokio::test]
async fn a_start_that_answers_no_task_is_not_believed() {
    for body in [r#"{"data":null}"#, r#"{"data":"OK"}"#, r#"{"data":""}"#, "{}"] {
        let error =
            answering(200, body).writes(&Cleared::in_a_test()).start(lxc()).await.unwrap_err();
        assert!(matches!(error, Error::Unknown { .. }), "{body}");
    }
    let refused = answering(403, "").writes(&Cleared::in_a_test()).start(lxc()).await.unwrap_err();
    assert_eq!(refused.class(), Some(&ErrorClass::Permission));
}
