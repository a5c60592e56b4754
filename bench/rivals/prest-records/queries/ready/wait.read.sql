-- Holds a database connection for a while, so that start.sh has all of the pool opened.
SELECT 1 AS waited FROM pg_sleep(0.5)
