-- Builds a database of some megabytes, changes it, and checks it; every value follows from the row's number.
PRAGMA page_size = 4096;
PRAGMA cache_size = 2000;
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, weight REAL, body BLOB);
CREATE TABLE link (a INTEGER, b INTEGER, note TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
INSERT INTO item SELECT i, 'name ' || (i * 7919 % 30011), i / 7.0, zeroblob(i % 200) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
INSERT INTO link SELECT i * 31 % 30000 + 1, i * 17 % 30000 + 1, printf('%0*d', i % 90, i) FROM n;
CREATE INDEX item_name ON item(name);
CREATE INDEX link_a ON link(a, b);
CREATE VIRTUAL TABLE words USING fts5(body);
INSERT INTO words SELECT name || ' ' || note FROM item JOIN link ON link.a = item.id WHERE item.id % 5 = 0;
SELECT count(*) FROM words WHERE words MATCH 'name AND 7919';
BEGIN;
UPDATE item SET name = upper(name) || id WHERE id % 3 = 0;
DELETE FROM link WHERE a % 10 = 4;
COMMIT;
SELECT count(*), sum(length(note)), max(note) FROM link;
SELECT item.name, count(*), group_concat(link.b, '.') FROM item JOIN link ON link.a = item.id GROUP BY item.name
    ORDER BY count(*) DESC, item.name LIMIT 20;
WITH s AS (SELECT id, weight, row_number() OVER (ORDER BY weight DESC) AS r, sum(weight) OVER (ORDER BY id) AS t
    FROM item)
    SELECT id, r, round(t, 3) FROM s WHERE id % 3001 = 0;
SELECT json_group_array(json_object('id', id, 'name', name)) FROM item WHERE id < 200;
VACUUM;
SELECT count(*), sum(id), total(weight), sum(length(body)) FROM item;
PRAGMA integrity_check;
