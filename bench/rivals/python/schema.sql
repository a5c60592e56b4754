-- Half-empty pages keep updates on their page (HOT).
CREATE TABLE counters (id text PRIMARY KEY, count bigint NOT NULL) WITH (fillfactor = 20);
CREATE TABLE hotels (id text PRIMARY KEY, rooms_left integer NOT NULL CHECK (rooms_left >= 0)) WITH (fillfactor = 20);
CREATE TABLE flights (id text PRIMARY KEY, seats_left integer NOT NULL CHECK (seats_left >= 0)) WITH (fillfactor = 20);
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    "user" text NOT NULL,
    hotel text NOT NULL,
    flight text NOT NULL
);
-- Replies by idempotency key.
CREATE TABLE replies (key text PRIMARY KEY, reply text NOT NULL);
