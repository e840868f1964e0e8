//! The same cases on SQLite and on a real PostgreSQL. A case gets a hub of its own, with a server on loopback.
//!
//! One test a database runs the whole table, so that both run exactly the same, and PostgreSQL is started once.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports, and fails by panicking"
)]

mod archive;
mod crash;
mod envelopes;
mod families;
mod growth;
mod host;
mod killed_replicas;
mod limits;
mod links;
mod logins;
mod migration;
mod people;
mod pushes;
mod replicas;
mod reports;
mod streams;
mod whole_files;

use evenkeel_core::fleet::{DocumentFiles, WireFile};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};

use evenkeel_hub::routes::Hub;
use evenkeel_hub::server::{
    RunningHub, ServeLimits, ServerOptions, TlsChoice, TrustedProxies, start,
};
use evenkeel_hub::store::{HubStore, NewDocument};
use evenkeel_testkit::patience::until;
use evenkeel_testkit::postgres::TestPostgres;

/// How long a poll waits that is to be woken, in seconds: as long as a hub lets it. One that nothing wakes ends with 204.
const LONG_POLL_S: u32 = 55;
/// Cases that run at a time.
const AT_A_TIME: usize = 8;

type CaseFuture = BoxFuture<'static, ()>;
type SuiteCase = (&'static str, fn(TestBed) -> CaseFuture);

macro_rules! cases {
    ($($module:ident: $($name:ident),+ $(,)?;)+) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)),
            |bed| -> CaseFuture { Box::pin($module::$name(bed)) }),)+)+]
    };
}

const CASES: &[SuiteCase] = cases! {
    links:
        a_host_enrols_and_a_lost_answer_is_answered_again,
        a_used_token_with_another_key_is_refused_and_audited,
        a_known_host_needs_a_token_that_replaces,
        a_key_belongs_to_one_host,
        an_enrolment_for_another_address_is_refused,
        a_token_is_good_for_its_own_host_and_hour,
        a_removed_host_is_out_at_once,
        a_poll_answers_when_there_is_news;
    pushes:
        generations_rise_and_the_text_comes_back,
        a_push_on_an_old_generation_is_stale,
        a_signed_generation_is_kept_or_refused,
        texts_are_kept_once_and_go_with_their_last_document,
        a_restored_hub_goes_on_above_its_hosts;
    reports:
        a_delta_builds_on_the_last_report,
        a_report_that_builds_on_nothing_known_is_asked_for_whole,
        a_whole_report_in_pages_replaces_everything,
        a_report_by_another_key_or_over_another_body_is_refused,
        an_anchor_only_rises_and_outlives_its_host,
        a_report_is_kept_whole_or_not_at_all,
        history_told_again_is_the_same_history;
    envelopes:
        an_envelope_leaves_by_its_hosts_verdict_alone,
        an_approval_must_name_an_open_item,
        a_queue_is_bounded_and_the_same_envelope_waits_once,
        no_cursor_is_missed_by_whoever_follows_them;
    replicas:
        a_push_through_one_replica_wakes_a_poll_at_another,
        a_credential_that_ends_at_one_replica_ends_at_the_others,
        a_quiet_host_is_known_without_the_database,
        hubs_that_start_together_make_one_database,
        writes_of_many_hosts_at_once_are_all_kept;
    people:
        the_first_account_is_made_once,
        no_secret_is_in_the_database,
        public_keys_stand_in_the_database_as_they_were_enrolled,
        every_route_of_hosts_and_people_wants_a_credential;
    logins:
        z17_a_challenge_is_answered_once_whoever_asks,
        a_token_ends_with_its_time_its_key_and_its_account,
        a_code_becomes_one_session_however_many_ask,
        the_last_admin_stays,
        drafts_are_bounded_and_share_their_texts,
        people_read_what_hosts_reported;
    families:
        z12_a_session_ends_with_its_token_however_that_ends,
        z12_a_change_of_role_holds_for_what_was_handed_out,
        z12_the_last_use_of_a_login_is_told,
        z13_no_login_outlives_the_removal_it_races,
        z14_of_two_admins_who_remove_each_other_one_stays,
        z22_a_code_opens_nothing_in_another_browser;
    growth:
        z18_of_an_envelope_that_is_over_the_verdict_stays_alone,
        z18_a_hosts_bytes_are_bounded_whatever_it_tells,
        z19_one_more_draft_costs_the_same_beside_very_many_documents,
        z19_texts_go_with_whoever_needed_them_last;
    archive:
        z18_old_lines_of_the_audit_move_to_files_and_the_table_goes_on,
        z18_lines_over_the_count_move_but_never_young_ones,
        lines_that_are_in_both_are_known_and_only_deleted,
        a_line_that_is_not_as_it_was_archived_is_never_deleted,
        one_hub_archives_at_a_time_and_in_one_directory,
        a_tail_that_is_not_whole_is_put_aside,
        bent_files_are_told_by_file_and_line,
        new_lines_are_numbered_above_an_archive_that_is_newer_than_the_database,
        an_archive_that_is_lost_is_told_and_another_can_begin;
    streams:
        a_report_taken_by_another_replica_is_heard,
        who_comes_back_is_told_what_they_missed,
        a_write_at_another_replica_is_told_here;
    limits:
        a_body_over_its_limit_is_refused,
        history_is_bounded_and_newest_first_stays,
        a_loud_host_is_refused_and_a_quiet_one_is_not,
        signs_of_life_are_written_together;
};

