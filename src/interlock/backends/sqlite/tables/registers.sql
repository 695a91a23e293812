-- Registers, and the bells of those who watch registers or queues.

-- name: read
-- value, version, the id that wrote it, and the lapse of a deleted one. ?1 name.
select value, version, writer, lapses_at from register where name = ?1;

-- name: write
-- ?1 name, ?2 value or null, ?3 version, ?4 id, ?5 when a deleted one is forgotten, or null.
replace into register (name, value, version, writer, lapses_at) values (?1, ?2, ?3, ?4, ?5);

-- name: hang
-- ?1 topic, ?2 address, ?3 lapses_at.
replace into bell (topic, address, lapses_at) values (?1, ?2, ?3);

-- name: bells
-- Whom to ring about a topic. ?1 topic, ?2 now.
select address from bell where topic = ?1 and lapses_at > ?2;
