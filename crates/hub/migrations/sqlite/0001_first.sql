-- What a hub keeps. Only TEXT, BIGINT and BLOB: booleans and times (milliseconds) are BIGINT, JSON is TEXT, so that the
-- same queries run on SQLite and PostgreSQL. Secrets are here as SHA-256 only.

CREATE TABLE hosts (
  id TEXT NOT NULL PRIMARY KEY,
  key_line TEXT NOT NULL,
  key_fingerprint TEXT NOT NULL UNIQUE,
  credential_hash TEXT NOT NULL UNIQUE,
  labels TEXT NOT NULL,
  wanted BIGINT NOT NULL,
  cursor BIGINT NOT NULL,
  serial BIGINT NOT NULL,
  instance TEXT NOT NULL,
  seq BIGINT NOT NULL,
  reported BIGINT NOT NULL,
  enrolled_at BIGINT NOT NULL,
  last_seen BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  version BIGINT NOT NULL
);
CREATE INDEX hosts_changed ON hosts (changed_at);

-- What a host said last, as it said it; apart from `hosts` so that a sign of life rewrites a short row.
CREATE TABLE host_states (
  host TEXT NOT NULL PRIMARY KEY,
  generation TEXT NOT NULL,
  refused TEXT NOT NULL,
  agent TEXT NOT NULL,
  pass TEXT NOT NULL,
  counts TEXT NOT NULL,
  last_head TEXT NOT NULL,
  host_time TEXT NOT NULL,
  reported_at BIGINT NOT NULL
);

-- The newest head of each host's journal, ever. It outlives the host's state.
CREATE TABLE anchors (
  host TEXT NOT NULL PRIMARY KEY,
  head TEXT NOT NULL,
  epoch BIGINT NOT NULL,
  seq BIGINT NOT NULL,
  sum TEXT NOT NULL,
  key_fingerprint TEXT NOT NULL,
  anchored_at BIGINT NOT NULL
);

CREATE TABLE enrol_tokens (
  hash TEXT NOT NULL PRIMARY KEY,
  host TEXT NOT NULL,
  replaces BIGINT NOT NULL,
  made_by TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  used_at BIGINT NOT NULL,
  used_key TEXT NOT NULL
);
CREATE INDEX enrol_tokens_host ON enrol_tokens (host, made_at);

CREATE TABLE guests (
  host TEXT NOT NULL,
  guest TEXT NOT NULL,
  name TEXT NOT NULL,
  state TEXT NOT NULL,
  body TEXT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (host, guest)
);

CREATE TABLE ops (
  host TEXT NOT NULL,
  op TEXT NOT NULL,
  serial BIGINT NOT NULL,
  guest TEXT NOT NULL,
  kind TEXT NOT NULL,
  state TEXT NOT NULL,
  body TEXT NOT NULL,
  received_at BIGINT NOT NULL,
  PRIMARY KEY (host, op)
);
CREATE UNIQUE INDEX ops_serial ON ops (host, serial);
CREATE INDEX ops_received ON ops (received_at);

-- `id` is the sum of the record in the host's journal: the same decision told again is the same row.
CREATE TABLE decisions (
  host TEXT NOT NULL,
  serial BIGINT NOT NULL,
  id TEXT NOT NULL,
  guest TEXT NOT NULL,
  code TEXT NOT NULL,
  body TEXT NOT NULL,
  received_at BIGINT NOT NULL,
  PRIMARY KEY (host, serial)
);
CREATE UNIQUE INDEX decisions_id ON decisions (host, id);
CREATE INDEX decisions_received ON decisions (received_at);

CREATE TABLE pending_items (
  host TEXT NOT NULL,
  id TEXT NOT NULL,
  item TEXT NOT NULL,
  received_at BIGINT NOT NULL,
  PRIMARY KEY (host, id)
);

-- `state` is waiting, judged or expired. An envelope leaves `waiting` by the host's signed verdict or by its own end.
CREATE TABLE envelopes (
  id TEXT NOT NULL PRIMARY KEY,
  host TEXT NOT NULL,
  cursor BIGINT NOT NULL,
  kind TEXT NOT NULL,
  item TEXT NOT NULL,
  body TEXT NOT NULL,
  body_hash TEXT NOT NULL,
  submitted_by TEXT NOT NULL,
  submitted_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  state TEXT NOT NULL,
  verdict TEXT NOT NULL,
  verdict_code TEXT NOT NULL,
  verdict_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX envelopes_cursor ON envelopes (host, cursor);
CREATE INDEX envelopes_waiting ON envelopes (state, host, cursor);

-- Content-addressed: a file's text once, however many documents hold it.
CREATE TABLE files (
  sha256 TEXT NOT NULL PRIMARY KEY,
  text TEXT NOT NULL
);

CREATE TABLE manifests (
  hash TEXT NOT NULL PRIMARY KEY,
  bytes BLOB NOT NULL
);

CREATE TABLE manifest_files (
  manifest TEXT NOT NULL,
  name TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  PRIMARY KEY (manifest, name)
);
CREATE INDEX manifest_files_file ON manifest_files (sha256);

CREATE TABLE documents (
  host TEXT NOT NULL,
  generation BIGINT NOT NULL,
  manifest TEXT NOT NULL,
  author TEXT NOT NULL,
  author_key TEXT NOT NULL,
  message TEXT NOT NULL,
  pushed_by TEXT NOT NULL,
  pushed_at BIGINT NOT NULL,
  PRIMARY KEY (host, generation)
);
CREATE INDEX documents_manifest ON documents (manifest);

CREATE TABLE drafts (
  id TEXT NOT NULL PRIMARY KEY,
  host TEXT NOT NULL,
  base BIGINT NOT NULL,
  manifest TEXT NOT NULL,
  message TEXT NOT NULL,
  made_by TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX drafts_host ON drafts (host, made_at);
CREATE INDEX drafts_manifest ON drafts (manifest);

CREATE TABLE accounts (
  name TEXT NOT NULL PRIMARY KEY,
  role TEXT NOT NULL,
  scope TEXT NOT NULL,
  made_by TEXT NOT NULL,
  made_at BIGINT NOT NULL
);

CREATE TABLE account_keys (
  fingerprint TEXT NOT NULL PRIMARY KEY,
  account TEXT NOT NULL,
  key_line TEXT NOT NULL,
  added_at BIGINT NOT NULL
);
CREATE INDEX account_keys_account ON account_keys (account);

CREATE TABLE api_tokens (
  hash TEXT NOT NULL PRIMARY KEY,
  account TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX api_tokens_account ON api_tokens (account, made_at);

CREATE TABLE sessions (
  hash TEXT NOT NULL PRIMARY KEY,
  account TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX sessions_account ON sessions (account, made_at);

CREATE TABLE one_time_codes (
  hash TEXT NOT NULL PRIMARY KEY,
  purpose TEXT NOT NULL,
  account TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX one_time_codes_purpose ON one_time_codes (purpose, account);

CREATE TABLE login_challenges (
  hash TEXT NOT NULL PRIMARY KEY,
  account TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX login_challenges_end ON login_challenges (expires_at);

CREATE TABLE audit (
  serial INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  at BIGINT NOT NULL,
  who TEXT NOT NULL,
  act TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail TEXT NOT NULL
);
CREATE INDEX audit_subject ON audit (subject, serial);
CREATE INDEX audit_at ON audit (at);
