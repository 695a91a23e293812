-- Which files a connection of SQLite's has attached as lock files. The note is a temporary table: it lives as long as the connection. {schema}
-- is the name under which the file is attached.

-- name: exists
-- One row if there is a note, whose table is called :name.
select 1 from sqlite_temp_master where name = :name collate nocase;

-- name: note
-- :path of the lock file, and :files, the numbers of the files that its names led to.
create temp table "interlock_attached_{schema}" as select :path as path, :files as files;

-- name: noted
select path, files from temp."interlock_attached_{schema}";
