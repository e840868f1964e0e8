//! What the server itself does for people, and what nobody may find in the database.

use sqlx::Row as _;

use super::host::TestHost;
use super::{TestBed, document};
use evenkeel_hub::access::Access;
use evenkeel_hub::routes;
use evenkeel_hub::secret_text::{SecretKind, SecretText};
use evenkeel_hub::store::{Account, AccountKey, NewAccount, PersonRole};

fn account(name: &str, first_code: Option<evenkeel_hub::secret_text::SecretHash>) -> NewAccount {
    NewAccount {
        account: Account::new(name, PersonRole::Admin, "*").unwrap(),
        key: AccountKey {
            fingerprint: format!("SHA256:{name}"),
            key_line: format!("ssh-ed25519 {name}"),
        },
        made_by: String::new(),
        first_code,
    }
}

pub(super) async fn the_first_account_is_made_once(bed: TestBed) {
    let link = bed.running().admin_link.clone().unwrap();
    let code = link.split_once('#').unwrap().1;
    let code = SecretText::read(SecretKind::OneTimeCode, code).unwrap();
    let other = SecretText::draw(SecretKind::OneTimeCode);
    assert!(bed.store().add_account(account("eve", Some(other.hash()))).await.is_err());
    let racing = (0..20).map(|number| {
        let store = bed.store().clone();
        let hash = code.hash();
        tokio::spawn(
            async move { store.add_account(account(&format!("a{number}"), Some(hash))).await },
        )
    });
    let done = futures_util::future::join_all(racing).await;
    assert_eq!(done.into_iter().filter(|made| made.as_ref().unwrap().is_ok()).count(), 1);
    assert_eq!(bed.number("SELECT COUNT(*) FROM accounts").await, 1);
    assert!(bed.another().await.admin_link.is_none(), "nobody else is let in this way");
    let twice = NewAccount { made_by: "a".to_owned(), ..account("bob", None) };
    bed.store().add_account(twice.clone()).await.unwrap();
    assert!(bed.store().add_account(twice).await.is_err(), "a name is taken once");
    let same_key = NewAccount {
        account: Account::new("carol", PersonRole::Viewer, "eu-*").unwrap(),
        ..account("bob", None)
    };
    assert!(bed.store().add_account(same_key).await.is_err(), "a key belongs to one account");
    assert!(bed.store().account("carol").await.unwrap().is_none(), "and nothing of it is kept");
}

pub(super) async fn no_secret_is_in_the_database(bed: TestBed) {
    let token = bed.token("pve1", false).await;
    let mut host = TestHost::new(&bed, "pve1");
    host.enrol(&token).await;
    bed.store().push(document("pve1", 0, "one")).await.unwrap();
    let link = bed.running().admin_link.clone().unwrap();
    let code = link.split_once('#').unwrap().1.to_owned();
    let mut connection = bed.store().database().connection().await.unwrap();
    let mut looked_at = 0;
    for table in ["hosts", "enrol_tokens", "first_admin_codes", "audit", "meta"] {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT * FROM {table}")));
        for row in rows.fetch_all(&mut connection).await.unwrap() {
            for column in 0..row.len() {
                let Ok(text) = row.try_get::<String, _>(column) else { continue };
                looked_at += 1;
                for secret in [&token, &host.credential, &code] {
                    assert!(!text.contains(&secret[5..]), "{table} holds a secret");
                }
            }
        }
    }
    assert!(looked_at > 10);
    let hash = SecretText::read(SecretKind::Credential, &host.credential).unwrap().hash();
    assert!(bed.store().host_by_credential(&hash).await.unwrap().is_some());
}

pub(super) async fn public_keys_stand_in_the_database_as_they_were_enrolled(bed: TestBed) {
    let person = TestHost::new(&bed, "alice");
    let line = person.key().to_string();
    let link = bed.running().admin_link.clone().unwrap();
    let code = link.split_once('#').unwrap().1;
    let enrolled = format!("{line} alice@laptop\n");
    let body = serde_json::json!({"code": code, "name": "alice", "key": enrolled});
    let made = person.post("/v1/first-admin", body.to_string().into_bytes()).await;
    assert_eq!(made.status, 204, "{made:?}");
    let mut connection = bed.store().database().connection().await.unwrap();
    let rows = sqlx::query(
        "SELECT a.name, k.fingerprint, k.key_line FROM account_keys k JOIN accounts a ON a.uid = k.account_uid",
    );
    let rows = rows.fetch_all(&mut connection).await.unwrap();
    let kept: Vec<[String; 3]> =
        rows.iter().map(|row| [0, 1, 2].map(|column| row.try_get(column).unwrap())).collect();
    assert_eq!(kept, [["alice".to_owned(), person.key().fingerprint().to_string(), line]]);
}

pub(super) async fn every_route_of_hosts_and_people_wants_a_credential(bed: TestBed) {
    let client = reqwest::Client::new();
    let mut asked = 0;
    for row in routes::table() {
        if row.access == Access::Anyone {
            continue;
        }
        let path = row.path.replace("{generation}", "1").replace("{host}", "pve1");
        let path = path.replace("{fingerprint}", "SHA256:none");
        for credential in
            ["", "Bearer evkc_12", "Basic YTpi", &format!("Bearer evkc_{}", "0".repeat(64))]
        {
            let request = client.request(row.method.clone(), format!("{}{path}", bed.url()));
            let reply = request.header("authorization", credential).send().await.unwrap();
            assert_eq!(reply.status().as_u16(), 401, "{} {path} {credential}", row.method);
            asked += 1;
        }
    }
    assert!(asked >= 12);
}
