-- What was handed in last, of all hosts: without this every envelope that is kept is read and sorted for it.
CREATE INDEX envelopes_submitted ON envelopes (submitted_at);