/// A hub for one case.
pub(crate) struct TestBed {
    running: Option<RunningHub>,
    /// The address of its database, for a second hub on it.
    database: String,
    directory: tempfile::TempDir,
    _postgres: Option<Arc<TestPostgres>>,
}

impl TestBed {
    async fn new(postgres: Option<Arc<TestPostgres>>, number: usize) -> Self {
        // A provider for reqwest; the second case finds it there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let database = match &postgres {
            None => format!("sqlite:{}", directory.path().join("hub.sqlite").display()),
            Some(postgres) => postgres.database(&format!("case{number}")),
        };
        let mut bed = Self { running: None, database, directory, _postgres: postgres };
        bed.running = Some(bed.another().await);
        bed
    }

    /// Another hub on the same database.
    pub(crate) async fn another(&self) -> RunningHub {
        let options = ServerOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            state: self.directory.path().to_owned(),
            database: Some(self.database.clone()),
            public_url: None,
            tls: TlsChoice::Plain,
            limits: ServeLimits::default(),
            proxies: TrustedProxies::default(),
            audit_archive: None,
            metrics_token: None,
        };
        start(options).await.unwrap()
    }

    fn running(&self) -> &RunningHub {
        self.running.as_ref().unwrap()
    }

    fn hub(&self) -> &Hub {
        &self.running().hub
    }

    fn store(&self) -> &HubStore {
        self.hub().store()
    }

    fn url(&self) -> &str {
        &self.running().url
    }

    /// Runs a statement behind the store's back: time passes, disks rot.
    async fn sql(&self, statement: &str) {
        let mut connection = self.store().database().connection().await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()))
            .execute(&mut connection)
            .await
            .unwrap();
    }

    async fn number(&self, query: &str) -> i64 {
        use sqlx::Row as _;
        let mut connection = self.store().database().connection().await.unwrap();
        let row = sqlx::query(sqlx::AssertSqlSafe(query.to_owned()))
            .fetch_one(&mut connection)
            .await
            .unwrap();
        row.try_get(0).unwrap()
    }
}

/// Waits until a hub has looked for everything that was written before this call. A look under way may have missed it; the
/// one after has not.
async fn looked(hub: &Hub) {
    let before = hub.wakes().looks();
    until("two looks end", || hub.wakes().looks() >= before + 2).await;
}

/// A document of one file.
/// The manifest of a document of one file.
fn manifest_of(text: &str) -> Vec<u8> {
    let files = DocumentFiles::new([("web.toml".to_owned(), text.to_owned())]).unwrap();
    files.manifest().as_bytes().to_vec()
}

fn document(host: &str, seen: i64, text: &str) -> NewDocument {
    NewDocument {
        host: host.to_owned(),
        files: vec![WireFile { name: "web.toml".to_owned(), text: text.to_owned() }],
        manifest: manifest_of(text),
        author: None,
        author_key: String::new(),
        generation: None,
        seen,
        message: "because".to_owned(),
        pushed_by: "alice".to_owned(),
    }
}

async fn run_all(postgres: Option<Arc<TestPostgres>>) {
    let one = |(number, (name, case)): (usize, &'static SuiteCase)| {
        let postgres = postgres.clone();
        async move {
            let ran = tokio::spawn(async move {
                let bed = TestBed::new(postgres, number).await;
                case(bed).await;
            });
            ran.await.err().map(|_| *name)
        }
    };
    let failed: Vec<&str> = stream::iter(CASES.iter().enumerate())
        .map(one)
        .buffer_unordered(AT_A_TIME)
        .filter_map(|it| async move { it })
        .collect()
        .await;
    println!("{} cases ran", CASES.len());
    assert!(failed.is_empty(), "these cases failed: {failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suite_on_sqlite() {
    run_all(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suite_on_postgresql() {
    run_all(Some(Arc::new(TestPostgres::start()))).await;
}
