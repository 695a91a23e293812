-- Registers, and the bells of those who watch registers or queues.

-- name: read
-- value, version, the id that wrote it, and the lapse of a deleted one. ? name.
select value, version, writer, lapses_at from register where name = ?;

-- name: write
-- ? name, ? value or null, ? version, ? id, ? when a deleted one is forgotten, or null.
replace into register (name, value, version, writer, lapses_at) values (?, ?, ?, ?, ?);

-- name: hang
-- ? topic, ? address, ? lapses_at.
replace into bell (topic, address, lapses_at) values (?, ?, ?);

-- name: bells
-- Whom to ring about a topic. ? topic, ? now.
select address from bell where topic = ? and lapses_at > ?;
