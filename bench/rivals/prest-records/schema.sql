-- pREST writes columns only; an update of this one sets the path. The rule makes that part of the statement which pREST
-- prepares, where a trigger would be a call of a function.
CREATE VIEW personinfo_age AS SELECT id, record -> 'age' AS age FROM personinfo;
CREATE RULE set_age AS ON UPDATE TO personinfo_age DO INSTEAD
    UPDATE personinfo SET record = jsonb_set(record, '{age}', NEW.age, false) WHERE id = OLD.id;
