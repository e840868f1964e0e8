-- What was handed out belongs to an account by its uid, which no later account of the same name has, and ends with what it came
-- from: a token with its account and the key that made it, a session and a code with their token. Which key made a token was not
-- kept before, so tokens, sessions and codes of before end here: people log in once more.
DROP TABLE sessions;
DROP TABLE api_tokens;
DROP TABLE one_time_codes;
ALTER TABLE accounts ADD COLUMN uid TEXT NOT NULL DEFAULT '';
UPDATE accounts SET uid = lower(hex(randomblob(16)));
CREATE UNIQUE INDEX accounts_uid ON accounts (uid);
ALTER TABLE accounts ADD COLUMN last_used_at BIGINT NOT NULL DEFAULT 0;

CREATE TABLE owned_keys (
  fingerprint TEXT NOT NULL PRIMARY KEY,
  account_uid TEXT NOT NULL REFERENCES accounts (uid) ON DELETE CASCADE,
  key_line TEXT NOT NULL,
  added_at BIGINT NOT NULL,
  last_used_at BIGINT NOT NULL
);
INSERT INTO owned_keys (fingerprint, account_uid, key_line, added_at, last_used_at)
  SELECT k.fingerprint, a.uid, k.key_line, k.added_at, 0 FROM account_keys k JOIN accounts a ON a.name = k.account;
DROP TABLE account_keys;
ALTER TABLE owned_keys RENAME TO account_keys;
CREATE INDEX account_keys_owner ON account_keys (account_uid);

CREATE TABLE api_tokens (
  hash TEXT NOT NULL PRIMARY KEY,
  account_uid TEXT NOT NULL REFERENCES accounts (uid) ON DELETE CASCADE,
  key_fingerprint TEXT NOT NULL REFERENCES account_keys (fingerprint) ON DELETE CASCADE,
  made_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  last_used_at BIGINT NOT NULL
);
CREATE INDEX api_tokens_owner ON api_tokens (account_uid, made_at);
CREATE INDEX api_tokens_key ON api_tokens (key_fingerprint);
CREATE INDEX api_tokens_end ON api_tokens (expires_at);

-- A session has no end of its own: it is good while its token is.
CREATE TABLE sessions (
  hash TEXT NOT NULL PRIMARY KEY,
  token TEXT NOT NULL REFERENCES api_tokens (hash) ON DELETE CASCADE,
  made_at BIGINT NOT NULL
);
CREATE INDEX sessions_token ON sessions (token, made_at);

-- `browser` is the word of the browser that asked for the link.
CREATE TABLE console_codes (
  hash TEXT NOT NULL PRIMARY KEY,
  token TEXT NOT NULL REFERENCES api_tokens (hash) ON DELETE CASCADE,
  browser TEXT NOT NULL,
  made_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX console_codes_token ON console_codes (token, made_at);

CREATE TABLE first_admin_codes (
  hash TEXT NOT NULL PRIMARY KEY,
  expires_at BIGINT NOT NULL
);
