//! A crash at any step of a signed act: at most once, and nothing half done is left unsaid.

use std::collections::BTreeMap;

use evenkeel_core::id::GuestId;
use evenkeel_harness::Rig;

use crate::support::*;

/// A crash at every await point of a signed destroy with both preparations: the act is sent at most once, and a guest
/// that is still there is protected again.
#[tokio::test(start_paused = true)]
async fn a_signed_destroy_survives_a_crash_at_every_step() {
    let absent = desired("guest.102 = { kind = \"lxc\", state = \"absent\" }");
    let (mut polls, mut destroyed, mut given_back) = (1, 0, 0);
    loop {
        let rig = rig().await;
        let guest: GuestId = "lxc/102".parse().unwrap();
        let set = BTreeMap::from([("protection".to_owned(), Some("1".to_owned()))]);
        rig.node.with(|sim| sim.happen(evenkeel_sim::Event::Edit { guest, set }));
        let approval = rig
            .live(async |engine| {
                pass(engine, &absent).await?;
                Ok(anna().approve(&item(engine).await, 7, now(&rig)))
            })
            .await
            .unwrap()
            .unwrap();
        let life = rig.live(async |engine| {
            let accepted = engine.submit_approval(approval.as_bytes()).await?;
            Ok(ended(engine, accepted).await)
        });
        let done = crash_after(polls, life).await.is_some();
        let rig = Rig { disk: rig.disk.after_crash(0, 0), ..rig };
        afterwards(&rig, &desired("")).await;
        let sent = writes(&rig, "lxc/102");
        for once in ["DELETE 102", "POST stop"] {
            let count = sent.iter().filter(|write| *write == once).count();
            assert!(count <= 1, "after {polls} polls {once} was sent {count} times: {sent:?}");
        }
        if exists(&rig, "lxc/102") {
            assert!(protected(&rig, "lxc/102"), "after {polls} polls: {sent:?}");
            given_back +=
                usize::from(sent.iter().filter(|write| *write == "PUT config").count() > 1);
        } else {
            destroyed += 1;
        }
        if done {
            break;
        }
        polls += 1;
    }
    println!(
        "{polls} crash points: {destroyed} ended destroyed, {given_back} were protected again"
    );
    assert!(polls > 30 && destroyed > 1 && given_back > 0);
}
