-- Work for one PostgreSQL session that allocates in every way a backend does: sorts, hashes, JSON, arrays,
-- text, plpgsql, errors that are caught, cursors, parallel workers and compiled expressions.
-- Its output is the same on every run.
\set ON_ERROR_STOP on
SET work_mem = '1MB';
SET max_parallel_workers_per_gather = 2;

DROP TABLE IF EXISTS item;
CREATE TABLE item (id int PRIMARY KEY, name text, tags text[], doc jsonb, price numeric);
INSERT INTO item
    SELECT i, repeat(chr(97 + i % 26), 1 + i % 300), ARRAY(SELECT 'tag' || (i * 7 % 31 + t)
        FROM generate_series(1, i % 9) t),
           jsonb_build_object('n', i, 'list', to_jsonb(ARRAY[i, i * 2, i % 5]), 'text', md5(i::text)), i * 1.37
    FROM generate_series(1, 12000) i;
CREATE INDEX ON item USING gin (tags);
CREATE INDEX ON item USING gin (doc jsonb_path_ops);
CREATE INDEX ON item (md5(name), price);
ANALYZE item;

SELECT count(*), sum(length(name)), sum(price) FROM item;
SELECT count(*) FROM item WHERE tags @> ARRAY['tag12', 'tag13'];
SELECT count(*) FROM item WHERE doc @> '{"list": [4]}';
SELECT md5(string_agg(name || id, ',' ORDER BY price DESC, id)) FROM item;
SELECT md5(string_agg(tag || ':' || n, ' ' ORDER BY tag))
    FROM (SELECT tag, count(*) AS n FROM item, unnest(tags) AS tag GROUP BY tag) AS found;
SELECT md5(jsonb_agg(doc ORDER BY id)::text) FROM item WHERE id % 10 = 0;
SELECT md5(xmlagg(xmlelement(name item, xmlattributes(id AS id), doc ->> 'text') ORDER BY id)::text)
    FROM item WHERE id < 2000;
SELECT count(*), max(length(regexp_replace(name, '(a|b|c)+', '\1\1', 'g'))) FROM item;
SELECT sum(ts_rank(to_tsvector('english', doc ->> 'text' || ' the cats are running'),
    to_tsquery('cat & run')))::numeric(12, 4)
    FROM item WHERE id < 3000;
WITH RECURSIVE walk(n, path) AS (
    SELECT 1, ARRAY[1] UNION ALL SELECT (n * 31 + 7) % 12000 + 1, path || n FROM walk WHERE cardinality(path) < 900)
    SELECT count(*), md5(max(path)::text) FROM walk;
SELECT md5(string_agg(total::text, ',' ORDER BY id)) FROM (
    SELECT id, sum(price) OVER (PARTITION BY id % 17 ORDER BY id ROWS 50 PRECEDING) AS total FROM item) AS window_sums;

SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT count(*),
    sum(a.id % 1000) FROM item a JOIN item b ON md5(a.name) = md5(b.name) WHERE a.id < b.id AND a.id % 11 = 0;
SET jit = on;
SET jit_above_cost = 0;
SET jit_inline_above_cost = 0;
SET jit_optimize_above_cost = 0;
SELECT count(*), sum(CASE WHEN id % 3 = 0 THEN length(name) ELSE price::int % 7 END)
    FROM item WHERE price > 100 AND id % 2 = 0;
RESET ALL;

CREATE OR REPLACE FUNCTION stumble(n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE caught int := 0; kept text[] := '{}';
BEGIN
    FOR i IN 1..n LOOP
        BEGIN
            kept := kept || repeat('x', i);
            IF i % 3 = 0 THEN PERFORM 1 / (i - i); END IF;
            INSERT INTO item VALUES (CASE WHEN i % 2 = 0 THEN 1 ELSE -i END);
        EXCEPTION WHEN division_by_zero OR unique_violation THEN caught := caught + 1;
        END;
    END LOOP;
    DELETE FROM item WHERE id < 0;
    RETURN caught * 100000 + length(array_to_string(kept, ''));
END $$;
SELECT stumble(600);

BEGIN;
DECLARE here SCROLL CURSOR FOR SELECT id, name FROM item ORDER BY md5(name), id;
MOVE 5000 FROM here;
FETCH 2 FROM here;
FETCH BACKWARD 2 FROM here;
COMMIT;
PREPARE find(int) AS SELECT count(*) FROM item WHERE id BETWEEN $1 AND $1 + 100;
EXECUTE find(50);
EXECUTE find(11990);
UPDATE item SET name = name || '.', doc = doc || '{"more": [1, 2, 3]}' WHERE id % 4 = 0;
VACUUM (FULL, ANALYZE) item;
SELECT count(*), sum(length(doc::text)) FROM item;
