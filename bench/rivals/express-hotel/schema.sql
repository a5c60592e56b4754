-- Half-empty pages keep updates on their page (HOT), so no index changes and neighbours' index
-- entries raise no false serialization conflicts.
CREATE TABLE hotels (id text PRIMARY KEY, rooms_left integer NOT NULL CHECK (rooms_left >= 0)) WITH (fillfactor = 20);
CREATE TABLE flights (id text PRIMARY KEY, seats_left integer NOT NULL CHECK (seats_left >= 0)) WITH (fillfactor = 20);
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    "user" text NOT NULL,
    hotel text NOT NULL,
    flight text NOT NULL
);

-- The whole reservation in one round trip. It runs in its caller's transaction, which the
-- connections open as SERIALIZABLE.
CREATE FUNCTION reserve(guest text, wanted_hotel text, wanted_flight text, OUT ok boolean, OUT message text)
LANGUAGE plpgsql AS $$
BEGIN
    ok := false;
    UPDATE hotels SET rooms_left = rooms_left - 1 WHERE id = wanted_hotel AND rooms_left > 0;
    IF NOT FOUND THEN
        message := 'no room left in hotel ' || wanted_hotel;
        RETURN;
    END IF;
    UPDATE flights SET seats_left = seats_left - 1 WHERE id = wanted_flight AND seats_left > 0;
    IF NOT FOUND THEN
        -- Within the transaction: nobody ever sees the room taken.
        UPDATE hotels SET rooms_left = rooms_left + 1 WHERE id = wanted_hotel;
        message := 'no seat left on flight ' || wanted_flight;
        RETURN;
    END IF;
    INSERT INTO orders ("user", hotel, flight) VALUES (guest, wanted_hotel, wanted_flight);
    ok := true;
    message := 'reserved';
END
$$;
