-- Half-empty pages keep updates on their page (HOT), so that the index does not change.
CREATE TABLE personinfo (id text PRIMARY KEY, record jsonb NOT NULL) WITH (fillfactor = 50);
