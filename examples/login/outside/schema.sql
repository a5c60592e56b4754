-- The outside database: a table of users, kept by somebody else's application.
-- hash = hex SHA-1(password + salt), as many old tables have it.
CREATE EXTENSION pgcrypto;
CREATE TABLE users (
    username text PRIMARY KEY,
    salt text NOT NULL,
    hash text NOT NULL
);
CREATE FUNCTION add_user(name text, password text, user_salt text DEFAULT encode(gen_random_bytes(8), 'hex'))
RETURNS void LANGUAGE sql AS $$
    INSERT INTO users VALUES (name, user_salt, encode(digest(password || user_salt, 'sha1'), 'hex'))
$$;
-- The gateway may read users and nothing else.
CREATE ROLE gateway LOGIN;
GRANT SELECT ON users TO gateway;

SELECT add_user('alice', 'correct horse', '0123456789abcdef');
SELECT add_user('user' || number, 'password' || number) FROM generate_series(0, :users - 1) AS number;
ANALYZE users;
