-- A challenge is known by its own making and leaves nothing here until it is answered: then its hash, so that it is answered once.
DROP TABLE login_challenges;
CREATE TABLE spent_challenges (
  hash TEXT NOT NULL PRIMARY KEY,
  expires_at BIGINT NOT NULL
);
CREATE INDEX spent_challenges_end ON spent_challenges (expires_at);

-- How often a text is needed: what nobody needs any more goes by its name, and no table is looked through for it.
ALTER TABLE manifests ADD COLUMN refs BIGINT NOT NULL DEFAULT 0;
ALTER TABLE files ADD COLUMN refs BIGINT NOT NULL DEFAULT 0;
UPDATE manifests SET refs = (SELECT COUNT(*) FROM documents d WHERE d.manifest = manifests.hash)
  + (SELECT COUNT(*) FROM drafts d WHERE d.manifest = manifests.hash);
UPDATE files SET refs = (SELECT COUNT(*) FROM manifest_files f WHERE f.sha256 = files.sha256);

-- How many bytes a host has here: of ops and decisions, and of guests. Counted up with each report, and counted anew when it is too many.
ALTER TABLE hosts ADD COLUMN history_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE hosts ADD COLUMN guest_bytes BIGINT NOT NULL DEFAULT 0;

-- Of an envelope that is over the verdict stays, not what was in it.
UPDATE envelopes SET body = '' WHERE state <> 'waiting';
